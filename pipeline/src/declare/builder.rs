//! The builder that a pipeline is declared with.

use std::borrow::Borrow;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jobs::{Job, JobOptions, Perform};
use parking_lot::Mutex;

use super::after::{After, AfterAny, AfterFailure, Following, Upstreams};
use super::branch::{Arms, Branch};
use super::callback::RunInput;
use super::feeds::{Link, NoInput};
use super::handle::{Handle, Step};
use super::strategy::FailureStrategy;
use crate::graph::spec::{
    ArmRef, CallbackOn, CallbackSpec, Edge, GraphSpec, Join, Shape, StepKind, StepOptions,
    StepSpec, Takes,
};
use crate::graph::{DeclarationError, Place, barrier_key};

/// The builder that [`Pipeline::configure`](super::Pipeline::configure) and [`Define::define`](super::Define::define)
/// declare steps with.
///
/// A step names the steps before it: one that takes no value begins with [`p.step`](Self::step), one that takes the
/// values of others with [`then`](Step::then) or [`p.after`](Self::after).
#[derive(Clone)]
pub struct PipelineBuilder(pub(crate) Arc<Mutex<State>>);

/// The declarations so far.
pub(crate) struct State {
    pub(crate) spec: GraphSpec,
    /// The number of the last step with each key.
    numbers: HashMap<String, usize>,
    /// The params of each step, in the order of the steps; barriers and merges have none.
    pub(crate) params: Vec<Option<String>>,
    pub(crate) callback_params: Vec<String>,
    pub(crate) problems: Vec<DeclarationError>,
    /// The jobs that steps and callbacks may run; `None` is any job.
    jobs: Option<ListedJobs>,
    /// The number of the first step of the current phase.
    phase: usize,
    /// The key of the barrier before the current phase.
    barrier: Option<String>,
    barriers: usize,
    /// The arms around the current declaration, the innermost last.
    arms: Vec<ArmRef>,
}

/// The jobs that a named pipeline lists as [`Define::Jobs`](super::Define::Jobs).
#[derive(Debug, Clone, Copy)]
pub(crate) struct ListedJobs {
    /// The type of the pipeline's params.
    pub(crate) pipeline: &'static str,
    /// The function that returns whether a job type with this name is listed.
    pub(crate) contains: fn(&str) -> bool,
}

/// The upstream steps of a step, and the shape of its input.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub(crate) links: Vec<Link>,
    /// The shape of the input; `None` is the shape that follows from the edges.
    pub(crate) shape: Option<Shape>,
    pub(crate) join: Join,
}

impl Upstream {
    pub(crate) fn none() -> Self {
        Self::all(Vec::new())
    }

    pub(crate) fn all(links: Vec<Link>) -> Self {
        Self {
            links,
            shape: None,
            join: Join::All,
        }
    }

    pub(crate) fn any(links: Vec<Link>) -> Self {
        Self {
            join: Join::Any,
            ..Self::all(links)
        }
    }

    /// Returns the shape, unless it follows from the edges.
    fn shape_to_store(&self) -> Option<Shape> {
        let taking = self.links.iter().filter(|link| link.edge.takes.is_input());
        let follows = Shape::of(taking.count());
        self.shape
            .clone()
            .filter(|shape| follows.as_ref() != Some(shape))
    }
}

impl PipelineBuilder {
    pub(crate) fn new(name: &str, jobs: Option<ListedJobs>) -> Self {
        Self(Arc::new(Mutex::new(State {
            spec: GraphSpec {
                name: name.to_owned(),
                display_name: None,
                description: None,
                tags: Vec::new(),
                strategy: crate::graph::spec::Strategy::Halt,
                deadline_ms: None,
                asynchronous_commit: false,
                steps: Vec::new(),
                callbacks: Vec::new(),
                output: Vec::new(),
                output_shape: None,
            },
            numbers: HashMap::new(),
            params: Vec::new(),
            callback_params: Vec::new(),
            problems: Vec::new(),
            jobs,
            phase: 0,
            barrier: None,
            barriers: 0,
            arms: Vec::new(),
        })))
    }

    /// Declares a step that takes no value: it starts at once, or with its phase.
    pub fn step<J>(&self, key: &str, job: J) -> Step<J::Output>
    where
        J: Perform<Input: NoInput>,
    {
        self.add(key, &job, Upstream::none())
    }

    /// Declares a branch whose deciding job takes no value: what the job returns chooses the arm that runs.
    ///
    /// Options and strategy that are set on the returned handle are those of the deciding job, and
    /// [`after_failure`](Self::after_failure) of the handle waits for its failure.
    pub fn branch<J, A>(&self, key: &str, job: J, arms: A) -> A::Output
    where
        J: Perform<Input: NoInput, Output: Branch>,
        A: Arms<Of = J::Output>,
    {
        super::branch::declare(self, key, &job, Upstream::none(), arms)
    }

    /// Names the steps whose values the next step takes: one handle, a tuple of up to 12, or a slice of steps with
    /// equal types.
    ///
    /// `p.after((&a, &b)).step("key", job)` declares the step; `.branch(..)` declares a branch; `.following(&c)` adds
    /// steps whose values it does not take.
    pub fn after<U: Upstreams>(&self, upstreams: U) -> After<U> {
        After::new(self.clone(), upstreams)
    }

    /// Names the steps that the next step runs after without taking their values.
    ///
    /// `p.following(&a).step("key", job)` declares the step; `.branch(..)` declares a branch.
    pub fn following<U: Upstreams>(&self, upstreams: U) -> Following {
        Following::new(self.clone(), &upstreams)
    }

    /// Names the step whose failure the next step runs after; of a branch, that of its deciding job.
    ///
    /// `p.after_failure(&a).step("key", job)` declares the step, whose job takes the [`Failure`](super::Failure) or
    /// nothing. If the upstream step does not fail, the step is skipped as an arm that was not chosen. After a
    /// [`barrier`](Self::barrier) it waits until all steps before the barrier have ended.
    pub fn after_failure<H: Handle>(&self, of: H) -> AfterFailure {
        AfterFailure::new(self.clone(), &of)
    }

    /// Names steps of which the first to succeed gives the next step its input.
    ///
    /// `p.after_any([&a, &b]).step("key", job)` declares the step.
    pub fn after_any<T: 'static>(
        &self,
        of: impl IntoIterator<Item: Borrow<Step<T>>>,
    ) -> AfterAny<T> {
        AfterAny::new(self.clone(), of)
    }

    /// Splits the pipeline into phases: steps declared after the barrier start when all steps declared before it have
    /// ended.
    pub fn barrier(&self) {
        let mut state = self.0.lock();
        state.barriers += 1;
        let key = barrier_key(state.barriers);
        let after = state.spec.steps[state.phase..]
            .iter()
            .map(|step| order(&step.key))
            .collect();
        let arm = state.arms.last().cloned();
        state.push(
            StepSpec {
                key: key.clone(),
                kind: StepKind::Barrier,
                after,
                input: None,
                join: Join::All,
                strategy: None,
                optional: false,
                arm,
                options: None,
            },
            None,
        );
        state.phase = state.spec.steps.len();
        state.barrier = Some(key);
    }

    /// Sets the failure strategy of all steps that have none of their own; [`Halt`](super::Halt) by default.
    pub fn failure_strategy<S: FailureStrategy>(&self, _: S) {
        self.0.lock().spec.strategy = S::STRATEGY;
    }

    /// Fires this job when a run has ended, whatever its status.
    pub fn on_complete<J: Perform<Input: RunInput>>(&self, job: J) {
        self.callback(CallbackOn::Complete, &job);
    }

    /// Fires this job when a run has succeeded.
    pub fn on_success<J: Perform<Input: RunInput>>(&self, job: J) {
        self.callback(CallbackOn::Success, &job);
    }

    /// Fires this job when a run has failed or was halted.
    pub fn on_failure<J: Perform<Input: RunInput>>(&self, job: J) {
        self.callback(CallbackOn::Failure, &job);
    }

    /// Sets how long a run may take from its start, in each round.
    pub fn deadline(&self, limit: Duration) {
        self.0.lock().spec.deadline_ms = Some(millis(limit));
    }

    /// Lets advances in which no run ends commit without waiting until the database has them on disk
    /// (Postgres: `synchronous_commit = off`), which makes short steps faster.
    ///
    /// If the database *server* crashes, the last such advances, usually those of less than a second, may be
    /// lost; a failover loses what the standby had not received, also a synchronous standby. Their steps then run
    /// again, also steps whose downstream steps had already begun. A worker that survives the crash hands such a step
    /// back at no cost. If the worker dies too, or if the step had run for more than 15 minutes, the step loses an
    /// attempt: give it at least two. The end of a run is always on disk before anybody is told of it.
    pub fn asynchronous_commit(&self) {
        self.0.lock().spec.asynchronous_commit = true;
    }

    /// Sets the name that people read, such as the heading of a drawing.
    pub fn display_name(&self, name: impl Into<String>) {
        self.0.lock().spec.display_name = Some(name.into());
    }

    /// Sets the description of the pipeline.
    pub fn description(&self, text: impl Into<String>) {
        self.0.lock().spec.description = Some(text.into());
    }

    /// Adds a tag to every run, to find the runs by.
    pub fn tag(&self, tag: impl Into<String>) {
        self.0.lock().spec.tags.push(tag.into());
    }

    fn callback<J: Perform>(&self, on: CallbackOn, job: &J) {
        let mut state = self.0.lock();
        let place = Place::Callback(state.spec.callbacks.len() + 1);
        let params = state.encode(&place, job);
        state.callback_params.push(params);
        state.spec.callbacks.push(CallbackSpec {
            on,
            job: J::NAME.to_owned(),
            version: J::VERSION,
            options: resolved(&J::OPTIONS),
        });
    }

    pub(crate) fn add<J: Perform>(
        &self,
        key: &str,
        job: &J,
        upstream: Upstream,
    ) -> Step<J::Output> {
        let kind = StepKind::Job {
            job: J::NAME.to_owned(),
            version: J::VERSION,
        };
        self.add_kind(key, job, kind, upstream)
    }

    pub(crate) fn add_kind<J: Job, T: 'static>(
        &self,
        key: &str,
        job: &J,
        kind: StepKind,
        upstream: Upstream,
    ) -> Step<T> {
        let mut state = self.0.lock();
        let params = state.encode(&Place::Step(key.to_owned()), job);
        let arm = state.arms.last().cloned();
        let input = upstream.shape_to_store();
        let join = upstream.join;
        let edges = state.edges(key, upstream);
        let node = state.push(
            StepSpec {
                key: key.to_owned(),
                kind,
                after: edges,
                input,
                join,
                strategy: None,
                optional: false,
                arm,
                options: Some(resolved(&J::OPTIONS)),
            },
            Some(params),
        );
        drop(state);
        Step::at(self.clone(), node)
    }

    /// Adds a node that the coordinator resolves.
    pub(crate) fn add_resolved<T: 'static>(
        &self,
        key: String,
        kind: StepKind,
        after: Vec<Edge>,
    ) -> Step<T> {
        let mut state = self.0.lock();
        let arm = state.arms.last().cloned();
        let node = state.push(
            StepSpec {
                key,
                kind,
                after,
                input: None,
                join: Join::All,
                strategy: None,
                optional: false,
                arm,
                options: None,
            },
            None,
        );
        drop(state);
        Step::at(self.clone(), node)
    }

    pub(crate) fn enter(&self, arm: ArmRef) {
        self.0.lock().arms.push(arm);
    }

    pub(crate) fn leave(&self) {
        self.0.lock().arms.pop();
    }

    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn name(&self) -> String {
        self.0.lock().spec.name.clone()
    }

    pub(crate) fn key(&self, node: usize) -> String {
        self.0
            .lock()
            .spec
            .steps
            .get(node)
            .map(|step| step.key.clone())
            .unwrap_or_default()
    }

    pub(crate) fn change(&self, node: usize, change: impl FnOnce(&mut StepSpec)) {
        if let Some(step) = self.0.lock().spec.steps.get_mut(node) {
            change(step);
        }
    }
}

impl State {
    fn push(&mut self, step: StepSpec, params: Option<String>) -> usize {
        self.numbers.insert(step.key.clone(), self.spec.steps.len());
        self.spec.steps.push(step);
        self.params.push(params);
        self.spec.steps.len() - 1
    }

    /// Encodes a job's data, and checks that a named pipeline lists the job.
    fn encode<J: Job>(&mut self, place: &Place, job: &J) -> String {
        let listed = self.jobs.filter(|jobs| !(jobs.contains)(J::NAME));
        if let Some(jobs) = listed {
            self.problems.push(DeclarationError::JobNotListed {
                place: place.clone(),
                job: J::NAME,
                job_type: std::any::type_name::<J>(),
                pipeline: jobs.pipeline,
            });
        }
        jobs::encode::to_string(job).unwrap_or_else(|error| {
            self.problems.push(DeclarationError::NotEncodable {
                place: place.clone(),
                job: J::NAME,
                reason: error.to_string(),
            });
            "null".to_owned()
        })
    }

    /// Returns the edges of a step, with those that its phase and its arm add. Handles of another pipeline are
    /// reported.
    fn edges(&mut self, step: &str, upstream: Upstream) -> Vec<Edge> {
        let mut edges = Vec::with_capacity(upstream.links.len());
        for Link { edge, foreign } in upstream.links {
            if let Some(handle) = foreign {
                self.problems.push(DeclarationError::ForeignHandle {
                    step: step.to_owned(),
                    handle: handle.step,
                    key: edge.step.clone(),
                    other: handle.pipeline,
                });
            }
            edges.push(edge);
        }
        self.with_gates(edges, upstream.join)
    }

    /// Adds the edges that hold a step back until its phase or its arm starts.
    ///
    /// A step without an upstream step in its phase waits for the barrier before the phase; a step after a failure
    /// waits for any end of that barrier. A step without an upstream step in its arm waits for the branch. A step that
    /// waits for any of its upstream steps gets no edge: validation checks that all of them are in its phase and arm.
    fn with_gates(&self, mut after: Vec<Edge>, join: Join) -> Vec<Edge> {
        // A value that is taken twice is two elements of the input.
        let mut known = HashSet::with_capacity(after.len());
        let is_input = |edge: &Edge| join == Join::All && edge.takes.is_input();
        after.retain(|edge| is_input(edge) || known.insert(edge.clone()));
        if join == Join::Any {
            return after;
        }
        let number = |edge: &Edge| self.numbers.get(&edge.step).copied();
        if let Some(arm) = self.arms.last() {
            let in_arm = |edge: &Edge| {
                number(edge).is_some_and(|no| self.spec.steps[no].arm.as_ref() == Some(arm))
            };
            if !after.iter().any(in_arm) && !after.iter().any(|edge| edge.step == arm.branch) {
                after.push(order(&arm.branch));
            }
        }
        if let Some(barrier) = &self.barrier {
            let in_phase = |edge: &Edge| number(edge).is_some_and(|no| no >= self.phase);
            if !after.iter().any(in_phase) {
                let is_error_path = after.iter().any(|edge| edge.takes == Takes::Failure);
                after.push(Edge {
                    step: barrier.clone(),
                    takes: if is_error_path {
                        Takes::Ended
                    } else {
                        Takes::Order
                    },
                });
            }
        }
        after
    }
}

impl fmt::Debug for PipelineBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.0.lock();
        f.debug_struct("PipelineBuilder")
            .field("name", &state.spec.name)
            .field("steps", &state.spec.steps.len())
            .finish()
    }
}

pub(crate) fn order(key: &str) -> Edge {
    Edge {
        step: key.to_owned(),
        takes: Takes::Order,
    }
}

pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn resolved(options: &JobOptions) -> StepOptions {
    StepOptions {
        queue: options.queue.to_owned(),
        priority: options.priority,
        max_attempts: options.max_attempts,
        timeout_ms: options.timeout.map(millis),
        lease_ms: millis(options.lease),
        backoff: options.backoff,
        delay_ms: 0,
    }
}
