//! The untyped graph that a declaration makes, that is read from JSON, and that is validated.
//!
//! It holds the steps and their resolved options, but no params: two runs of one pipeline with different params have the
//! same graph.

use serde::{Deserialize, Serialize};

pub use super::shape::Shape;

/// A graph that is not yet validated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GraphSpec {
    /// The name of the pipeline.
    pub name: String,
    /// The name that people read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// The description of the pipeline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Tags of every run, to find the runs by.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// The failure strategy of steps that have none of their own.
    #[serde(default)]
    pub strategy: Strategy,
    /// How long a run may take, from its start, in each round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    /// Whether an advance in which no run ends may be lost if the database server crashes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub asynchronous_commit: bool,
    /// The nodes, in the order of their declaration.
    pub steps: Vec<StepSpec>,
    /// Jobs that a run fires when it ends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub callbacks: Vec<CallbackSpec>,
    /// The steps whose values make the pipeline's output.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub output: Vec<String>,
    /// The shape of the output; `None` is the shape that follows from the number of its steps ([`Shape::of`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_shape: Option<Shape>,
}

/// The failure strategy of a step: what its failure means for its run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// Skips every step that has not started; the run ends `halted`.
    #[default]
    Halt,
    /// Skips only the steps that depend on the failed one; the run ends `failed`.
    Continue,
    /// Runs the steps that depend on the failed one without its value; the run ends `failed` all the same.
    Ignore,
}

/// A node of the graph.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepSpec {
    /// The key of the node, unique in its graph.
    pub key: String,
    /// The kind of the node.
    pub kind: StepKind,
    /// The upstream edges, in the order of the input's values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<Edge>,
    /// The shape of the input; `None` is the shape that follows from the number of edges that take a value
    /// ([`Shape::of`]), or one value for an any-join.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Shape>,
    /// Which of the upstream steps the node waits for.
    #[serde(default, skip_serializing_if = "Join::is_all")]
    pub join: Join,
    /// The failure strategy of the step; `None` is that of its pipeline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<Strategy>,
    /// Whether the failure is ignored and does not count in the run's status.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
    /// The innermost arm around the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arm: Option<ArmRef>,
    /// The options of the node's job: those of its type, overridden by those of the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<StepOptions>,
}

/// The kind of a node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "type", deny_unknown_fields)]
#[non_exhaustive]
pub enum StepKind {
    /// A step that runs a job.
    Job {
        /// The name of the job type.
        job: String,
        /// The declared version of the job type.
        version: u32,
    },
    /// A step that runs a job whose output chooses one of the arms.
    Branch {
        /// The name of the job type.
        job: String,
        /// The declared version of the job type.
        version: u32,
        /// The names of the arms, in the order of their declaration. An arm may have no steps.
        arms: Vec<String>,
    },
    /// The node where the arms of a branch meet. Its value is that of the chosen arm. The coordinator resolves it; it
    /// runs no job.
    Merge {
        /// The key of the branch.
        branch: String,
        /// For each arm that returns a value, its name and the step that gives the value.
        values: Vec<(String, String)>,
    },
    /// A barrier between two phases: steps declared after it start when all steps before it have ended. The coordinator
    /// resolves it; it runs no job.
    Barrier,
    /// A step that runs one job for each element of a list.
    Each {
        /// The name of the job type.
        job: String,
        /// The declared version of the job type.
        version: u32,
        /// How many elements may fail; `None` is 0.
        tolerate: Option<u32>,
    },
    /// A pipeline that is embedded in this one.
    Child {
        /// The graph of the embedded pipeline.
        graph: Box<GraphSpec>,
    },
    /// A step that waits for a time.
    Timer {
        /// The time to wait after the upstream steps have ended.
        delay_ms: u64,
    },
    /// A step that waits for a signal from outside.
    Signal {
        /// The name of the signal.
        name: String,
        /// The longest time to wait; `None` is for ever.
        timeout_ms: Option<u64>,
    },
}

/// An edge from an upstream step.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edge {
    /// The key of the upstream step.
    pub step: String,
    /// The part that the downstream step takes.
    #[serde(default)]
    pub takes: Takes,
}

/// The part of an upstream step that a step takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Takes {
    /// The value, which must always be present: `T`.
    #[default]
    Value,
    /// The value, if it is present: `Option<T>`.
    Maybe,
    /// The value or the failure: `Result<T, Failure>`.
    Outcome,
    /// The failure. The step runs only if the upstream step has failed.
    Failure,
    /// Nothing but the order.
    Order,
    /// Nothing but the order, satisfied by any end of the upstream step. Validation adds it between a barrier and a step
    /// after the failure of a step before that barrier.
    Ended,
}

impl Takes {
    /// Returns whether the edge adds a value to the input of the downstream step.
    pub fn is_input(self) -> bool {
        !matches!(self, Self::Order | Self::Ended)
    }
}

/// Which of its upstream steps a step waits for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Join {
    /// All of them.
    #[default]
    All,
    /// The first that succeeds.
    Any,
}

impl Join {
    fn is_all(&self) -> bool {
        *self == Self::All
    }
}

/// An arm of a branch.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArmRef {
    /// The key of the branch.
    pub branch: String,
    /// The name of the arm.
    pub arm: String,
}

/// The resolved options of a step's job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepOptions {
    /// The queue of the job.
    pub queue: String,
    /// The priority of the job; higher runs first.
    pub priority: i16,
    /// The number of attempts.
    pub max_attempts: u16,
    /// How long one attempt may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// How long a claim holds without being renewed.
    pub lease_ms: u64,
    /// The wait between attempts.
    pub backoff: jobs::Backoff,
    /// The delay after the upstream steps have ended.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub delay_ms: u64,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A job that a run fires when it ends.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallbackSpec {
    /// The ends that fire the callback.
    pub on: CallbackOn,
    /// The name of the job type.
    pub job: String,
    /// The declared version of the job type.
    pub version: u32,
    /// The options of the job.
    pub options: StepOptions,
}

/// The ends of a run that fire a callback.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallbackOn {
    /// Every end.
    Complete,
    /// The run succeeded.
    Success,
    /// The run failed or was halted.
    Failure,
}
