//! What can be wrong with a graph, every problem in its own words.

use std::fmt;

use super::invalid::Place;

/// One thing that is wrong with a graph. Its message names the steps and the remedy.
#[derive(Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// A mistake that only the declaration can see.
    #[error(transparent)]
    Declared(#[from] super::DeclarationError),

    /// Nothing to run.
    #[error("there are no steps: declare at least one")]
    NoSteps,

    /// More of something than there may be.
    #[error("{place} has {count} {what}, more than {limit}: {remedy}")]
    TooMany {
        /// Where.
        place: Place,
        /// Of what.
        what: &'static str,
        /// How many there are.
        count: usize,
        /// How many there may be.
        limit: usize,
        /// What to do.
        remedy: &'static str,
    },

    /// A name with other characters, or none, or too many.
    #[error("{place}: the {what} `{value}` is not a name: use 1 to 128 of a-z A-Z 0-9 . _ -")]
    InvalidName {
        /// Where.
        place: Place,
        /// Which name.
        what: &'static str,
        /// What was given.
        value: String,
    },

    /// A key that only the keys of barriers and merges can have.
    #[error(
        "the key `{key}` is reserved: keys with `:` are given to barriers and merges; \
         use 1 to 128 of a-z A-Z 0-9 . _ -"
    )]
    ReservedKey {
        /// The key.
        key: String,
    },

    /// A text that is too long.
    #[error("{place}: the {what} has {size} bytes, more than {limit}: shorten it")]
    TooLong {
        /// Where.
        place: Place,
        /// Which text.
        what: &'static str,
        /// How long it is.
        size: usize,
        /// How long it may be.
        limit: usize,
    },

    /// A tag that is too long.
    #[error("the tag `{tag}` has {size} characters, more than {limit}: shorten it")]
    TagTooLong {
        /// How it begins.
        tag: String,
        /// How long it is, in characters.
        size: usize,
        /// How long it may be.
        limit: usize,
    },

    /// A text of nothing.
    #[error("{place}: a {what} is empty: fill it in or leave it out")]
    Empty {
        /// Where.
        place: Place,
        /// Which text.
        what: &'static str,
    },

    /// The one character that Postgres cannot store.
    #[error("{place}: the {what} holds a NUL character: leave it out")]
    HasNul {
        /// Where.
        place: Place,
        /// Which text.
        what: &'static str,
    },

    /// A duration or a number that cannot be kept.
    #[error("{place}: the {what} is {given}: use {range}")]
    OutOfRange {
        /// Where.
        place: Place,
        /// Which setting.
        what: &'static str,
        /// What was given.
        given: String,
        /// What it may be.
        range: &'static str,
    },

    /// Two steps with one key.
    #[error("the key `{key}` is declared {times} times: give each step a key of its own")]
    DuplicateKey {
        /// The key.
        key: String,
        /// How often it is there.
        times: usize,
    },

    /// A step after itself.
    #[error("step `{step}` depends on itself: remove the edge")]
    SelfDependency {
        /// The step.
        step: String,
    },

    /// A name of a step that is not there.
    #[error("{place} names `{key}` ({role}), and there is no such step{}", did_you_mean(.suggestion))]
    UnknownKey {
        /// Where it is named.
        place: Place,
        /// As what it is named.
        role: &'static str,
        /// The name.
        key: String,
        /// What may have been meant.
        suggestion: Option<String>,
    },

    /// Steps that wait for one another.
    #[error("cycle: {}: remove one of these edges", arrows(.path))]
    Cycle {
        /// The steps, each before the next; the last is the first again.
        path: Vec<String>,
    },

    /// One upstream, taken twice where there can be one value only.
    #[error("step `{step}` takes from `{upstream}` twice, and is given one value: take it once")]
    DuplicateEdge {
        /// The step.
        step: String,
        /// Its upstream.
        upstream: String,
    },

    /// A barrier with nothing before it.
    #[error("barrier `{barrier}` comes first, and nothing is before it to wait for: remove it")]
    BarrierFirst {
        /// The barrier.
        barrier: String,
    },

    /// A barrier with nothing after it.
    #[error("barrier `{barrier}` comes last, and nothing is after it to hold back: remove it")]
    BarrierLast {
        /// The barrier.
        barrier: String,
    },

    /// Two barriers with nothing between.
    #[error("barrier `{barrier}` follows `{previous}` with no step between: remove one of them")]
    BarrierTwice {
        /// The first of the two.
        previous: String,
        /// The second.
        barrier: String,
    },

    /// A barrier that only a part of a run would meet.
    #[error(
        "barrier `{barrier}` stands in the arm `{arm}` of `{branch}`: \
         put it before the branch or after its arms"
    )]
    BarrierInArm {
        /// The barrier.
        barrier: String,
        /// The branch.
        branch: String,
        /// The arm.
        arm: String,
    },

    /// A barrier in the middle of a branch.
    #[error(
        "a barrier stands between the branch `{branch}` and `{step}`, a step of its arm `{arm}`: \
         put the barrier before the branch or after its arms"
    )]
    ArmAcrossBarrier {
        /// The branch.
        branch: String,
        /// The arm.
        arm: String,
        /// The step.
        step: String,
    },

    /// A dependency against the order of the phases.
    #[error(
        "step `{step}` depends on `{upstream}` of a later phase: \
         a barrier between them makes each wait for the other; declare `{upstream}` before the barrier"
    )]
    LaterPhase {
        /// The step.
        step: String,
        /// Its upstream, declared after a barrier that `step` is before.
        upstream: String,
    },

    /// A value that is taken as sure and is not.
    #[error(
        "step `{step}` takes the value of `{upstream}` as sure, but {absence}: \
         take it as one that may be absent (`maybe`), or {}", .absence.remedy(upstream)
    )]
    MayBeAbsent {
        /// The step.
        step: String,
        /// Its upstream.
        upstream: String,
        /// Why the value may not be there.
        absence: Absence,
    },

    /// An outcome of a step that may have none.
    #[error(
        "step `{step}` takes the outcome of `{upstream}`, but {absence}, and then it has neither a \
         value nor a failure: take it as one that may be absent (`maybe`), or {}", .absence.remedy(upstream)
    )]
    NoOutcome {
        /// The step.
        step: String,
        /// Its upstream.
        upstream: String,
        /// Why it may not have run.
        absence: Absence,
    },

    /// A value of something that never has one.
    #[error(
        "{place} takes a value from the barrier `{barrier}`, which has none: take the order only"
    )]
    NoValue {
        /// Where.
        place: Place,
        /// The barrier.
        barrier: String,
    },

    /// The deciding step of a branch, whose failure is to be ignored.
    #[error(
        "the failure of `{step}` cannot be ignored: without its value no arm can be chosen; \
         use halt or continue, and do not make it optional"
    )]
    IgnoreOnBranch {
        /// The deciding step.
        step: String,
    },

    /// Optional, with a strategy that says otherwise.
    #[error(
        "step `{step}` is optional, which is to ignore its failure, and has another strategy of its \
         own: remove one of the two"
    )]
    OptionalWithStrategy {
        /// The step.
        step: String,
    },

    /// A branch that leads nowhere.
    #[error("branch `{branch}` has no arms: give it at least one")]
    NoArms {
        /// The branch.
        branch: String,
    },

    /// Two arms with one name.
    #[error("branch `{branch}` has the arm `{arm}` twice: give each arm a name of its own")]
    DuplicateArm {
        /// The branch.
        branch: String,
        /// The arm.
        arm: String,
    },

    /// An arm or a merge of a step that decides nothing.
    #[error("step `{step}` names `{key}` as its branch, which is no branch: name a branch")]
    NotABranch {
        /// The step.
        step: String,
        /// What it named.
        key: String,
    },

    /// An arm that its branch does not have.
    #[error("step `{step}` names the arm `{arm}`, which `{branch}` does not have: its arms are {}", listed(.arms))]
    UnknownArm {
        /// The step.
        step: String,
        /// The branch.
        branch: String,
        /// What it named.
        arm: String,
        /// The arms of the branch.
        arms: Vec<String>,
    },

    /// A step of an arm that would not wait for the decision.
    #[error(
        "step `{step}` stands in the arm `{arm}` of `{branch}` and would not wait for its decision: \
         let it depend on `{branch}`, or on a step of the same arm"
    )]
    ArmDetached {
        /// The step.
        step: String,
        /// The branch.
        branch: String,
        /// The arm.
        arm: String,
    },

    /// Branches that stand in the arms of each other.
    #[error("branch `{branch}` stands inside its own arm: take it out")]
    ArmOfItself {
        /// The branch.
        branch: String,
    },

    /// Steps that never both run.
    #[error(
        "step `{step}` depends on `{upstream}`, which stands in another arm of `{branch}`: \
         never do both run; remove the edge"
    )]
    OtherArm {
        /// The step.
        step: String,
        /// Its upstream.
        upstream: String,
        /// The branch whose arms they stand in.
        branch: String,
    },

    /// Embedded graphs, or arms, too deep in one another.
    #[error("step `{step}` lies more than {limit} {what} deep: flatten the pipeline")]
    TooDeep {
        /// The step.
        step: String,
        /// What lies in one another.
        what: &'static str,
        /// How deep they may.
        limit: usize,
    },

    /// A merge that stands elsewhere than its branch.
    #[error(
        "merge `{merge}` does not stand where its branch `{branch}` does: put both in one arm, or in none"
    )]
    MergeElsewhere {
        /// The merge.
        merge: String,
        /// The branch.
        branch: String,
    },

    /// Two values for one arm.
    #[error("merge `{merge}` has two values for the arm `{arm}`: an arm returns one")]
    DuplicateValue {
        /// The merge.
        merge: String,
        /// The arm.
        arm: String,
    },

    /// The failure is the whole input of the step that takes it.
    #[error(
        "step `{step}` runs only if `{upstream}` failed, and depends on other steps too: \
         let the failure be its only edge, and put what joins them after it"
    )]
    FailureWithOthers {
        /// The step.
        step: String,
        /// The step whose failure it takes.
        upstream: String,
    },

    /// The failure of something that does not fail.
    #[error("step `{step}` runs only if `{upstream}` failed, which it never does: remove `{step}`")]
    NeverFails {
        /// The step.
        step: String,
        /// The step whose failure it takes.
        upstream: String,
    },

    /// A step that waits for every end of another, where only a step after a failure does so, behind a barrier.
    #[error(
        "step `{step}` takes nothing but the end of `{upstream}` (`ended`), which only a step after a failure \
         takes, of the barrier before its phase: take the order only (`order`)"
    )]
    EndedWithoutBarrier {
        /// The step.
        step: String,
        /// Its upstream.
        upstream: String,
    },

    /// An any-join, or a step after a failure, whose upstream would not wait for what it waits for.
    #[error(
        "step `{step}` {verb} `{upstream}`, which stands outside of its {area}: \
         it could start before the {area} does; declare both in one"
    )]
    Elsewhere {
        /// The step.
        step: String,
        /// What it does with its upstream.
        verb: &'static str,
        /// Its upstream.
        upstream: String,
        /// What the upstream stands outside of: a phase or an arm.
        area: &'static str,
    },

    /// An any-join of nothing.
    #[error("step `{step}` waits for any of no steps: name at least one")]
    AnyOfNone {
        /// The step.
        step: String,
    },

    /// An any-join that takes from its upstreams differently.
    #[error(
        "step `{step}` waits for any of its upstreams and so takes from the one that succeeded first: \
         take the value of all of them, or the order only of all of them"
    )]
    AnyTakes {
        /// The step.
        step: String,
    },

    /// A step for each element, of no list or of several.
    #[error(
        "step `{step}` runs for each element of one list, and takes {taken} values: take exactly one, as sure"
    )]
    EachInput {
        /// The step.
        step: String,
        /// How many values it takes.
        taken: usize,
    },

    /// An input of more values than are taken, or of fewer.
    #[error(
        "the input of step `{step}` is made of {shaped} values, and its edges take {taken}: give \
         `input` one value for each edge that takes something, or leave it out"
    )]
    ShapeDiffers {
        /// The step.
        step: String,
        /// How many values its input is made of.
        shaped: usize,
        /// How many its edges take.
        taken: usize,
    },

    /// An input that says itself what may be absent.
    #[error("{place} has a `maybe` in its input: that is for its edges to say; put `one` there")]
    MaybeInInput {
        /// Where.
        place: Place,
    },

    /// An output of more values than are named, or of fewer.
    #[error(
        "the output of the pipeline is made of {shaped} values, and {named} steps are named: give \
         `output_shape` one value for each step in `output`, or leave it out"
    )]
    OutputShapeDiffers {
        /// How many values the output is made of.
        shaped: usize,
        /// How many steps are named.
        named: usize,
    },

    /// An input of another shape where there can be one value only.
    #[error("step `{step}` {why} and so takes one value as it is: leave `input` out")]
    ShapeOfOne {
        /// The step.
        step: String,
        /// Why it takes one value.
        why: &'static str,
    },

    /// A setting that what the step is cannot have.
    #[error("step `{step}` is a {kind} and cannot have {what}: remove them")]
    NotForKind {
        /// The step.
        step: String,
        /// What it is.
        kind: &'static str,
        /// What it has.
        what: &'static str,
    },

    /// A job without the options it is to be run with.
    #[error("step `{step}` has a job and no options: fill in those of its type")]
    NoOptions {
        /// The step.
        step: String,
    },

    /// A problem in an embedded graph.
    #[error("in the graph embedded as `{step}`: {problem}")]
    InChild {
        /// The step that embeds it.
        step: String,
        /// The problem.
        problem: Box<Problem>,
    },
}

jobs::debug_as_display!(Problem);

/// Why the value of a step may not be there.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Absence {
    /// It is optional.
    Optional,
    /// It has the strategy Ignore.
    Ignored,
    /// Its pipeline has the strategy Ignore, and it has none of its own.
    IgnoredByPipeline,
    /// It runs only if another failed.
    AfterFailure {
        /// The other.
        of: String,
    },
    /// It stands in an arm that the step after it does not stand in.
    InArm {
        /// The branch.
        branch: String,
        /// The arm.
        arm: String,
    },
    /// It is a merge to which an arm gives no value.
    ArmWithout {
        /// The branch.
        branch: String,
        /// The first such arm.
        arm: String,
    },
    /// It is a merge to which an arm gives a value that may be absent.
    ArmUnsure {
        /// The arm.
        arm: String,
        /// The step whose value it gives.
        value: String,
    },
    /// It is an any-join whose upstreams may all be left out.
    AnyOfNone,
}

impl fmt::Display for Absence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Optional => f.write_str("it is optional"),
            Self::Ignored => f.write_str("its failure is ignored"),
            Self::IgnoredByPipeline => {
                f.write_str("the pipeline ignores failures and it has no strategy of its own")
            }
            Self::AfterFailure { of } => write!(f, "it runs only if `{of}` failed"),
            Self::InArm { branch, arm } => {
                write!(f, "it runs only if the arm `{arm}` of `{branch}` is chosen")
            }
            Self::ArmWithout { branch, arm } => {
                write!(f, "the arm `{arm}` of `{branch}` returns nothing")
            }
            Self::ArmUnsure { arm, value } => {
                write!(f, "the arm `{arm}` returns `{value}`, which may be absent")
            }
            Self::AnyOfNone => f.write_str(
                "it waits for any of several steps that may all be left out (each runs only after a \
                 failure, or in an arm)",
            ),
        }
    }
}

impl Absence {
    fn remedy(&self, upstream: &str) -> String {
        match self {
            Self::Optional => format!("let `{upstream}` not be optional"),
            Self::Ignored => format!("give `{upstream}` the strategy halt or continue"),
            Self::IgnoredByPipeline => {
                format!("give `{upstream}` a strategy of its own, halt or continue")
            }
            Self::AfterFailure { .. } => "depend on it in order only".to_owned(),
            Self::InArm { branch, .. } => {
                format!("let every arm of `{branch}` return a value and take what they return")
            }
            Self::ArmWithout { .. } => "let every arm return a value".to_owned(),
            Self::ArmUnsure { value, .. } => format!("make `{value}` sure within its arm"),
            Self::AnyOfNone => format!("let `{upstream}` wait for a step that always runs, too"),
        }
    }
}

fn did_you_mean(suggestion: &Option<String>) -> String {
    match suggestion {
        Some(key) => format!(": did you mean `{key}`?"),
        None => ": declare it, or correct the name".to_owned(),
    }
}

/// A path as it is read: `a -> b -> a`; of a long one, its ends.
fn arrows(path: &[String]) -> String {
    const ENDS: usize = 6;
    if path.len() <= 2 * ENDS {
        return path.join(" -> ");
    }
    let left_out = path.len() - 2 * ENDS;
    format!(
        "{} -> ({left_out} more) -> {}",
        path[..ENDS].join(" -> "),
        path[path.len() - ENDS..].join(" -> "),
    )
}

fn listed(names: &[String]) -> String {
    const SHOWN: usize = 12;
    let mut text: Vec<String> = names.iter().take(SHOWN).map(|n| format!("`{n}`")).collect();
    if names.len() > SHOWN {
        text.push(format!("and {} more", names.len() - SHOWN));
    }
    text.join(", ")
}
