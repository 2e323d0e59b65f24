//! The limits of a graph, checked before anything is written: those of rule 29, and further ones.

use std::time::Duration;

use super::invalid::Place;
use super::keys::{is_generated, is_name};
use super::problem::Problem;
use super::spec::{CallbackSpec, GraphSpec, Shape, StepKind, StepOptions, StepSpec};

/// The number of steps that a graph may have, those of embedded graphs included.
pub(super) const MAX_STEPS: usize = 100_000;
/// The number of edges that a graph may have, those of barriers and merges included.
pub(super) const MAX_EDGES: usize = 1_000_000;
/// The number of arms that a branch may have.
const MAX_ARMS: usize = 1_000;
/// The number of callbacks that a pipeline may have.
const MAX_CALLBACKS: usize = 100;
/// The number of arms that a step may be nested in.
pub(super) const MAX_NESTED_ARMS: usize = 64;
/// The number of graphs that a graph may be embedded in.
pub(super) const MAX_NESTED_GRAPHS: usize = 16;
/// The number of tuples that a value of an input or output may be nested in.
const MAX_NESTED_TUPLES: usize = 8;
/// The number of tags that a pipeline or a run may have.
pub(crate) const MAX_TAGS: usize = 16;
/// The length of the longest tag, in characters.
pub(crate) const MAX_TAG_CHARS: usize = 64;
/// The length of the longest display name, in bytes.
const MAX_DISPLAY_NAME_BYTES: usize = 256;
/// The length of the longest description, in bytes.
const MAX_DESCRIPTION_BYTES: usize = 4 << 10;
/// The longest duration, in milliseconds.
const MAX_DURATION_MS: u64 = jobs::extension::limits::MAX_DURATION.as_secs() * 1_000;
/// The text of the allowed range of durations, for error messages.
const DURATION_RANGE: &str = "from 1 ms to 100 years";

/// Checks what holds for the whole pipeline.
pub(super) fn pipeline(spec: &GraphSpec, problems: &mut Vec<Problem>) {
    texts(spec, problems);
    if spec.callbacks.len() > MAX_CALLBACKS {
        problems.push(Problem::TooMany {
            place: Place::Pipeline,
            what: "callbacks",
            count: spec.callbacks.len(),
            limit: MAX_CALLBACKS,
            remedy: "combine several callbacks into one",
        });
    }
    for (at, one) in spec.callbacks.iter().enumerate() {
        callback(at + 1, one, problems);
    }
}

fn texts(spec: &GraphSpec, problems: &mut Vec<Problem>) {
    let place = || Place::Pipeline;
    name(place, "pipeline's name", &spec.name, problems);
    if let Some(text) = &spec.display_name {
        self::text("display name", text, MAX_DISPLAY_NAME_BYTES, problems);
    }
    if let Some(text) = &spec.description {
        self::text("description", text, MAX_DESCRIPTION_BYTES, problems);
    }
    if spec.tags.len() > MAX_TAGS {
        problems.push(Problem::TooMany {
            place: place(),
            what: "tags",
            count: spec.tags.len(),
            limit: MAX_TAGS,
            remedy: "keep those that runs are searched by",
        });
    }
    for tag in &spec.tags {
        self::tag(tag, problems);
    }
    if let Some(ms) = spec.deadline_ms {
        duration(place, "deadline", ms, problems);
    }
    if spec.output.len() > MAX_STEPS {
        problems.push(Problem::TooMany {
            place: place(),
            what: "outputs",
            count: spec.output.len(),
            limit: MAX_STEPS,
            remedy: "return the outputs of fewer steps",
        });
    }
    if let Some(shape) = &spec.output_shape {
        nesting(place, "nested tuples in its output", shape, problems);
    }
}

fn text(what: &'static str, text: &str, limit: usize, problems: &mut Vec<Problem>) {
    if text.len() > limit {
        problems.push(Problem::TooLong {
            place: Place::Pipeline,
            what,
            size: text.len(),
            limit,
        });
    }
    if text.contains('\0') {
        problems.push(Problem::HasNul {
            place: Place::Pipeline,
            what,
        });
    }
}

fn tag(tag: &str, problems: &mut Vec<Problem>) {
    let (place, what) = (Place::Pipeline, "tag");
    let size = tag.chars().count();
    if tag.is_empty() {
        problems.push(Problem::Empty { place, what });
    } else if size > MAX_TAG_CHARS {
        problems.push(Problem::TagTooLong {
            tag: shown(tag),
            size,
            limit: MAX_TAG_CHARS,
        });
    } else if tag.contains('\0') {
        problems.push(Problem::HasNul { place, what });
    }
}

/// Checks the names, durations and options of a step.
pub(super) fn step(step: &StepSpec, problems: &mut Vec<Problem>) {
    let place = || Place::Step(shown(&step.key));
    key(step, problems);
    match &step.kind {
        StepKind::Job { job, .. } | StepKind::Each { job, .. } => {
            name(place, "job's name", job, problems);
        }
        StepKind::Branch { job, arms, .. } => {
            name(place, "job's name", job, problems);
            self::arms(step, arms, problems);
        }
        StepKind::Timer { delay_ms } => duration(place, "timer's delay", *delay_ms, problems),
        StepKind::Signal { name, timeout_ms } => {
            self::name(place, "signal's name", name, problems);
            if let Some(ms) = timeout_ms {
                duration(place, "signal's timeout", *ms, problems);
            }
        }
        StepKind::Merge { .. } | StepKind::Barrier | StepKind::Child { .. } => {}
    }
    if let Some(shape) = &step.input {
        self::shape(place, shape, problems);
    }
    if let Some(options) = &step.options {
        self::options(place, options, problems);
    }
}

fn shape(place: impl Fn() -> Place, shape: &Shape, problems: &mut Vec<Problem>) {
    nesting(&place, "nested tuples in its input", shape, problems);
    if shape.parts().any(|(_, part)| *part == Shape::Maybe) {
        problems.push(Problem::MaybeInInput { place: place() });
    }
    let is_empty = |shape: &Shape| matches!(shape, Shape::Tuple(inner) if inner.is_empty());
    if shape.parts().any(|(_, part)| is_empty(part)) {
        problems.push(Problem::Empty {
            place: place(),
            what: "tuple of its input",
        });
    }
}

fn nesting(
    place: impl Fn() -> Place,
    what: &'static str,
    shape: &Shape,
    problems: &mut Vec<Problem>,
) {
    let tuples = shape
        .parts()
        .filter(|(_, part)| matches!(part, Shape::Tuple(_)));
    let deepest = tuples.map(|(around, _)| around + 1).max().unwrap_or(0);
    if deepest > MAX_NESTED_TUPLES {
        problems.push(Problem::TooMany {
            place: place(),
            what,
            count: deepest,
            limit: MAX_NESTED_TUPLES,
            remedy: "flatten it",
        });
    }
}

/// Checks the key of a step. Only barriers and merges may have generated keys.
fn key(step: &StepSpec, problems: &mut Vec<Problem>) {
    let resolved = matches!(step.kind, StepKind::Barrier | StepKind::Merge { .. });
    if is_name(&step.key) || resolved && is_generated(&step.key) {
        return;
    }
    problems.push(if step.key.contains(':') {
        Problem::ReservedKey {
            key: shown(&step.key),
        }
    } else {
        Problem::InvalidName {
            place: Place::Step(shown(&step.key)),
            what: "key",
            value: shown(&step.key),
        }
    });
}

fn arms(step: &StepSpec, arms: &[String], problems: &mut Vec<Problem>) {
    let place = || Place::Step(shown(&step.key));
    if arms.is_empty() {
        problems.push(Problem::NoArms {
            branch: shown(&step.key),
        });
    }
    if arms.len() > MAX_ARMS {
        problems.push(Problem::TooMany {
            place: place(),
            what: "arms",
            count: arms.len(),
            limit: MAX_ARMS,
            remedy: "decide in two branches, one after the other",
        });
    }
    let mut seen = std::collections::HashSet::new();
    for arm in arms {
        name(place, "arm's name", arm, problems);
        if !seen.insert(arm) {
            problems.push(Problem::DuplicateArm {
                branch: shown(&step.key),
                arm: shown(arm),
            });
        }
    }
}

fn callback(number: usize, callback: &CallbackSpec, problems: &mut Vec<Problem>) {
    let place = || Place::Callback(number);
    name(place, "job's name", &callback.job, problems);
    options(place, &callback.options, problems);
}

fn options(place: impl Fn() -> Place + Copy, options: &StepOptions, problems: &mut Vec<Problem>) {
    name(place, "queue's name", &options.queue, problems);
    let mut out = |what, given: String, range| {
        problems.push(Problem::OutOfRange {
            place: place(),
            what,
            given,
            range,
        });
    };
    if options.max_attempts == 0 || i16::try_from(options.max_attempts).is_err() {
        let given = options.max_attempts.to_string();
        out("option max_attempts", given, "from 1 to 32767");
    }
    if !(1_000..=86_400_000).contains(&options.lease_ms) {
        out("lease", ms(options.lease_ms), "from 1 s to 1 day");
    }
    if options.delay_ms > MAX_DURATION_MS {
        out("delay", ms(options.delay_ms), "at most 100 years");
    }
    let backoff = &options.backoff;
    let longest = Duration::from_millis(MAX_DURATION_MS);
    if backoff.base > longest || backoff.max > longest {
        let given = format!("{:?} to {:?}", backoff.base, backoff.max);
        out("backoff", given, "at most 100 years");
    }
    if backoff.max < backoff.base {
        let given = format!("{:?} to {:?}", backoff.base, backoff.max);
        let range = "a first wait that is not longer than the longest one";
        out("backoff", given, range);
    }
    if !(0.0..=1.0).contains(&backoff.jitter) {
        out(
            "backoff's jitter",
            backoff.jitter.to_string(),
            "from 0 to 1",
        );
    }
    if let Some(ms) = options.timeout_ms {
        duration(place, "timeout", ms, problems);
    }
}

fn duration(
    place: impl Fn() -> Place,
    what: &'static str,
    given: u64,
    problems: &mut Vec<Problem>,
) {
    if !(1..=MAX_DURATION_MS).contains(&given) {
        problems.push(Problem::OutOfRange {
            place: place(),
            what,
            given: ms(given),
            range: DURATION_RANGE,
        });
    }
}

fn name(place: impl Fn() -> Place, what: &'static str, value: &str, problems: &mut Vec<Problem>) {
    if !is_name(value) {
        problems.push(Problem::InvalidName {
            place: place(),
            what,
            value: shown(value),
        });
    }
}

fn ms(ms: u64) -> String {
    format!("{ms} ms")
}

/// Returns a step's key as messages show it. The node where the arms of a branch meet has the key of the branch,
/// because the user did not write another.
pub(super) fn shown_key(step: &StepSpec) -> String {
    match &step.kind {
        StepKind::Merge { branch, .. } if is_generated(&step.key) => shown(branch),
        _ => shown(&step.key),
    }
}

/// Returns a value as messages show it: escaped and cut off if it is long or strange. A valid key is shown whole.
pub(crate) fn shown(value: &str) -> String {
    const MAX_WHOLE_BYTES: usize = 150;
    if value.len() <= MAX_WHOLE_BYTES && value.bytes().all(|byte| byte.is_ascii_graphic()) {
        return value.to_owned();
    }
    let mut text: String = value
        .chars()
        .take(64)
        .flat_map(char::escape_debug)
        .collect();
    if value.chars().nth(64).is_some() {
        text.push('…');
    }
    text
}
