//! A short notation for graphs in tests. It adds the edges that a declaration adds by itself.

use jobs::Backoff;
use pipeline::graph::spec::{
    ArmRef, CallbackOn, CallbackSpec, Edge, GraphSpec, Join, StepKind, StepOptions, StepSpec,
    Strategy, Takes,
};

use super::index::Index;

/// A step that is being declared.
#[derive(Debug, Clone)]
pub struct Node(pub StepSpec);

/// Builds a pipeline under Halt, with all three callbacks.
pub fn graph(steps: impl IntoIterator<Item = Node>) -> GraphSpec {
    under(Strategy::Halt, steps)
}

/// Builds a pipeline under a strategy, with all three callbacks.
///
/// A barrier comes after all steps of its phase, and after the barrier before it if an error path waits for that
/// barrier. A merge comes after its branch and all its arms. A step without an upstream in its phase or arm waits for
/// the barrier or the branch.
pub fn under(strategy: Strategy, steps: impl IntoIterator<Item = Node>) -> GraphSpec {
    let mut spec = GraphSpec {
        name: "graph".to_owned(),
        display_name: None,
        description: None,
        tags: Vec::new(),
        strategy,
        deadline_ms: None,
        asynchronous_commit: false,
        steps: steps.into_iter().map(|node| node.0).collect(),
        callbacks: callbacks(),
        output: Vec::new(),
        output_shape: None,
    };
    resolved_edges(&mut spec);
    gate_edges(&mut spec);
    spec
}

/// Builds a pipeline under Halt, with all three callbacks and a deadline.
pub fn within(ms: u64, mut spec: GraphSpec) -> GraphSpec {
    spec.deadline_ms = Some(ms);
    spec
}

fn callbacks() -> Vec<CallbackSpec> {
    let on = [
        CallbackOn::Complete,
        CallbackOn::Success,
        CallbackOn::Failure,
    ];
    on.into_iter()
        .map(|on| CallbackSpec {
            on,
            job: "callback".to_owned(),
            version: 1,
            options: options(),
        })
        .collect()
}

fn options() -> StepOptions {
    StepOptions {
        queue: "default".to_owned(),
        priority: 0,
        max_attempts: 3,
        timeout_ms: None,
        lease_ms: 30_000,
        backoff: Backoff::default(),
        delay_ms: 0,
    }
}

fn resolved_edges(spec: &mut GraphSpec) {
    let mut phase = 0;
    for no in 0..spec.steps.len() {
        let (before, rest) = spec.steps.split_at_mut(no);
        let step = &mut rest[0];
        match &step.kind {
            StepKind::Barrier => {
                step.after = before[phase..]
                    .iter()
                    .map(|step| order(&step.key))
                    .collect();
                phase = no + 1;
            }
            StepKind::Merge { branch, values } => {
                let arms = before
                    .iter()
                    .filter(|step| step.arm.as_ref().is_some_and(|arm| arm.branch == *branch));
                let from_arm = |step: &StepSpec| {
                    let returned = values.iter().any(|(_, key)| *key == step.key);
                    let takes = if returned { Takes::Maybe } else { Takes::Order };
                    edge(&step.key, takes)
                };
                let mut after = vec![order(branch)];
                after.extend(arms.map(from_arm));
                step.after = after;
            }
            _ => {}
        }
    }
}

fn gate_edges(spec: &mut GraphSpec) {
    let index = Index::new(spec);
    for (no, node) in index.nodes.iter().enumerate() {
        for link in &node.links[spec.steps[no].after.len()..] {
            let gate = edge(&index.nodes[link.from].key, link.takes);
            spec.steps[no].after.push(gate);
        }
    }
    let barriers: Vec<usize> = (0..spec.steps.len())
        .filter(|no| matches!(spec.steps[*no].kind, StepKind::Barrier))
        .collect();
    for pair in barriers.windows(2) {
        if index.nodes[pair[0]].is_awaited {
            let before = order(&spec.steps[pair[0]].key);
            spec.steps[pair[1]].after.push(before);
        }
    }
}

fn edge(step: &str, takes: Takes) -> Edge {
    Edge {
        step: step.to_owned(),
        takes,
    }
}

fn order(step: &str) -> Edge {
    edge(step, Takes::Order)
}

/// Declares a step that runs a job.
pub fn job(key: &str) -> Node {
    let kind = StepKind::Job {
        job: "work".to_owned(),
        version: 1,
    };
    node(key, kind)
}

/// Declares a job that decides between arms.
pub fn branch(key: &str, arms: &[&str]) -> Node {
    let kind = StepKind::Branch {
        job: "decide".to_owned(),
        version: 1,
        arms: arms.iter().map(|arm| (*arm).to_owned()).collect(),
    };
    node(key, kind)
}

/// Declares the merge of the arms of a branch; each arm may return the value of a step.
pub fn merge(key: &str, branch: &str, values: &[(&str, &str)]) -> Node {
    let owned = |(arm, step): &(&str, &str)| ((*arm).to_owned(), (*step).to_owned());
    let kind = StepKind::Merge {
        branch: branch.to_owned(),
        values: values.iter().map(owned).collect(),
    };
    node(key, kind)
}

/// Declares a barrier, the end of a phase.
pub fn barrier(key: &str) -> Node {
    node(key, StepKind::Barrier)
}

/// Declares a timer.
pub fn timer(key: &str, delay_ms: u64) -> Node {
    node(key, StepKind::Timer { delay_ms })
}

/// Declares a wait for a signal.
pub fn signal(key: &str, name: &str, timeout_ms: Option<u64>) -> Node {
    let name = name.to_owned();
    node(key, StepKind::Signal { name, timeout_ms })
}

/// Declares a step that is a whole pipeline.
pub fn child(key: &str) -> Node {
    let graph = Box::new(under(Strategy::Halt, [job("inner")]));
    node(key, StepKind::Child { graph })
}

/// Declares a job for each element of a list, which the model treats as one job.
pub fn each(key: &str) -> Node {
    let kind = StepKind::Each {
        job: "element".to_owned(),
        version: 1,
        tolerate: None,
    };
    node(key, kind)
}

fn node(key: &str, kind: StepKind) -> Node {
    let runs_a_job = matches!(
        kind,
        StepKind::Job { .. } | StepKind::Branch { .. } | StepKind::Each { .. }
    );
    Node(StepSpec {
        key: key.to_owned(),
        kind,
        after: Vec::new(),
        input: None,
        join: Join::All,
        strategy: None,
        optional: false,
        arm: None,
        options: runs_a_job.then(options),
    })
}

impl Node {
    /// Places the step after another, whose value it takes.
    pub fn after(self, step: &str) -> Self {
        self.takes(step, Takes::Value)
    }

    /// Places the step after another, in order only.
    pub fn following(self, step: &str) -> Self {
        self.takes(step, Takes::Order)
    }

    /// Places the step after the failure of another.
    pub fn after_failure(self, step: &str) -> Self {
        self.takes(step, Takes::Failure)
    }

    /// Places the step after another, from which it takes this.
    pub fn takes(mut self, step: &str, takes: Takes) -> Self {
        self.0.after.push(edge(step, takes));
        self
    }

    /// Places the step after the first of these that succeeds.
    pub fn after_any(mut self, steps: &[&str]) -> Self {
        self.0.join = Join::Any;
        self.0
            .after
            .extend(steps.iter().map(|step| edge(step, Takes::Value)));
        self
    }

    /// Sets the step's own strategy.
    pub fn failure_strategy(mut self, strategy: Strategy) -> Self {
        self.0.strategy = Some(strategy);
        self
    }

    /// Makes the step optional: its failure is ignored and not counted.
    pub fn optional(mut self) -> Self {
        self.0.optional = true;
        self
    }

    /// Places the step in an arm of a branch.
    pub fn arm(mut self, branch: &str, arm: &str) -> Self {
        self.0.arm = Some(ArmRef {
            branch: branch.to_owned(),
            arm: arm.to_owned(),
        });
        self
    }
}
