//! The compiled graph: validated, numbered, every question about a step answered.

use std::collections::HashSet;
use std::sync::OnceLock;

use super::fingerprint::Fingerprint;
use super::invalid::Invalid;
use super::lists::Lists;
use super::spec::{GraphSpec, Join, Shape, StepKind, StepOptions, StepSpec, Strategy, Takes};
use super::validate::{self, Found};

/// A graph that can run.
///
/// # Numbers
///
/// Every node has a number, from 0 on, and comes after all it depends on: of the nodes that could
/// come next, it is always the one that was declared first. So the numbers follow the declaration
/// wherever it names a step only after declaring it, as code always does; and the same declaration
/// always gets the same numbers.
///
/// # Edges
///
/// Besides those that were declared there are the edges of barriers and merges: a barrier comes after
/// every node of its phase (and after the barrier before, if an error path waits for that one), a node comes
/// after the barrier before its phase unless it comes after another node of it, and a merge comes after its branch, the nodes whose values it passes on, and
/// the last nodes of the arms.
///
/// A node that takes from another twice has two edges [upstream](Node::upstream), one for each value of
/// its input; it waits for one end, and is [downstream](Node::downstream) of the other once.
#[derive(Debug, Clone)]
pub struct Graph {
    spec: GraphSpec,
    nodes: Vec<Compiled>,
    upstream: Lists<Upstream>,
    downstream: Lists<Downstream>,
    /// For each arm that has steps, the arms around it and itself, outermost first.
    chains: Lists<Arm>,
    roots: Vec<u32>,
    children: Vec<(u32, Graph)>,
    by_key: OnceLock<Vec<u32>>,
    fingerprint: OnceLock<Fingerprint>,
}

#[derive(Debug, Clone)]
struct Compiled {
    declared: u32,
    waits: u32,
    phase: u32,
    chain: Option<u32>,
    strategy: Strategy,
    is_exempt_from_halt: bool,
}

/// What a node comes after, and what it takes from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Upstream {
    /// The number of the node before.
    pub no: u32,
    /// What is taken from it.
    pub takes: Takes,
}

/// What comes after a node, and what it takes from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Downstream {
    /// The number of the node after.
    pub no: u32,
    /// What it takes.
    pub takes: Takes,
}

/// An arm of a branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Arm {
    /// The number of the branch.
    pub branch: u32,
    /// Which of its arms; the first is 0.
    pub index: u32,
}

impl Graph {
    /// Validates a graph and numbers it.
    ///
    /// # Errors
    ///
    /// [`Invalid`] holds everything that is wrong with it.
    pub fn compile(spec: GraphSpec) -> Result<Self, Invalid> {
        let found = validate::check(&spec)?;
        Self::from_found(spec, found)
    }

    fn from_found(spec: GraphSpec, found: Found) -> Result<Self, Invalid> {
        let mut no_of = vec![0; found.order.len()];
        for (no, &declared) in (0..).zip(&found.order) {
            no_of[declared as usize] = no;
        }
        let upstream = upstream(&found, &no_of);
        let children = children(&spec, &found, &no_of)?;
        Ok(Self {
            nodes: nodes(&found, &upstream),
            downstream: downstream(&found, &upstream),
            chains: chains(&found, &no_of),
            roots: roots(&upstream),
            upstream,
            children,
            spec,
            by_key: OnceLock::new(),
            fingerprint: OnceLock::new(),
        })
    }

    /// The graph as it was declared.
    pub fn spec(&self) -> &GraphSpec {
        &self.spec
    }

    /// The pipeline's name.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// How many nodes there are, barriers and merges included; at least one.
    #[allow(clippy::len_without_is_empty, reason = "a graph is never empty")]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The nodes, by number.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = Node<'_>> + DoubleEndedIterator {
        (0..self.nodes.len() as u32).map(|no| Node { graph: self, no })
    }

    /// The node with that number.
    pub fn node(&self, no: u32) -> Option<Node<'_>> {
        ((no as usize) < self.nodes.len()).then_some(Node { graph: self, no })
    }

    /// The node with that key.
    pub fn find(&self, key: &str) -> Option<Node<'_>> {
        let by_key = self.by_key.get_or_init(|| {
            let mut numbers: Vec<u32> = (0..self.nodes.len() as u32).collect();
            numbers.sort_unstable_by_key(|no| self.step(*no).key.as_str());
            numbers
        });
        let at = by_key.binary_search_by_key(&key, |no| self.step(*no).key.as_str());
        at.ok().and_then(|at| self.node(by_key[at]))
    }

    /// The numbers of the nodes that come after nothing.
    pub fn roots(&self) -> &[u32] {
        &self.roots
    }

    /// How many phases there are: one more than barriers.
    pub fn phases(&self) -> u32 {
        self.nodes.last().map_or(0, |last| last.phase + 1)
    }

    /// The nodes whose outputs are the pipeline's own.
    pub fn output(&self) -> impl Iterator<Item = Node<'_>> {
        self.spec.output.iter().filter_map(|key| self.find(key))
    }

    /// How these lie in what a run returns: the shape that was declared, else the one that follows
    /// from their number. A pipeline that returns nothing has none.
    pub fn output_shape(&self) -> Option<Shape> {
        let declared = self.spec.output_shape.clone();
        declared.or_else(|| Shape::of(self.spec.output.len()))
    }

    /// What tells apart graphs that behave differently, and only those. What counts is listed in
    /// `docs/graphs/fingerprint.md`.
    pub fn fingerprint(&self) -> Fingerprint {
        *self.fingerprint.get_or_init(|| Fingerprint::of(self))
    }

    fn step(&self, no: u32) -> &StepSpec {
        &self.spec.steps[self.nodes[no as usize].declared as usize]
    }
}

/// Two graphs are equal when they were declared alike.
impl PartialEq for Graph {
    fn eq(&self, other: &Self) -> bool {
        self.spec == other.spec
    }
}

/// A node of a [`Graph`].
#[derive(Clone, Copy)]
pub struct Node<'g> {
    graph: &'g Graph,
    no: u32,
}

impl<'g> Node<'g> {
    fn compiled(self) -> &'g Compiled {
        &self.graph.nodes[self.no as usize]
    }

    /// Its number.
    pub fn no(self) -> u32 {
        self.no
    }

    /// Where it was declared: its place among the graph's steps.
    pub fn declared(self) -> usize {
        self.compiled().declared as usize
    }

    /// The step as it was declared.
    pub fn step(self) -> &'g StepSpec {
        self.graph.step(self.no)
    }

    /// Its key.
    pub fn key(self) -> &'g str {
        &self.step().key
    }

    /// What it is.
    pub fn kind(self) -> &'g StepKind {
        &self.step().kind
    }

    /// The name and the version of its job's type, where it has a job.
    pub fn job(self) -> Option<(&'g str, u32)> {
        match self.kind() {
            StepKind::Job { job, version }
            | StepKind::Branch { job, version, .. }
            | StepKind::Each { job, version, .. } => Some((job, *version)),
            _ => None,
        }
    }

    /// How its job is to be run, if it has one.
    pub fn options(self) -> Option<&'g StepOptions> {
        self.step().options.as_ref()
    }

    /// What it comes after, in the order of its input's elements.
    pub fn upstream(self) -> &'g [Upstream] {
        self.graph.upstream.of(self.no)
    }

    /// What comes after it, by number, each node once; of one that takes from it twice, what it takes
    /// first.
    pub fn downstream(self) -> &'g [Downstream] {
        self.graph.downstream.of(self.no)
    }

    /// For how many ends it waits when a run begins.
    pub fn waits(self) -> u32 {
        self.compiled().waits
    }

    /// How what it takes lies in its input: the shape that was declared, else the one that follows
    /// from its edges. A step that takes nothing has none, nor has a barrier or a merge.
    ///
    /// Its values are those of the [`upstream`](Self::upstream) edges that take something, in their
    /// order; of an any-join, that of the one that succeeded first.
    pub fn shape(self) -> Option<Shape> {
        if matches!(self.kind(), StepKind::Barrier | StepKind::Merge { .. }) {
            return None;
        }
        if let Some(declared) = &self.step().input {
            return Some(declared.clone());
        }
        let taking = self.upstream().iter().filter(|up| up.takes.is_input());
        match self.join() {
            Join::All => Shape::of(taking.count()),
            Join::Any => Shape::of(taking.count().min(1)),
        }
    }

    /// Which of its upstreams it waits for.
    pub fn join(self) -> Join {
        self.step().join
    }

    /// What its failure means: its own strategy, else its pipeline's; Ignore if it is optional; for a
    /// deciding step Continue, where its pipeline says Ignore. A node that cannot fail has Halt.
    pub fn strategy(self) -> Strategy {
        self.compiled().strategy
    }

    /// Whether its failure does not count in the run's status.
    pub fn is_optional(self) -> bool {
        self.step().optional
    }

    /// Whether Halt does not skip it: it comes after a failure, or after nothing but such nodes; or it is a
    /// barrier between a node and one after that node's failure, which waits for it.
    pub fn is_exempt_from_halt(self) -> bool {
        self.compiled().is_exempt_from_halt
    }

    /// Its phase, from 0 on; a barrier has that of the phase it closes.
    pub fn phase(self) -> u32 {
        self.compiled().phase
    }

    /// The arms it stands in, outermost first.
    pub fn arms(self) -> &'g [Arm] {
        self.compiled()
            .chain
            .map_or(&[], |chain| self.graph.chains.of(chain))
    }

    /// The graph that is embedded as this node.
    pub fn child(self) -> Option<&'g Graph> {
        let children = &self.graph.children;
        let at = children.binary_search_by_key(&self.no, |(no, _)| *no);
        at.ok().map(|at| &children[at].1)
    }
}

impl std::fmt::Debug for Node<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node")
            .field("no", &self.no)
            .field("key", &self.key())
            .finish_non_exhaustive()
    }
}

fn upstream(found: &Found, no_of: &[u32]) -> Lists<Upstream> {
    let mut lists = Lists::with_capacity(found.order.len(), found.upstream.total());
    for &declared in &found.order {
        for before in found.upstream.of(declared) {
            lists.push(Upstream {
                no: no_of[before.step as usize],
                takes: before.takes,
            });
        }
        lists.end();
    }
    lists
}

fn downstream(found: &Found, upstream: &Lists<Upstream>) -> Lists<Downstream> {
    let mut downstream = upstream.reversed(
        |before| before.no,
        |no, before| Downstream {
            no,
            takes: before.takes,
        },
    );
    if found.has_repeats {
        downstream.dedup(|one, next| one.no == next.no);
    }
    downstream
}

/// How many nodes there are in these edges.
fn distinct(before: &[Upstream]) -> usize {
    before.iter().map(|up| up.no).collect::<HashSet<_>>().len()
}

fn roots(upstream: &Lists<Upstream>) -> Vec<u32> {
    let free = upstream.iter().filter(|(_, before)| before.is_empty());
    free.map(|(no, _)| no).collect()
}

fn nodes(found: &Found, upstream: &Lists<Upstream>) -> Vec<Compiled> {
    let mut nodes: Vec<Compiled> = Vec::with_capacity(found.order.len());
    for (no, &declared) in (0..).zip(&found.order) {
        let before = upstream.of(no);
        let is_after_failure = |up: &Upstream| up.takes == Takes::Failure;
        let is_on_error_path = |up: &Upstream| {
            let node = &nodes[up.no as usize];
            node.is_exempt_from_halt && !found.awaited_barriers.contains(&node.declared)
        };
        let is_exempt_from_halt = found.has_failures
            && (before.iter().any(is_after_failure)
                || !before.is_empty() && before.iter().all(is_on_error_path)
                || found.awaited_barriers.contains(&declared));
        let waits = if found.has_repeats {
            distinct(before)
        } else {
            before.len()
        };
        nodes.push(Compiled {
            declared,
            waits: waits as u32,
            phase: found.phases[declared as usize],
            chain: found.arms.of[declared as usize],
            strategy: found.strategies[declared as usize],
            is_exempt_from_halt,
        });
    }
    nodes
}

fn chains(found: &Found, no_of: &[u32]) -> Lists<Arm> {
    let arms = &found.arms;
    let mut lists = Lists::with_capacity(arms.all.len(), arms.all.len());
    for innermost in 0..arms.all.len() as u32 {
        let outwards: Vec<_> = arms.outwards(Some(innermost)).collect();
        for arm in outwards.into_iter().rev() {
            lists.push(Arm {
                branch: no_of[arm.branch as usize],
                index: arm.arm,
            });
        }
        lists.end();
    }
    lists
}

fn children(spec: &GraphSpec, found: &Found, no_of: &[u32]) -> Result<Vec<(u32, Graph)>, Invalid> {
    let mut children = Vec::new();
    for &declared in &found.children {
        // No deeper than embedded graphs may lie in one another.
        if let StepKind::Child { graph } = &spec.steps[declared as usize].kind {
            let child = Graph::compile(graph.as_ref().clone())?;
            children.push((no_of[declared as usize], child));
        }
    }
    children.sort_unstable_by_key(|(no, _)| *no);
    Ok(children)
}
