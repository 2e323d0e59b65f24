//! The problems that validation finds in a graph, each with its message.

use std::fmt;

use super::invalid::Place;

/// One problem of a graph. Its message names the steps, the value and the remedy.
#[derive(Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// A mistake that only the declaration can show.
    #[error(transparent)]
    Declared(#[from] super::DeclarationError),

    /// The pipeline has no steps.
    #[error("the pipeline has no steps: declare at least one")]
    NoSteps,

    /// There is more of something than the limit allows.
    #[error("{place} has {count} {what}, more than {limit}: {remedy}")]
    TooMany {
        /// The step, callback or pipeline.
        place: Place,
        /// The things that are counted.
        what: &'static str,
        /// How many there are.
        count: usize,
        /// How many are allowed.
        limit: usize,
        /// The remedy.
        remedy: &'static str,
    },

    /// A name is empty, too long, or has other characters.
    #[error(
        "{place}: the {what} `{value}` is invalid: use 1 to 128 of the characters a-z A-Z 0-9 . _ -"
    )]
    InvalidName {
        /// The step, callback or pipeline.
        place: Place,
        /// The name that is invalid.
        what: &'static str,
        /// The value that was given.
        value: String,
    },

    /// A step has a key of the form that barriers and branches are given.
    #[error(
        "the key `{key}` is reserved: keys with `:` are given to barriers and branches; use 1 to 128 of the characters \
         a-z A-Z 0-9 . _ -"
    )]
    ReservedKey {
        /// The key.
        key: String,
    },

    /// A text is too long.
    #[error("{place}: the {what} has {size} bytes, more than {limit}: shorten it")]
    TooLong {
        /// The step, callback or pipeline.
        place: Place,
        /// The text that is too long.
        what: &'static str,
        /// Its length in bytes.
        size: usize,
        /// The length that is allowed.
        limit: usize,
    },

    /// A tag is too long.
    #[error("the tag `{tag}` has {size} characters, more than {limit}: shorten it")]
    TagTooLong {
        /// The beginning of the tag.
        tag: String,
        /// Its length in characters.
        size: usize,
        /// The length that is allowed.
        limit: usize,
    },

    /// A text or a tuple is empty.
    #[error("{place}: a {what} is empty: fill it in or leave it out")]
    Empty {
        /// The step, callback or pipeline.
        place: Place,
        /// The text or tuple that is empty.
        what: &'static str,
    },

    /// A text holds a NUL character, which Postgres cannot store.
    #[error("{place}: the {what} holds a NUL character, which Postgres cannot store: remove it")]
    HasNul {
        /// The step, callback or pipeline.
        place: Place,
        /// The text.
        what: &'static str,
    },

    /// A duration or a number is out of range.
    #[error("{place}: the {what} is {given}: use {range}")]
    OutOfRange {
        /// The step, callback or pipeline.
        place: Place,
        /// The setting.
        what: &'static str,
        /// The value that was given.
        given: String,
        /// The values that are allowed.
        range: &'static str,
    },

    /// Several steps have one key.
    #[error("the key `{key}` is declared {times} times: give each step a key of its own")]
    DuplicateKey {
        /// The key.
        key: String,
        /// How many steps have it.
        times: usize,
    },

    /// A step runs after itself.
    #[error("step `{step}` runs after itself: remove this edge")]
    SelfDependency {
        /// The key of the step.
        step: String,
    },

    /// A step is named that does not exist.
    #[error(
        "{place} names `{key}` ({role}), and there is no step with this key{}", did_you_mean(.suggestion)
    )]
    UnknownKey {
        /// The step or pipeline that names it.
        place: Place,
        /// The role of the name.
        role: &'static str,
        /// The name.
        key: String,
        /// A key that is spelled alike.
        suggestion: Option<String>,
    },

    /// Steps wait for one another in a cycle.
    #[error("cycle: {}: remove one of these edges", arrows(.path))]
    Cycle {
        /// The steps of the cycle, each before the next; the first is repeated at the end.
        path: Vec<String>,
    },

    /// A step takes one value twice where it is given only one.
    #[error(
        "step `{step}` takes the value of `{upstream}` twice, and is given only one value: take it once"
    )]
    DuplicateEdge {
        /// The key of the step.
        step: String,
        /// The key of the upstream step.
        upstream: String,
    },

    /// A barrier has no step before it.
    #[error(
        "barrier `{barrier}` has no step before it: remove the barrier, or declare a step before it"
    )]
    BarrierFirst {
        /// The key of the barrier.
        barrier: String,
    },

    /// A barrier has no step after it.
    #[error(
        "barrier `{barrier}` has no step after it: remove the barrier, or declare a step after it"
    )]
    BarrierLast {
        /// The key of the barrier.
        barrier: String,
    },

    /// Two barriers have no step between them.
    #[error("barriers `{previous}` and `{barrier}` have no step between them: remove one of them")]
    BarrierTwice {
        /// The key of the first barrier.
        previous: String,
        /// The key of the second barrier.
        barrier: String,
    },

    /// A barrier is declared inside an arm.
    #[error(
        "barrier `{barrier}` is inside the arm `{arm}` of branch `{branch}`: declare the barrier before the branch or \
         after it"
    )]
    BarrierInArm {
        /// The key of the barrier.
        barrier: String,
        /// The key of the branch.
        branch: String,
        /// The name of the arm.
        arm: String,
    },

    /// A barrier is between a branch and a step of one of its arms.
    #[error(
        "a barrier is between the branch `{branch}` and step `{step}` of its arm `{arm}`: declare the barrier before the \
         branch or after it"
    )]
    ArmAcrossBarrier {
        /// The key of the branch.
        branch: String,
        /// The name of the arm.
        arm: String,
        /// The key of the step.
        step: String,
    },

    /// A step runs after a step of a later phase.
    #[error(
        "step `{step}` runs after `{upstream}`, which is in a later phase: declare `{upstream}` before the barrier, or \
         `{step}` after it"
    )]
    LaterPhase {
        /// The key of the step.
        step: String,
        /// The key of the upstream step.
        upstream: String,
    },

    /// A step takes a value that may be absent as if it were always present.
    #[error(
        "step `{step}` takes the value of `{upstream}` as always present, but {absence}: {}", .absence.remedy(upstream)
    )]
    MayBeAbsent {
        /// The key of the step.
        step: String,
        /// The key of the upstream step, or of a branch.
        upstream: String,
        /// Why the value may be absent.
        absence: Absence,
    },

    /// A step takes the outcome of a step that may not run.
    #[error(
        "step `{step}` takes the outcome of `{upstream}`, but {absence}, and then there is neither a value nor a failure: \
         {}", .absence.remedy(upstream)
    )]
    NoOutcome {
        /// The key of the step.
        step: String,
        /// The key of the upstream step.
        upstream: String,
        /// Why the upstream step may not run.
        absence: Absence,
    },

    /// A value is taken from a barrier.
    #[error(
        "{place} takes a value from the barrier `{barrier}`, which has none: take its order only"
    )]
    NoValue {
        /// The step or pipeline.
        place: Place,
        /// The key of the barrier.
        barrier: String,
    },

    /// The failure of a branch's deciding step is ignored.
    #[error(
        "the failure of branch `{step}` cannot be ignored: without a decision no arm can be chosen; use \
         `.failure_strategy(Halt)` or `.failure_strategy(Continue)`, and not `.optional()`"
    )]
    IgnoreOnBranch {
        /// The key of the branch.
        step: String,
    },

    /// A step is optional and has another failure strategy.
    #[error(
        "step `{step}` is optional, which ignores its failure, and has another failure strategy: remove `.optional()` or \
         `.failure_strategy(..)`"
    )]
    OptionalWithStrategy {
        /// The key of the step.
        step: String,
    },

    /// A branch has no arms.
    #[error("branch `{branch}` has no arms: give it at least one")]
    NoArms {
        /// The key of the branch.
        branch: String,
    },

    /// Two arms of a branch have one name.
    #[error(
        "branch `{branch}` has two arms with the name `{arm}`: give each arm a name of its own"
    )]
    DuplicateArm {
        /// The key of the branch.
        branch: String,
        /// The name of the arms.
        arm: String,
    },

    /// A step names a branch that is not one.
    #[error(
        "step `{step}` names `{key}` as its branch, but `{key}` is not a branch: name a branch"
    )]
    NotABranch {
        /// The key of the step.
        step: String,
        /// The key that it names.
        key: String,
    },

    /// A step names an arm that its branch does not have.
    #[error(
        "step `{step}` names the arm `{arm}`, which branch `{branch}` does not have: its arms are {}", listed(.arms)
    )]
    UnknownArm {
        /// The key of the step.
        step: String,
        /// The key of the branch.
        branch: String,
        /// The name that it names.
        arm: String,
        /// The arms of the branch.
        arms: Vec<String>,
    },

    /// A step of an arm does not wait for the branch.
    #[error(
        "step `{step}` is in the arm `{arm}` of branch `{branch}` and does not wait for its decision: let it run after \
         `{branch}`, or after a step of the same arm"
    )]
    ArmDetached {
        /// The key of the step.
        step: String,
        /// The key of the branch.
        branch: String,
        /// The name of the arm.
        arm: String,
    },

    /// A branch is inside one of its own arms.
    #[error("branch `{branch}` is inside one of its own arms: move it out")]
    ArmOfItself {
        /// The key of the branch.
        branch: String,
    },

    /// A step runs after a step of another arm, which never runs in the same run.
    #[error(
        "step `{step}` runs after `{upstream}`, which is in another arm of branch `{branch}`: the two never run in one run; \
         remove this edge"
    )]
    OtherArm {
        /// The key of the step.
        step: String,
        /// The key of the upstream step.
        upstream: String,
        /// The key of the branch.
        branch: String,
    },

    /// Embedded graphs, or arms, are nested too deep.
    #[error("step `{step}` is nested in more than {limit} {what}: flatten the pipeline")]
    TooDeep {
        /// The key of the step.
        step: String,
        /// The things that are nested.
        what: &'static str,
        /// The nesting that is allowed.
        limit: usize,
    },

    /// A merge is not in the arm that its branch is in.
    #[error(
        "merge `{merge}` is not where its branch `{branch}` is: declare both in one arm, or in none"
    )]
    MergeElsewhere {
        /// The key of the merge.
        merge: String,
        /// The key of the branch.
        branch: String,
    },

    /// A merge has two values for one arm.
    #[error("merge `{merge}` has two values for the arm `{arm}`: give it one")]
    DuplicateValue {
        /// The key of the merge.
        merge: String,
        /// The name of the arm.
        arm: String,
    },

    /// A step after a failure also runs after other steps.
    #[error(
        "step `{step}` runs only if `{upstream}` fails, and also runs after other steps: keep the failure as its only \
         upstream step, and declare a step after it that joins the others"
    )]
    FailureWithOthers {
        /// The key of the step.
        step: String,
        /// The key of the step whose failure it waits for.
        upstream: String,
    },

    /// A step waits for the failure of something that cannot fail.
    #[error(
        "step `{step}` runs only if `{upstream}` fails, and `{upstream}` cannot fail: remove `{step}`"
    )]
    NeverFails {
        /// The key of the step.
        step: String,
        /// The key of the upstream step.
        upstream: String,
    },

    /// An `ended` edge is not between a barrier and a step after a failure.
    #[error(
        "step `{step}` takes only the end of `{upstream}` (`ended`), which only a step after a failure takes, from the \
         barrier before its phase: take the order (`order`)"
    )]
    EndedWithoutBarrier {
        /// The key of the step.
        step: String,
        /// The key of the upstream step.
        upstream: String,
    },

    /// A step could start before its phase or its arm, because an upstream step is outside.
    #[error(
        "step `{step}` {verb} `{upstream}`, which is outside of its {area}: it could start before the {area} does; declare \
         both in one {area}"
    )]
    Elsewhere {
        /// The key of the step.
        step: String,
        /// The relation of the step to the upstream step.
        verb: &'static str,
        /// The key of the upstream step.
        upstream: String,
        /// The phase or arm that the upstream step is outside of.
        area: &'static str,
    },

    /// A step waits for any of no steps.
    #[error("step `{step}` waits for any of no steps: name at least one")]
    AnyOfNone {
        /// The key of the step.
        step: String,
    },

    /// A step waits for any of several steps and takes from them differently.
    #[error(
        "step `{step}` waits for any of several steps, and takes from them differently: take the value of all of them, or \
         the order of all of them"
    )]
    AnyTakes {
        /// The key of the step.
        step: String,
    },

    /// A step that runs for each element of a list takes no list, or several.
    #[error(
        "step `{step}` runs for each element of one list, and takes {taken} values: take exactly one that is always \
         present"
    )]
    EachInput {
        /// The key of the step.
        step: String,
        /// How many values it takes.
        taken: usize,
    },

    /// The input of a step has another number of values than its edges.
    #[error(
        "the input of step `{step}` has {shaped} values, and its edges take {taken}: give `input` one value for each edge \
         that takes a value, or leave it out"
    )]
    ShapeDiffers {
        /// The key of the step.
        step: String,
        /// How many values the input has.
        shaped: usize,
        /// How many values the edges take.
        taken: usize,
    },

    /// The shape of an input says that a value may be absent, which its edge says.
    #[error(
        "{place} has `maybe` in the shape of its input, where its edges say what may be absent: write `one`"
    )]
    MaybeInInput {
        /// The step.
        place: Place,
    },

    /// The output of the pipeline has another number of values than the steps that it names.
    #[error(
        "the output of the pipeline has {shaped} values, and names {named} steps: give `output_shape` one value for each \
         step in `output`, or leave it out"
    )]
    OutputShapeDiffers {
        /// How many values the output has.
        shaped: usize,
        /// How many steps it names.
        named: usize,
    },

    /// An input has a shape where it can only be one value.
    #[error("step `{step}` {why} and so takes one value: leave `input` out")]
    ShapeOfOne {
        /// The key of the step.
        step: String,
        /// Why it takes one value.
        why: &'static str,
    },

    /// A step has a setting that its kind cannot have.
    #[error("step `{step}` is a {kind} and cannot have {what}: remove them")]
    NotForKind {
        /// The key of the step.
        step: String,
        /// The kind of the step.
        kind: &'static str,
        /// The setting.
        what: &'static str,
    },

    /// A step with a job has no options.
    #[error("step `{step}` has a job and no options: give it those of its job type")]
    NoOptions {
        /// The key of the step.
        step: String,
    },

    /// A graph that is embedded as a step has a problem.
    #[error("in the graph embedded as `{step}`: {problem}")]
    InChild {
        /// The key of the step.
        step: String,
        /// The problem of the embedded graph.
        problem: Box<Problem>,
    },
}

jobs::debug_as_display!(Problem);

/// Why the value of a step may be absent.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Absence {
    /// The step is optional.
    Optional,
    /// The step has the strategy Ignore.
    Ignored,
    /// The pipeline has the strategy Ignore, and the step has none of its own.
    IgnoredByPipeline,
    /// The step runs only if another step fails.
    AfterFailure {
        /// The key of the other step.
        of: String,
    },
    /// The step is in an arm that the step after it is not in.
    InArm {
        /// The key of the branch.
        branch: String,
        /// The name of the arm.
        arm: String,
    },
    /// An arm of the branch returns no value.
    ArmWithout {
        /// The key of the branch.
        branch: String,
        /// The name of the first such arm.
        arm: String,
    },
    /// An arm of the branch returns a value that may be absent.
    ArmUnsure {
        /// The name of the arm.
        arm: String,
        /// The key of the step that the arm returns.
        value: String,
    },
    /// The step waits for any of several steps, and all of them may be skipped.
    AnyOfNone,
}

impl fmt::Display for Absence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Optional => f.write_str("it is optional"),
            Self::Ignored => f.write_str("its failure is ignored"),
            Self::IgnoredByPipeline => {
                f.write_str("the pipeline ignores failures and it has no failure strategy of its own")
            }
            Self::AfterFailure { of } => write!(f, "it runs only if `{of}` fails"),
            Self::InArm { branch, arm } => {
                write!(f, "it runs only if branch `{branch}` chooses the arm `{arm}`")
            }
            Self::ArmWithout { branch, arm } => {
                write!(f, "the arm `{arm}` of branch `{branch}` returns nothing")
            }
            Self::ArmUnsure { arm, value } => {
                write!(f, "the arm `{arm}` returns `{value}`, which may be absent")
            }
            Self::AnyOfNone => f.write_str(
                "it waits for any of several steps that may all be skipped (each runs only after a failure, or in an \
                 arm)",
            ),
        }
    }
}

impl Absence {
    fn remedy(&self, upstream: &str) -> String {
        match self {
            Self::Optional => format!(
                "take an `Option` from the handle that `.optional()` returned, or remove `.optional()` from `{upstream}`"
            ),
            Self::Ignored => format!(
                "take an `Option` or a `Result` from the handle that `.failure_strategy(Ignore)` returned, or give \
                 `{upstream}` the strategy `Halt` or `Continue`"
            ),
            Self::IgnoredByPipeline => format!(
                "give `{upstream}` the strategy `Halt` or `Continue`, or `.failure_strategy(Ignore)`, whose handle gives \
                 an `Option`"
            ),
            Self::AfterFailure { .. } => {
                format!("take an `Option`, or only the order: `p.following(..)` of `{upstream}`")
            }
            Self::InArm { branch, .. } => format!(
                "return `{upstream}` from its arm, and use the handle that the branch `{branch}` returns"
            ),
            Self::ArmWithout { .. } => {
                "take an `Option`, or return a step from every arm".to_owned()
            }
            Self::ArmUnsure { value, .. } => {
                format!(
                    "take an `Option`, or return a step from the arm that is always present, instead of `{value}`"
                )
            }
            Self::AnyOfNone => {
                format!(
                    "take an `Option`, or let `{upstream}` also wait for a step that always runs"
                )
            }
        }
    }
}

fn did_you_mean(suggestion: &Option<String>) -> String {
    match suggestion {
        Some(key) => format!(": did you mean `{key}`?"),
        None => ": declare it, or correct the name".to_owned(),
    }
}

/// Writes a path as `a -> b -> a`; of a long path, only its ends.
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
