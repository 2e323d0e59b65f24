//! The pipeline while it is being declared.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use jobs::{Job, JobOptions, Perform};
use parking_lot::Mutex;

use super::after::{After, AfterAny, AfterFailure, Following, Upstreams};
use super::branch::{Arms, Branch};
use super::callback::RunInput;
use super::feeds::NoInput;
use super::handle::{Handle, Step};
use super::strategy::FailureStrategy;
use crate::graph::spec::{
    ArmRef, CallbackOn, CallbackSpec, Edge, GraphSpec, Join, Shape, StepKind, StepOptions,
    StepSpec, Takes,
};
use crate::graph::{DeclarationError, barrier_key};

/// The pipeline while it is being declared: what the closure of
/// [`Pipeline::configure`](super::Pipeline::configure) is given.
///
/// What comes before stands before: a step that takes nothing begins with `p.step`, one that takes
/// the output of others with [`then`](Step::then) or [`after`](Self::after).
#[derive(Clone)]
pub struct Plan(pub(crate) Arc<Mutex<State>>);

/// What has been declared so far.
pub(crate) struct State {
    pub(crate) spec: GraphSpec,
    /// Where the step of a key is; of several, the last.
    places: HashMap<String, usize>,
    /// The params of each step, in the order of the steps; those that are no job have none.
    pub(crate) params: Vec<Option<String>>,
    pub(crate) callback_params: Vec<String>,
    pub(crate) problems: Vec<DeclarationError>,
    /// The first step of the current phase, and the barrier before it.
    phase: usize,
    barrier: Option<String>,
    barriers: usize,
    /// The arms we are in, the innermost last.
    arms: Vec<ArmRef>,
}

/// What a step comes after, and how what it takes lies in its input.
#[derive(Debug)]
pub(crate) struct Before {
    pub(crate) edges: Vec<Edge>,
    /// `None`: as follows from the edges.
    pub(crate) shape: Option<Shape>,
    pub(crate) join: Join,
}

impl Before {
    pub(crate) fn all(edges: Vec<Edge>) -> Self {
        Self {
            edges,
            shape: None,
            join: Join::All,
        }
    }

    pub(crate) fn any(edges: Vec<Edge>) -> Self {
        Self {
            join: Join::Any,
            ..Self::all(edges)
        }
    }

    /// The shape, where it does not follow from the edges.
    fn shape_to_store(&self) -> Option<Shape> {
        let taking = self.edges.iter().filter(|edge| edge.takes.is_input());
        let follows = Shape::of(taking.count());
        self.shape
            .clone()
            .filter(|shape| follows.as_ref() != Some(shape))
    }
}

impl Plan {
    pub(crate) fn new(name: &str) -> Self {
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
            places: HashMap::new(),
            params: Vec::new(),
            callback_params: Vec::new(),
            problems: Vec::new(),
            phase: 0,
            barrier: None,
            barriers: 0,
            arms: Vec::new(),
        })))
    }

    /// A step that takes nothing: it starts at once, or when its phase does.
    pub fn step<J>(&self, key: &str, job: J) -> Step<J::Output>
    where
        J: Perform<Input: NoInput>,
    {
        self.add(key, &job, Before::all(Vec::new()))
    }

    /// A step that takes nothing and chooses one of the arms by what it returns.
    pub fn branch<J, A>(&self, key: &str, job: J, arms: A) -> A::Output
    where
        J: Perform<Input: NoInput, Output: Branch>,
        A: Arms<Of = J::Output>,
    {
        super::branch::declare(self, key, &job, Before::all(Vec::new()), arms)
    }

    /// Steps that take the outputs of these: one handle, a tuple of up to 12, or a slice of equal
    /// ones.
    pub fn after<U: Upstreams>(&self, upstreams: U) -> After<U> {
        After::new(self.clone(), upstreams)
    }

    /// Steps that come after these and take nothing from them: order only.
    pub fn following<U: Upstreams>(&self, upstreams: U) -> Following {
        Following::new(self.clone(), &upstreams)
    }

    /// Steps that run if this one fails for good; they may take the failure. If it ends otherwise,
    /// they are left out as by a branch. Behind a [`barrier`](Self::barrier) they wait until all steps before it
    /// have ended.
    pub fn after_failure<H: Handle>(&self, of: &H) -> AfterFailure {
        AfterFailure::new(self.clone(), of)
    }

    /// Steps that run as soon as the first of these has succeeded, and take its output.
    pub fn after_any<'a, T: 'static>(
        &self,
        of: impl IntoIterator<Item = &'a Step<T>>,
    ) -> AfterAny<T> {
        AfterAny::new(self.clone(), of)
    }

    /// Splits the pipeline into phases: what is declared from here on starts when all that was
    /// declared before has ended.
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

    /// What a failed step means that says nothing itself; [`Halt`](super::Halt) by default.
    pub fn failure_strategy<S: FailureStrategy>(&self, _: S) {
        self.0.lock().spec.strategy = S::STRATEGY;
    }

    /// Fires this job when a run has ended, however it did.
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

    /// How long a run may take.
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

    /// What people call it.
    pub fn display_name(&self, name: impl Into<String>) {
        self.0.lock().spec.display_name = Some(name.into());
    }

    /// What it is for.
    pub fn description(&self, text: impl Into<String>) {
        self.0.lock().spec.description = Some(text.into());
    }

    /// A word to find its runs by.
    pub fn tag(&self, tag: impl Into<String>) {
        self.0.lock().spec.tags.push(tag.into());
    }

    fn callback<J: Perform>(&self, on: CallbackOn, job: &J) {
        let mut state = self.0.lock();
        let params = state.encode(&format!("callback {on:?}"), job);
        state.callback_params.push(params);
        state.spec.callbacks.push(CallbackSpec {
            on,
            job: J::NAME.to_owned(),
            version: J::VERSION,
            options: resolved(&J::OPTIONS),
        });
    }

    pub(crate) fn add<J: Perform>(&self, key: &str, job: &J, before: Before) -> Step<J::Output> {
        let kind = StepKind::Job {
            job: J::NAME.to_owned(),
            version: J::VERSION,
        };
        self.add_kind(key, job, kind, before)
    }

    pub(crate) fn add_kind<J: Job, T: 'static>(
        &self,
        key: &str,
        job: &J,
        kind: StepKind,
        before: Before,
    ) -> Step<T> {
        let mut state = self.0.lock();
        let params = state.encode(key, job);
        let arm = state.arms.last().cloned();
        let input = before.shape_to_store();
        let after = state.with_gates(before.edges, before.join);
        let at = state.push(
            StepSpec {
                key: key.to_owned(),
                kind,
                after,
                input,
                join: before.join,
                strategy: None,
                optional: false,
                arm,
                options: Some(resolved(&J::OPTIONS)),
            },
            Some(params),
        );
        drop(state);
        Step::at(self.clone(), at)
    }

    /// A node that the coordinator resolves.
    pub(crate) fn add_resolved<T: 'static>(
        &self,
        key: String,
        kind: StepKind,
        after: Vec<Edge>,
    ) -> Step<T> {
        let mut state = self.0.lock();
        let arm = state.arms.last().cloned();
        let at = state.push(
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
        Step::at(self.clone(), at)
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

    pub(crate) fn key(&self, at: usize) -> String {
        self.0
            .lock()
            .spec
            .steps
            .get(at)
            .map(|step| step.key.clone())
            .unwrap_or_default()
    }

    pub(crate) fn report(&self, error: DeclarationError) {
        self.0.lock().problems.push(error);
    }

    pub(crate) fn change(&self, at: usize, change: impl FnOnce(&mut StepSpec)) {
        if let Some(step) = self.0.lock().spec.steps.get_mut(at) {
            change(step);
        }
    }
}

impl State {
    fn push(&mut self, step: StepSpec, params: Option<String>) -> usize {
        self.places.insert(step.key.clone(), self.spec.steps.len());
        self.spec.steps.push(step);
        self.params.push(params);
        self.spec.steps.len() - 1
    }

    fn encode<J: Job>(&mut self, step: &str, job: &J) -> String {
        serde_json::to_string(job).unwrap_or_else(|error| {
            self.problems.push(DeclarationError::NotEncodable {
                step: step.to_owned(),
                job: J::NAME,
                reason: error.to_string(),
            });
            "null".to_owned()
        })
    }

    /// A step that nothing of its phase comes before waits for the barrier (a step after a failure for any end
    /// of the barrier); one that nothing of its arm comes before waits for the branch. Where any upstream is enough, none can be added: there
    /// all must lie inside, which is judged with the rest of the graph.
    fn with_gates(&self, mut after: Vec<Edge>, join: Join) -> Vec<Edge> {
        // What is taken twice is two values, where there are several.
        let mut known = HashSet::with_capacity(after.len());
        let is_input = |edge: &Edge| join == Join::All && edge.takes.is_input();
        after.retain(|edge| is_input(edge) || known.insert(edge.clone()));
        if join == Join::Any {
            return after;
        }
        let place = |edge: &Edge| self.places.get(&edge.step).copied();
        if let Some(arm) = self.arms.last() {
            let in_arm = |edge: &Edge| {
                place(edge).is_some_and(|at| self.spec.steps[at].arm.as_ref() == Some(arm))
            };
            if !after.iter().any(in_arm) && !after.iter().any(|edge| edge.step == arm.branch) {
                after.push(order(&arm.branch));
            }
        }
        if let Some(barrier) = &self.barrier {
            let in_phase = |edge: &Edge| place(edge).is_some_and(|at| at >= self.phase);
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

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.0.lock();
        f.debug_struct("Plan")
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
        attempts: options.max_attempts,
        timeout_ms: options.timeout.map(millis),
        lease_ms: millis(options.lease),
        backoff: options.backoff,
        delay_ms: 0,
    }
}
