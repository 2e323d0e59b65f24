//! Graphs, written shortly.

use crate::graph::spec::*;
use crate::graph::{Graph, Node, Problem};

pub(super) fn graph(steps: impl IntoIterator<Item = StepSpec>) -> GraphSpec {
    GraphSpec {
        name: "video".into(),
        display_name: None,
        description: None,
        tags: Vec::new(),
        strategy: Strategy::Halt,
        deadline_ms: None,
        asynchronous_commit: false,
        steps: steps.into_iter().collect(),
        callbacks: Vec::new(),
        output: Vec::new(),
        output_shape: None,
    }
}

pub(super) fn options() -> StepOptions {
    StepOptions {
        queue: "default".into(),
        priority: 0,
        max_attempts: 5,
        timeout_ms: None,
        lease_ms: 30_000,
        backoff: jobs::Backoff::DEFAULT,
        delay_ms: 0,
    }
}

pub(super) fn node(key: &str, kind: StepKind) -> StepSpec {
    StepSpec {
        key: key.into(),
        kind,
        after: Vec::new(),
        input: None,
        join: Join::All,
        strategy: None,
        optional: false,
        arm: None,
        options: None,
    }
}

pub(super) fn job(key: &str) -> StepSpec {
    let kind = StepKind::Job {
        job: "work".into(),
        version: 1,
    };
    StepSpec {
        options: Some(options()),
        ..node(key, kind)
    }
}

pub(super) fn branch(key: &str, arms: &[&str]) -> StepSpec {
    let kind = StepKind::Branch {
        job: "decide".into(),
        version: 1,
        arms: arms.iter().map(|arm| (*arm).to_owned()).collect(),
    };
    StepSpec { kind, ..job(key) }
}

pub(super) fn merge(key: &str, branch: &str, values: &[(&str, &str)]) -> StepSpec {
    let values = values.iter();
    let kind = StepKind::Merge {
        branch: branch.into(),
        values: values
            .map(|(arm, step)| ((*arm).to_owned(), (*step).to_owned()))
            .collect(),
    };
    node(key, kind)
}

pub(super) fn barrier(number: usize) -> StepSpec {
    node(&crate::graph::barrier_key(number), StepKind::Barrier)
}

pub(super) fn each(key: &str) -> StepSpec {
    let kind = StepKind::Each {
        job: "work".into(),
        version: 1,
        tolerate: None,
    };
    StepSpec { kind, ..job(key) }
}

pub(super) fn timer(key: &str) -> StepSpec {
    node(key, StepKind::Timer { delay_ms: 1000 })
}

pub(super) fn child(key: &str, graph: GraphSpec) -> StepSpec {
    let graph = Box::new(graph);
    node(key, StepKind::Child { graph })
}

impl StepSpec {
    pub(super) fn takes(mut self, step: &str, takes: Takes) -> Self {
        self.after.push(Edge {
            step: step.into(),
            takes,
        });
        self
    }

    /// Takes the value of each.
    pub(super) fn after(self, steps: &[&str]) -> Self {
        steps
            .iter()
            .fold(self, |this, step| this.takes(step, Takes::Value))
    }

    /// Order only.
    pub(super) fn following(self, steps: &[&str]) -> Self {
        steps
            .iter()
            .fold(self, |this, step| this.takes(step, Takes::Order))
    }

    pub(super) fn shaped(mut self, input: Shape) -> Self {
        self.input = Some(input);
        self
    }

    pub(super) fn any(mut self) -> Self {
        self.join = Join::Any;
        self
    }

    pub(super) fn failure_strategy(mut self, strategy: Strategy) -> Self {
        self.strategy = Some(strategy);
        self
    }

    pub(super) fn optional(mut self) -> Self {
        self.optional = true;
        self
    }

    pub(super) fn in_arm(mut self, branch: &str, arm: &str) -> Self {
        self.arm = Some(ArmRef {
            branch: branch.into(),
            arm: arm.into(),
        });
        self
    }
}

#[track_caller]
pub(super) fn compile(spec: GraphSpec) -> Graph {
    Graph::compile(spec).unwrap_or_else(|invalid| panic!("{invalid}"))
}

#[track_caller]
pub(super) fn valid(steps: impl IntoIterator<Item = StepSpec>) -> Graph {
    compile(graph(steps))
}

#[track_caller]
pub(super) fn problems_of(spec: &GraphSpec) -> Vec<Problem> {
    match spec.validate() {
        Ok(()) => panic!("the graph is valid: {spec:?}"),
        Err(invalid) => invalid.into_problems(),
    }
}

/// The one problem that these steps have.
#[track_caller]
pub(super) fn problem(steps: impl IntoIterator<Item = StepSpec>) -> Problem {
    let mut problems = problems_of(&graph(steps));
    assert_eq!(problems.len(), 1, "{problems:#?}");
    problems.remove(0)
}

/// The message of the one problem that these steps have.
#[track_caller]
pub(super) fn message(steps: impl IntoIterator<Item = StepSpec>) -> String {
    problem(steps).to_string()
}

pub(super) fn keys(graph: &Graph) -> Vec<&str> {
    graph.nodes().map(Node::key).collect()
}

/// The keys of what a step comes after.
#[track_caller]
pub(super) fn before<'g>(graph: &'g Graph, key: &str) -> Vec<&'g str> {
    let node = graph.find(key).expect("a step of that key");
    let upstream = node.upstream().iter();
    upstream
        .map(|up| graph.node(up.no).unwrap().key())
        .collect()
}
