//! The compiled graph: validated and numbered.

use std::collections::HashSet;
use std::sync::OnceLock;

use super::fingerprint::Fingerprint;
use super::invalid::Invalid;
use super::lists::Lists;
use super::spec::{GraphSpec, Join, Shape, StepKind, StepOptions, StepSpec, Strategy, Takes};
use super::validate::{self, Analysis};

/// A validated graph. It can be drawn with [`to_mermaid`](Self::to_mermaid) and [`to_dot`](Self::to_dot).
// Every node has a number, from 0 on, in topological order: of the nodes that could come next, the one that was declared
// first. The numbers follow the declaration if it names each step only after declaring it, as code does; and one
// declaration always gets the same numbers.
//
// Besides the declared edges there are those of barriers and merges: a barrier runs after every node of its phase (and
// after the barrier before, if a step after a failure waits for that one); a node runs after the barrier before its phase
// unless it runs after another node of the phase; and a merge runs after its branch, the nodes whose values it passes on,
// and the last nodes of the arms.
//
// A node that takes the value of another twice has two upstream edges, one for each value of its input; it waits for one
// end, and is downstream of the other once.
#[derive(Debug, Clone)]
pub struct Graph {
    spec: GraphSpec,
    nodes: Vec<Compiled>,
    upstream: Lists<Upstream>,
    downstream: Lists<Downstream>,
    /// For each arm that has steps, the arms around it and the arm itself, outermost first.
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

/// An edge from an upstream node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Upstream {
    /// The number of the upstream node.
    pub no: u32,
    /// The part of the upstream node that is taken: its value, its failure or its order.
    pub takes: Takes,
}

/// An edge to a downstream node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Downstream {
    /// The number of the downstream node.
    pub no: u32,
    /// The part that the downstream node takes.
    pub takes: Takes,
}

/// An arm of a branch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Arm {
    /// The number of the branch.
    pub branch: u32,
    /// The index of the arm in its branch; the first is 0.
    pub index: u32,
}

impl Graph {
    /// Validates a graph and numbers its nodes.
    ///
    /// # Errors
    ///
    /// [`Invalid`] holds every problem of the graph.
    #[doc(hidden)]
    pub fn compile(spec: GraphSpec) -> Result<Self, Invalid> {
        let found = validate::check(&spec)?;
        Self::from_found(spec, found)
    }

    fn from_found(spec: GraphSpec, found: Analysis) -> Result<Self, Invalid> {
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

    /// Returns the graph as it was declared.
    #[doc(hidden)]
    pub fn spec(&self) -> &GraphSpec {
        &self.spec
    }

    /// Returns the name of the pipeline.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// Returns the number of nodes, barriers and merges included; at least one.
    #[doc(hidden)]
    #[allow(clippy::len_without_is_empty, reason = "a graph is never empty")]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Iterates over the nodes by number.
    #[doc(hidden)]
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = Node<'_>> + DoubleEndedIterator {
        (0..self.nodes.len() as u32).map(|no| Node { graph: self, no })
    }

    /// Returns the node with this number.
    #[doc(hidden)]
    pub fn node(&self, no: u32) -> Option<Node<'_>> {
        ((no as usize) < self.nodes.len()).then_some(Node { graph: self, no })
    }

    /// Returns the node with this key.
    #[doc(hidden)]
    pub fn find(&self, key: &str) -> Option<Node<'_>> {
        let by_key = self.by_key.get_or_init(|| {
            let mut numbers: Vec<u32> = (0..self.nodes.len() as u32).collect();
            numbers.sort_unstable_by_key(|no| self.step(*no).key.as_str());
            numbers
        });
        let at = by_key.binary_search_by_key(&key, |no| self.step(*no).key.as_str());
        at.ok().and_then(|at| self.node(by_key[at]))
    }

    /// Returns the numbers of the nodes without an upstream node.
    #[doc(hidden)]
    pub fn roots(&self) -> &[u32] {
        &self.roots
    }

    /// Returns the number of phases: one more than barriers.
    #[doc(hidden)]
    pub fn phases(&self) -> u32 {
        self.nodes.last().map_or(0, |last| last.phase + 1)
    }

    /// Iterates over the nodes whose values make the pipeline's output.
    #[doc(hidden)]
    pub fn output(&self) -> impl Iterator<Item = Node<'_>> {
        self.spec.output.iter().filter_map(|key| self.find(key))
    }

    /// Returns the shape of the pipeline's output: the declared one, or the one that follows from the number of its
    /// steps. A pipeline without an output has none.
    #[doc(hidden)]
    pub fn output_shape(&self) -> Option<Shape> {
        let declared = self.spec.output_shape.clone();
        declared.or_else(|| Shape::of(self.spec.output.len()))
    }

    /// Returns the fingerprint, which is equal for graphs that behave alike. What changes it is listed in
    /// `docs/graphs/fingerprint.md`.
    #[doc(hidden)]
    pub fn fingerprint(&self) -> Fingerprint {
        *self.fingerprint.get_or_init(|| Fingerprint::of(self))
    }

    fn step(&self, no: u32) -> &StepSpec {
        &self.spec.steps[self.nodes[no as usize].declared as usize]
    }
}

/// Compares graphs by their declarations.
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

    /// Returns the number of the node.
    pub fn no(self) -> u32 {
        self.no
    }

    /// Returns the index of the node in the declaration.
    pub fn declared(self) -> usize {
        self.compiled().declared as usize
    }

    /// Returns the step as it was declared.
    pub fn step(self) -> &'g StepSpec {
        self.graph.step(self.no)
    }

    /// Returns the key of the node.
    pub fn key(self) -> &'g str {
        &self.step().key
    }

    /// Returns the kind of the node.
    pub fn kind(self) -> &'g StepKind {
        &self.step().kind
    }

    /// Returns the name and the version of its job type, if the node has a job.
    pub fn job(self) -> Option<(&'g str, u32)> {
        match self.kind() {
            StepKind::Job { job, version }
            | StepKind::Branch { job, version, .. }
            | StepKind::Each { job, version, .. } => Some((job, *version)),
            _ => None,
        }
    }

    /// Returns the options of its job, if the node has one.
    pub fn options(self) -> Option<&'g StepOptions> {
        self.step().options.as_ref()
    }

    /// Returns the upstream edges, in the order of the input's values.
    pub fn upstream(self) -> &'g [Upstream] {
        self.graph.upstream.of(self.no)
    }

    /// Returns the downstream edges by number, one for each node. For a node that takes several values, this is the
    /// edge of the first.
    pub fn downstream(self) -> &'g [Downstream] {
        self.graph.downstream.of(self.no)
    }

    /// Returns the number of ends that the node waits for when a run begins.
    pub fn waits(self) -> u32 {
        self.compiled().waits
    }

    /// Returns the shape of the node's input: the declared one, or the one that follows from its edges. A step that
    /// takes no value has none, nor has a barrier or a merge.
    ///
    /// The values are those of the [`upstream`](Self::upstream) edges that take a value, in their order; of an any-join,
    /// that of the upstream step that succeeded first.
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

    /// Returns which of its upstream nodes the node waits for.
    pub fn join(self) -> Join {
        self.step().join
    }

    /// Returns the failure strategy: the node's own, or that of its pipeline; Ignore if it is optional; Continue for a
    /// deciding step whose pipeline has Ignore. A node that cannot fail has Halt.
    pub fn strategy(self) -> Strategy {
        self.compiled().strategy
    }

    /// Returns whether its failure does not count in the run's status.
    pub fn is_optional(self) -> bool {
        self.step().optional
    }

    /// Returns whether Halt does not skip the node: it runs after a failure, or only after such nodes, or it is a barrier
    /// between a node and a node after its failure.
    pub fn is_exempt_from_halt(self) -> bool {
        self.compiled().is_exempt_from_halt
    }

    /// Returns the phase of the node, from 0 on. A barrier belongs to the phase that it ends.
    pub fn phase(self) -> u32 {
        self.compiled().phase
    }

    /// Returns the arms around the node, outermost first.
    pub fn arms(self) -> &'g [Arm] {
        self.compiled()
            .chain
            .map_or(&[], |chain| self.graph.chains.of(chain))
    }

    /// Returns the graph that is embedded as this node.
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

fn upstream(found: &Analysis, no_of: &[u32]) -> Lists<Upstream> {
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

fn downstream(found: &Analysis, upstream: &Lists<Upstream>) -> Lists<Downstream> {
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

/// Returns the number of different nodes in these edges.
fn distinct(before: &[Upstream]) -> usize {
    before.iter().map(|up| up.no).collect::<HashSet<_>>().len()
}

fn roots(upstream: &Lists<Upstream>) -> Vec<u32> {
    let free = upstream.iter().filter(|(_, before)| before.is_empty());
    free.map(|(no, _)| no).collect()
}

fn nodes(found: &Analysis, upstream: &Lists<Upstream>) -> Vec<Compiled> {
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

fn chains(found: &Analysis, no_of: &[u32]) -> Lists<Arm> {
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

fn children(
    spec: &GraphSpec,
    found: &Analysis,
    no_of: &[u32],
) -> Result<Vec<(u32, Graph)>, Invalid> {
    let mut children = Vec::new();
    for &declared in &found.children {
        // This recursion is bounded: validation limits how deep graphs are embedded.
        if let StepKind::Child { graph } = &spec.steps[declared as usize].kind {
            let child = Graph::compile(graph.as_ref().clone())?;
            children.push((no_of[declared as usize], child));
        }
    }
    children.sort_unstable_by_key(|(no, _)| *no);
    Ok(children)
}
