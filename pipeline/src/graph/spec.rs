//! The untyped graph: what a declaration comes to, what JSON is read into, what is validated.
//!
//! It holds the shape and the resolved options of a pipeline, never the params of its steps: two runs
//! of one pipeline with different params have the same graph.

use serde::{Deserialize, Serialize};

pub use super::shape::Shape;

/// A pipeline's shape, not yet validated.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GraphSpec {
    /// The pipeline's name.
    pub name: String,
    /// What people call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Words to find its runs by.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// What a failed step means that has no strategy of its own.
    #[serde(default)]
    pub strategy: Strategy,
    /// How long a run may take, from its start, in each round.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    /// Whether an advance in which no run ends may be lost if the database server crashes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub asynchronous_commit: bool,
    /// The nodes, in the order they were declared.
    pub steps: Vec<StepSpec>,
    /// Jobs that a run fires when it ends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub callbacks: Vec<CallbackSpec>,
    /// The steps whose outputs are the pipeline's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub output: Vec<String>,
    /// How these lie in what a run returns. `None`: as follows from their number, [`Shape::of`] it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_shape: Option<Shape>,
}

/// What a failed step means for its run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// Every step that has not started is skipped; the run ends `halted`.
    #[default]
    Halt,
    /// Only what depends on it is skipped; the run ends `failed`.
    Continue,
    /// What depends on it goes on without its value; the run ends `failed` all the same.
    Ignore,
}

/// A node of the graph.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepSpec {
    /// Its name within the graph.
    pub key: String,
    /// What it is.
    pub kind: StepKind,
    /// What it comes after, in the order of its input's elements.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<Edge>,
    /// How what it takes lies in its input. `None`: as follows from the edges that take something,
    /// [`Shape::of`] their number; where the first of several gives it, one value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Shape>,
    /// Which of its upstreams it waits for.
    #[serde(default, skip_serializing_if = "Join::is_all")]
    pub join: Join,
    /// Its own strategy; it alone decides where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strategy: Option<Strategy>,
    /// Its failure is ignored, and does not count in the run's status.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
    /// The arm of a branch it stands in; of nested ones, the innermost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arm: Option<ArmRef>,
    /// How its job is to be run: the type's own options, overridden by the step's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub options: Option<StepOptions>,
}

/// What a node is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "type", deny_unknown_fields)]
#[non_exhaustive]
pub enum StepKind {
    /// A job.
    Job {
        /// The job type's name.
        job: String,
        /// Its declared version.
        version: u32,
    },
    /// A job whose output chooses one of the arms.
    Branch {
        /// The job type's name.
        job: String,
        /// Its declared version.
        version: u32,
        /// The names of the arms, in the order they were declared. Arms may be empty of steps.
        arms: Vec<String>,
    },
    /// Where the arms of a branch come together: resolved by the coordinator, never a job. Its value
    /// is what the chosen arm returned.
    Merge {
        /// The key of the branch.
        branch: String,
        /// For each arm that returns a value, its name and the step whose output it is.
        values: Vec<(String, String)>,
    },
    /// Splits the graph into phases: what is declared after it starts when all before it has ended.
    /// Resolved by the coordinator, never a job.
    Barrier,
    /// One job for each element of its upstream's list.
    Each {
        /// The job type's name.
        job: String,
        /// Its declared version.
        version: u32,
        /// How many elements may fail; `None` is none.
        tolerate: Option<u32>,
    },
    /// A whole pipeline, embedded at declaration.
    Child {
        /// Its graph.
        graph: Box<GraphSpec>,
    },
    /// Waits for a time.
    Timer {
        /// From when its upstreams have ended.
        delay_ms: u64,
    },
    /// Waits for a signal from outside.
    Signal {
        /// The signal's name.
        name: String,
        /// How long it waits; `None` is for ever.
        timeout_ms: Option<u64>,
    },
}

/// "After" between two steps, and what goes along it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edge {
    /// The key of the step before.
    pub step: String,
    /// What the step after takes from it.
    #[serde(default)]
    pub takes: Takes,
}

/// What a step takes from one before it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Takes {
    /// Its value, which must be sure to be there.
    #[default]
    Value,
    /// Its value, if it is there: `Option<T>`.
    Maybe,
    /// Its value or its failure: `Result<T, Failure>`.
    Outcome,
    /// Its failure: the step runs only if the one before failed for good.
    Failure,
    /// Nothing: order only.
    Order,
    /// Nothing: order only, and every end of the step before satisfies the edge. Only between a barrier and a
    /// step after the failure of a step before that barrier, where validation adds it.
    Ended,
}

impl Takes {
    /// Whether the edge adds an element to the input of the step after.
    pub fn is_input(self) -> bool {
        !matches!(self, Self::Order | Self::Ended)
    }
}

/// Which of its upstreams a step waits for.
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
    /// The arm's name.
    pub arm: String,
}

/// How a step's job is to be run: resolved, nothing left to look up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepOptions {
    /// The queue.
    pub queue: String,
    /// Higher runs first.
    pub priority: i16,
    /// How often it is tried.
    pub max_attempts: u16,
    /// How long one attempt may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// How long a claim holds without being renewed.
    pub lease_ms: u64,
    /// The wait between attempts.
    pub backoff: jobs::Backoff,
    /// How long it waits after its upstreams have ended.
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
    /// When it fires.
    pub on: CallbackOn,
    /// The job type's name.
    pub job: String,
    /// Its declared version.
    pub version: u32,
    /// How it is to be run.
    pub options: StepOptions,
}

/// When a callback fires.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallbackOn {
    /// At every end.
    Complete,
    /// When the run succeeded.
    Success,
    /// When the run failed or was halted.
    Failure,
}
