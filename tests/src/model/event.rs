//! Events, their effects, and the refusals of events.

use std::fmt;

use pipeline::graph::spec::CallbackOn;

use super::index::Key;
use super::status::{RunStatus, StepStatus};

/// A graph of a [`Model`](super::Model): the first is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GraphId(pub usize);

/// A run, numbered in the order of creation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(pub usize);

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "run {}", self.0)
    }
}

/// Rule 3: the token of a claim. The first claim of a step has 1, the next 2, over all rounds. A test against a
/// database maps each to the real token of that claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u32);

/// A value that the model passes on and never looks into.
pub type Payload = u64;

/// An event: one transaction (rule 4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A run is started (rule 7).
    Start {
        /// Of this graph.
        graph: GraphId,
    },
    /// A run is chained to others (rule 17), which may have ended.
    Then {
        /// Of this graph.
        graph: GraphId,
        /// It starts when all of these have succeeded.
        after: Vec<RunId>,
    },
    /// A worker takes a step's job, or takes it over from one whose lease ran out (rule 3).
    Taken {
        /// The run.
        run: RunId,
        /// The step.
        step: Key,
    },
    /// An attempt ended. A repeated event is a redelivery; an event with an older token is a late end.
    Ended {
        /// The run.
        run: RunId,
        /// The step.
        step: Key,
        /// The token of the claim.
        token: Token,
        /// The outcome of the attempt.
        outcome: Outcome,
    },
    /// The child that a step waits for ended (rule 22).
    ChildEnded {
        /// The parent.
        run: RunId,
        /// The waiting step.
        step: Key,
        /// How the child ended.
        status: RunStatus,
    },
    /// The time of a wait has come: a timer's, or a signal's timeout (rule 23).
    Due {
        /// The run.
        run: RunId,
        /// The waiting step.
        step: Key,
    },
    /// A signal is sent (rule 23).
    Signal {
        /// The run, or none: the oldest matching wait of any run.
        to: Option<RunId>,
        /// Its name.
        name: String,
        /// Whether a signal without a run is kept if no step waits for it.
        keep: bool,
        /// The value that the signal carries.
        payload: Payload,
    },
    /// A run is cancelled (rule 18).
    Cancel {
        /// The run.
        run: RunId,
    },
    /// The deadline of a run has passed (rule 18).
    DeadlinePassed {
        /// The run.
        run: RunId,
    },
    /// A run is reopened (rule 19).
    Reopen {
        /// The run.
        run: RunId,
        /// The ignored failures that are reset, too.
        named: Vec<Key>,
    },
    /// Time passes (rule 11). [`due`](super::Model::due) returns the events that are due by then; an engine
    /// processes them later.
    Time {
        /// Milliseconds.
        ms: u64,
    },
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The attempt returned a value.
    Success(Payload),
    /// A deciding job returned this arm (§8).
    Chose(String),
    /// The attempt called `cx.end_run()` and then returned a value (rule 14).
    EndRun(Payload),
    /// The attempt returned a pipeline (rule 22).
    Child,
    /// The attempt failed, and no attempt is left or wanted.
    Failed,
    /// The attempt failed, and attempts remain (rule 15); also if its worker was lost. In a run that is being
    /// cancelled, a lost worker is `Stopped`.
    Retry,
    /// The attempt stopped because it was asked to, or its worker was lost for good (rule 18).
    Stopped,
}

/// An effect of an event; effects are in the order in which they happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// A run has this status now; for an end, all its steps have ended.
    Run {
        /// The run.
        run: RunId,
        /// Its round.
        round: u32,
        /// Its new status.
        status: RunStatus,
    },
    /// A job is to be enqueued for this step.
    Released {
        /// The run.
        run: RunId,
        /// The step.
        step: Key,
    },
    /// The step waits, without a job.
    Waits {
        /// The run.
        run: RunId,
        /// The step.
        step: Key,
    },
    /// A step has ended.
    Ended {
        /// The run.
        run: RunId,
        /// The step.
        step: Key,
        /// Its new status.
        status: StepStatus,
        /// Why the step ended, if not by an attempt.
        why: Option<Why>,
    },
    /// A step is pending again (rule 19).
    Reopened {
        /// The run.
        run: RunId,
        /// The step.
        step: Key,
    },
    /// The claim's token.
    Taken {
        /// The run.
        run: RunId,
        /// The step.
        step: Key,
        /// The token, for the end of this attempt.
        token: Token,
    },
    /// The job waits for its next attempt (rule 15).
    Again {
        /// The run.
        run: RunId,
        /// The step.
        step: Key,
    },
    /// The end came with an old token and changed nothing (rule 3).
    Stale {
        /// The run.
        run: RunId,
        /// The step.
        step: Key,
        /// The token it came with.
        token: Token,
    },
    /// The end was already recorded, and changed nothing.
    AlreadyEnded {
        /// The run.
        run: RunId,
        /// The step.
        step: Key,
    },
    /// The queued job is taken back (rule 18).
    Withdrawn {
        /// The run.
        run: RunId,
        /// The step.
        step: Key,
    },
    /// The running attempt is asked to stop (rule 18).
    AskedToStop {
        /// The run.
        run: RunId,
        /// The step.
        step: Key,
        /// The attempt.
        token: Token,
    },
    /// The child that the step waited for is to be cancelled (rules 18, 22).
    CancelChild {
        /// The parent.
        run: RunId,
        /// The step.
        step: Key,
    },
    /// A callback is enqueued (rule 16).
    Callback {
        /// The run.
        run: RunId,
        /// The round.
        round: u32,
        /// Which.
        on: CallbackOn,
    },
}

/// Why a step ended, if not by an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// The edge from this step is broken (rule 12).
    Broken(Key),
    /// An arm of this branch, around the step, was not chosen (rule 12).
    NotChosen(Key),
    /// The step comes after the failure of this step, which did not fail (rule 12).
    NoFailure(Key),
    /// No upstream succeeded (rule 20).
    NoneSucceeded,
    /// All upstreams are `skipped_by_branch` (rule 20).
    NoneTaken,
    /// This step failed under Halt (rule 13).
    HaltedBy(Key),
    /// This step called `cx.end_run()` (rule 14).
    EndedBy(Key),
    /// The run was cancelled (rule 18).
    Cancelled,
    /// The run's deadline passed (rule 18).
    DeadlineExceeded,
    /// The run was skipped (rule 17).
    RunSkipped,
    /// A deciding job returned a value that is none of these arms (§8).
    NotAnArm(Vec<String>),
    /// The child ended like this (rule 22).
    Child(RunStatus),
}

/// The reason why an event is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// §6: a run cannot go this way.
    Run {
        /// The run.
        run: RunId,
        /// Its status.
        from: RunStatus,
        /// What was asked.
        to: RunStatus,
    },
    /// §6: a step cannot go this way.
    Step {
        /// The run.
        run: RunId,
        /// The step.
        step: Key,
        /// Its status.
        from: StepStatus,
        /// What was asked.
        to: StepStatus,
    },
    /// The step has no job that a worker could take.
    NothingToTake {
        /// The run.
        run: RunId,
        /// The step.
        step: Key,
        /// Its status.
        status: StepStatus,
    },
    /// The time of the wait has not come, or the step does not wait for a time.
    NotDue {
        /// The run.
        run: RunId,
        /// The step, or none for the run's deadline.
        step: Option<Key>,
    },
    /// The run's graph declares no such signal (rule 23).
    UndeclaredSignal {
        /// The run.
        run: RunId,
        /// The name.
        name: String,
    },
    /// Signals are for runs that have not ended (rule 23).
    SignalToEnded {
        /// The run.
        run: RunId,
        /// Its status.
        status: RunStatus,
    },
    /// A step was named for reopening that is no ignored failure (rule 19).
    NotIgnored {
        /// The run.
        run: RunId,
        /// The step.
        step: Key,
        /// Its status.
        status: StepStatus,
    },
    /// A run was reopened in which nothing but ignored failures is left, and none was named (rule 19).
    OnlyIgnored {
        /// The run.
        run: RunId,
        /// The failed steps.
        steps: Vec<Key>,
    },
    /// There is no such run.
    UnknownRun(RunId),
    /// There is no such graph.
    UnknownGraph(GraphId),
    /// The run has no such step.
    UnknownStep(RunId, Key),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run { run, from, to } => write!(f, "{run} is {from} and cannot become {to}"),
            Self::Step {
                run,
                step,
                from,
                to,
            } => {
                write!(f, "step {step} of {run} is {from} and cannot become {to}")
            }
            Self::NothingToTake { run, step, status } => {
                write!(f, "step {step} of {run} is {status} and has no job to take")
            }
            Self::NotDue {
                run,
                step: Some(step),
            } => write!(f, "step {step} of {run} is not due"),
            Self::NotDue { run, step: None } => write!(f, "the deadline of {run} has not come"),
            Self::UndeclaredSignal { run, name } => {
                write!(f, "{run} has no step that waits for signal {name}")
            }
            Self::SignalToEnded { run, status } => {
                write!(f, "{run} is {status} and takes no signals")
            }
            Self::NotIgnored { run, step, status } => {
                write!(
                    f,
                    "step {step} of {run} is {status}, not an ignored failure"
                )
            }
            Self::OnlyIgnored { run, steps } => write!(
                f,
                "{run} failed only by ignored steps, and none is named: {}",
                steps.join(", ")
            ),
            Self::UnknownRun(run) => write!(f, "there is no {run}"),
            Self::UnknownGraph(graph) => write!(f, "there is no graph {}", graph.0),
            Self::UnknownStep(run, step) => write!(f, "{run} has no step {step}"),
        }
    }
}

impl std::error::Error for Refusal {}
