//! The plan of a start: one group of runs for each statement.

use std::collections::BTreeMap;
use std::ops::Range;

use jobs::extension::Demand;
use jobs::extension::limits;
use sha2::{Digest as _, Sha256};

use super::new_run::{NewRun, step_size};
use super::rows::{Json, RunRow, StepRow};
use crate::{Error, Result};

/// The maximum number of steps in one statement with several runs. A single run may have more.
const MAX_STATEMENT_STEPS: usize = 50_000;
/// The maximum number of steps in one call.
const MAX_CALL_STEPS: usize = 1_000_000;
/// The maximum number of edges between chained runs in one call.
const MAX_CALL_EDGES: usize = 1_000_000;

/// A checked start, split into statements.
pub(super) struct StartPlan<'a> {
    /// The groups of the first stage.
    pub(super) first: Vec<Group<'a>>,
    /// The groups of the later stages, which are chained to the first.
    pub(super) rest: Vec<Group<'a>>,
    pub(super) count: usize,
    /// A random number for each run, by which the database distinguishes a start that is sent again from
    /// another run with the same id.
    pub(super) nonces: Vec<i64>,
    /// The number of runs in each stage.
    pub(super) stages: Vec<usize>,
    pub(super) after: &'a [i64],
    pub(super) has_keys: bool,
}

impl<'a> StartPlan<'a> {
    /// Checks all runs and splits them into groups.
    pub(super) fn of(
        stages: &'a [Vec<NewRun>],
        after: &'a [i64],
        bytes: limits::Bytes,
    ) -> Result<Self> {
        let runs = || stages.iter().flatten();
        let at_most = |what, count, limit| match count {
            count if count > limit => Err(Error::TooMany { what, count, limit }),
            _ => Ok(()),
        };
        let steps = runs().map(|run| run.pipeline.graph().len()).sum();
        at_most("steps", steps, MAX_CALL_STEPS)?;
        at_most(
            "edges between chained runs",
            edges(stages, after),
            MAX_CALL_EDGES,
        )?;
        runs().try_for_each(NewRun::check)?;
        let size: usize = runs().map(NewRun::size).sum();
        if size > bytes.call {
            let limit = bytes.call;
            return Err(Error::TooManyBytes { size, limit });
        }
        for (at, stage) in stages.iter().enumerate() {
            let keyed = stage.iter().find(|run| run.key.is_some());
            if let (Some(run), true) = (keyed, at > 0 || !after.is_empty()) {
                return Err(Error::KeyInChain {
                    pipeline: run.pipeline.name().to_owned(),
                    key: run.key.clone().unwrap_or_default(),
                });
            }
        }
        let has_rest = stages.iter().skip(1).any(|stage| !stage.is_empty());
        let first = stages.first().map_or(&[][..], Vec::as_slice);
        let keyed = first.iter().find(|run| run.key.is_some());
        let unkeyed = first.iter().find(|run| run.key.is_none());
        if let (true, Some(run), Some(without)) = (has_rest, keyed, unkeyed) {
            return Err(Error::KeyMissing {
                pipeline: without.pipeline.name().to_owned(),
                other: run.pipeline.name().to_owned(),
                key: run.key.clone().unwrap_or_default(),
            });
        }
        let chain = (has_rest && keyed.is_some()).then(|| chain_hash(stages));
        let page = bytes.page;
        let count = runs().count();
        Ok(Self {
            has_keys: keyed.is_some(),
            first: Group::of(stages, 0..1, !after.is_empty(), chain.as_deref(), page),
            rest: Group::of(stages, 1..stages.len(), true, None, page),
            count,
            nonces: std::iter::repeat_with(|| fastrand::i64(..))
                .take(count)
                .collect(),
            stages: stages.iter().map(Vec::len).collect(),
            after,
        })
    }

    /// Returns the group of a start that is a single statement, which is atomic without a transaction.
    pub(super) fn only_statement(&self) -> Option<&Group<'a>> {
        let mut groups = self.groups();
        let only = groups.next().filter(|group| group.more.is_empty())?;
        (groups.next().is_none() && self.after.is_empty()).then_some(only)
    }

    pub(super) fn groups(&self) -> impl Iterator<Item = &Group<'a>> {
        self.first.iter().chain(&self.rest)
    }

    /// Returns the job types and queues of all steps and callbacks, for which live workers are needed.
    pub(super) fn demands(&self) -> impl Iterator<Item = Demand<'_>> {
        self.groups().flat_map(|group| {
            let steps = group.graph.nodes().filter_map(|node| {
                let (job_type, version) = node.job()?;
                Some(Demand {
                    job_type,
                    version,
                    queue: &node.options()?.queue,
                    is_owned: true,
                })
            });
            let callbacks = group.graph.spec().callbacks.iter();
            steps.chain(callbacks.map(|callback| Demand {
                job_type: &callback.job,
                version: callback.version,
                queue: &callback.options.queue,
                is_owned: false,
            }))
        })
    }

    /// Returns the edges between the runs, as upstream and downstream ids: each run of a stage comes after all
    /// runs of the previous stage.
    pub(super) fn chains(&self, ids: &[i64]) -> (Vec<i64>, Vec<i64>) {
        let (mut ups, mut downs) = (Vec::new(), Vec::new());
        let mut before = self.after;
        let mut rest = ids;
        for (at, count) in self.stages.iter().enumerate() {
            let (stage, after) = rest.split_at(*count);
            for down in stage {
                for up in before {
                    ups.push(*up);
                    downs.push(*down);
                }
            }
            if !stage.is_empty() || at == 0 {
                before = stage;
            }
            rest = after;
        }
        (ups, downs)
    }
}

/// Returns the number of edges between chained runs.
fn edges(stages: &[Vec<NewRun>], after: &[i64]) -> usize {
    let mut before = after.len();
    let mut edges = 0_usize;
    for stage in stages.iter().filter(|stage| !stage.is_empty()) {
        edges = edges.saturating_add(before.saturating_mul(stage.len()));
        before = stage.len();
    }
    edges
}

/// Returns a hash of all runs of a chain. A key identifies the whole chain, not only the params of its run.
fn chain_hash(stages: &[Vec<NewRun>]) -> Vec<u8> {
    let mut hash = Sha256::new();
    for stage in stages.iter().filter(|stage| !stage.is_empty()) {
        hash.update((stage.len() as u64).to_le_bytes());
        for run in stage {
            for text in [run.pipeline.name(), run.key.as_deref().unwrap_or_default()] {
                hash.update((text.len() as u64).to_le_bytes());
                hash.update(text);
            }
            hash.update(run.params_hash());
        }
    }
    hash.finalize().to_vec()
}

/// Runs of one graph that one statement starts.
pub(super) struct Group<'a> {
    pub(super) graph: &'a crate::Graph,
    /// The positions of the runs in the call.
    pub(super) at: Vec<usize>,
    /// Whether the runs wait in a chain.
    pub(super) is_chained: bool,
    /// The runs without their ids and nonces, which [`rows`](Self::rows) fills in.
    runs: Vec<RunRow<'a>>,
    /// The params of the steps of the first statement, run after run.
    steps: Vec<Option<&'a str>>,
    /// The remaining steps of a run that is too large for one statement: for each further statement, the number
    /// of its first step, and the params of its steps.
    pub(super) more: Vec<(usize, Vec<Option<&'a str>>)>,
    size: usize,
}

impl<'a> Group<'a> {
    fn of(
        stages: &'a [Vec<NewRun>],
        which: Range<usize>,
        is_chained: bool,
        chain: Option<&[u8]>,
        page: usize,
    ) -> Vec<Self> {
        let before: usize = stages.iter().take(which.start).map(Vec::len).sum();
        let runs = stages.get(which).unwrap_or_default().iter().flatten();
        let mut shapes: BTreeMap<_, Vec<(usize, &NewRun)>> = BTreeMap::new();
        for (at, run) in runs.enumerate() {
            let shape = shapes.entry(run.pipeline.graph().fingerprint());
            shape.or_default().push((before + at, run));
        }
        let mut groups: Vec<Self> = Vec::new();
        for mut runs in shapes.into_values() {
            // Sorted by key across all statements, as `start_runs_v1` sorts within one: starts with the same keys
            // lock them in the same order.
            runs.sort_by_key(|(_, run)| run.key.as_deref());
            let mut is_first = true;
            for (at, run) in runs {
                let has_room = |group: &&mut Self| {
                    !is_first
                        && group.steps.len() < MAX_STATEMENT_STEPS
                        && group.size + run.size() <= page
                };
                match groups.last_mut().filter(has_room) {
                    Some(group) => group.add(at, run, chain),
                    None => {
                        let mut group = Self::new(run.pipeline.graph(), is_chained);
                        group.add(at, run, chain);
                        groups.push(group);
                    }
                }
                is_first = false;
            }
        }
        for group in &mut groups {
            group.cut(page);
        }
        groups
    }

    /// Moves the steps that exceed the page size to further statements. Only a group of one run can exceed it.
    fn cut(&mut self, page: usize) {
        if self.at.len() != 1 || self.size <= page {
            return;
        }
        let mut room =
            page.saturating_sub(self.size - self.steps.iter().map(step_size).sum::<usize>());
        let mut pages: Vec<(usize, Vec<Option<&'a str>>)> = vec![(0, Vec::new())];
        for (no, step) in std::mem::take(&mut self.steps).into_iter().enumerate() {
            let size = step_size(&step);
            if size > room {
                pages.push((no, Vec::new()));
                room = page;
            }
            room = room.saturating_sub(size);
            if let Some((_, steps)) = pages.last_mut() {
                steps.push(step);
            }
        }
        let mut pages = pages.into_iter();
        self.steps = pages.next().map(|(_, steps)| steps).unwrap_or_default();
        self.more = pages.collect();
    }

    fn new(graph: &'a crate::Graph, is_chained: bool) -> Self {
        Self {
            graph,
            is_chained,
            at: Vec::new(),
            runs: Vec::new(),
            steps: Vec::new(),
            more: Vec::new(),
            size: 0,
        }
    }

    fn add(&mut self, at: usize, run: &'a NewRun, chain: Option<&[u8]>) {
        let pipeline = &run.pipeline;
        let callbacks = pipeline.callback_params();
        self.at.push(at);
        self.size += run.size();
        self.runs.push(RunRow {
            id: 0,
            nonce: 0,
            rerun_of: None,
            event_level: run.event_level,
            key: run.key.as_deref(),
            params_hash: run.key.as_ref().map(|_| match chain {
                Some(chain) => [run.params_hash(), chain.to_vec()].concat(),
                None => run.params_hash(),
            }),
            actor: run.actor.as_deref(),
            params: pipeline.own_params().map(Json::from),
            callbacks: (!callbacks.is_empty())
                .then(|| Json(format!("[{}]", callbacks.join(",")).into())),
            tags: (!run.tags.is_empty()).then_some(run.tags.as_slice()),
        });
        // Params are in the order of declaration; rows are in the order of the graph's step numbers.
        let declared = pipeline.params();
        self.steps.extend(
            pipeline
                .graph()
                .nodes()
                .map(|node| declared.get(node.declared()).and_then(Option::as_deref)),
        );
    }

    /// Returns the rows of the first statement, with these ids and nonces of all runs of the call.
    pub(super) fn rows(&self, ids: &[i64], nonces: &[i64]) -> (Vec<RunRow<'a>>, Vec<StepRow<'a>>) {
        let with_id = |(row, at): (&RunRow<'a>, &usize)| RunRow {
            id: ids[*at],
            nonce: nonces[*at],
            ..row.clone()
        };
        let runs: Vec<_> = self.runs.iter().zip(&self.at).map(with_id).collect();
        let mut steps = Vec::with_capacity(self.steps.len());
        for (row, params) in runs.iter().zip(self.steps.chunks(self.graph.len().max(1))) {
            steps.extend(self.step_rows(row.id, 0, params));
        }
        (runs, steps)
    }

    /// Returns the rows of consecutive steps of one run.
    pub(super) fn step_rows<'b>(
        &'b self,
        run: i64,
        from: usize,
        params: &'b [Option<&'a str>],
    ) -> impl Iterator<Item = StepRow<'a>> + 'b {
        let nodes = self.graph.nodes().skip(from);
        // A graph has at most 100,000 steps.
        let number = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
        nodes.zip(params).map(move |(node, params)| StepRow {
            run,
            token: None,
            no: number(node.no() as usize),
            waits: number(node.upstream().len()),
            params: params.map(Json::from),
        })
    }
}
