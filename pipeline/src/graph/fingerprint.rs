//! What tells apart graphs that behave differently.
//!
//! The fingerprint is taken of the compiled graph: of what runs, not of how it was written. What is
//! in it and what is not is a table in `docs/graphs/fingerprint.md`; the test below goes through it.
//! Every struct is taken apart field by field, so that a new field cannot be forgotten here.

use std::fmt;

use sha2::{Digest, Sha256};

use super::compiled::{Graph, Node};
use super::spec::{
    CallbackOn, CallbackSpec, GraphSpec, Join, Shape, StepKind, StepOptions, StepSpec, Strategy,
    Takes,
};

/// Sixteen bytes that are the same for graphs that behave alike, in every process and version of
/// this crate; shown as 32 hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; 16]);

impl Fingerprint {
    /// The bytes.
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// From bytes that were stored.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    pub(super) fn of(graph: &Graph) -> Self {
        let mut ink = Ink(Sha256::new());
        ink.text("pipeline graph 1");
        pipeline(graph, &mut ink);
        for node in graph.nodes() {
            self::node(graph, node, &mut ink);
        }
        let all: [u8; 32] = ink.0.finalize().into();
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&all[..16]);
        Self(bytes)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fingerprint({self})")
    }
}

/// What is hashed: numbers of fixed length, texts and lists behind their length, so that no two
/// graphs give the same bytes.
struct Ink(Sha256);

impl Ink {
    fn number(&mut self, number: u64) {
        self.0.update(number.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.update(text);
    }

    fn maybe(&mut self, number: Option<u64>) {
        self.number(u64::from(number.is_some()));
        self.number(number.unwrap_or(0));
    }
}

fn pipeline(graph: &Graph, ink: &mut Ink) {
    let GraphSpec {
        name,
        deadline_ms,
        asynchronous_commit,
        callbacks,
        output: _,       // by number, below
        output_shape: _, // resolved
        steps: _,        // node by node
        strategy: _,     // resolved in each node
        display_name: _,
        description: _,
        tags: _,
    } = graph.spec();
    ink.text(name);
    ink.maybe(*deadline_ms);
    ink.number(u64::from(*asynchronous_commit));
    ink.number(callbacks.len() as u64);
    for callback in callbacks {
        self::callback(callback, ink);
    }
    ink.number(graph.spec().output.len() as u64);
    for node in graph.output() {
        ink.number(node.no().into());
    }
    shape(graph.output_shape().as_ref(), ink);
    ink.number(graph.len() as u64);
}

fn callback(callback: &CallbackSpec, ink: &mut Ink) {
    let CallbackSpec {
        on,
        job,
        version,
        options,
    } = callback;
    ink.number(match on {
        CallbackOn::Complete => 0,
        CallbackOn::Success => 1,
        CallbackOn::Failure => 2,
    });
    ink.text(job);
    ink.number((*version).into());
    self::options(options, ink);
}

fn node(graph: &Graph, node: Node<'_>, ink: &mut Ink) {
    let StepSpec {
        key,
        kind,
        after: _, // with the edges that were added
        input: _, // resolved
        join,
        strategy: _, // resolved
        optional,
        arm: _, // by number
        options,
    } = node.step();
    ink.text(key);
    self::kind(graph, node, kind, ink);
    edges(node, ink);
    shape(node.shape().as_ref(), ink);
    ink.number(match join {
        Join::All => 0,
        Join::Any => 1,
    });
    ink.number(match node.strategy() {
        Strategy::Halt => 0,
        Strategy::Continue => 1,
        Strategy::Ignore => 2,
    });
    ink.number(u64::from(*optional));
    let arm = node.arms().last();
    ink.maybe(arm.map(|arm| arm.branch.into()));
    ink.maybe(arm.map(|arm| arm.index.into()));
    ink.number(u64::from(options.is_some()));
    if let Some(options) = options {
        self::options(options, ink);
    }
}

fn kind(graph: &Graph, node: Node<'_>, kind: &StepKind, ink: &mut Ink) {
    let job = |ink: &mut Ink, tag: u64, job: &str, version: u32| {
        ink.number(tag);
        ink.text(job);
        ink.number(version.into());
    };
    match kind {
        StepKind::Job { job: name, version } => job(ink, 0, name, *version),
        StepKind::Branch {
            job: name,
            version,
            arms,
        } => {
            job(ink, 1, name, *version);
            ink.number(arms.len() as u64);
            arms.iter().for_each(|arm| ink.text(arm));
        }
        StepKind::Merge { branch, values } => {
            let number = |key: &str| graph.find(key).map(|node| node.no().into());
            ink.number(2);
            ink.maybe(number(branch));
            // An arm returns one value: the order they are listed in says nothing.
            let mut values: Vec<_> = values.iter().collect();
            values.sort_unstable();
            ink.number(values.len() as u64);
            for (arm, step) in values {
                ink.text(arm);
                ink.maybe(number(step));
            }
        }
        StepKind::Barrier => ink.number(3),
        StepKind::Each {
            job: name,
            version,
            tolerate,
        } => {
            job(ink, 4, name, *version);
            ink.number(tolerate.unwrap_or(0).into());
        }
        StepKind::Child { graph: _ } => {
            ink.number(5);
            let child = node.child().map(Graph::fingerprint);
            ink.0.update(child.map_or([0; 16], |child| child.0));
        }
        StepKind::Timer { delay_ms } => {
            ink.number(6);
            ink.number(*delay_ms);
        }
        StepKind::Signal { name, timeout_ms } => {
            ink.number(7);
            ink.text(name);
            ink.maybe(*timeout_ms);
        }
    }
}

/// Edges that take something make the input, in their order; those that do not have none.
fn edges(node: Node<'_>, ink: &mut Ink) {
    let taking = node.upstream().iter().filter(|up| up.takes.is_input());
    let mut following: Vec<u32> = node
        .upstream()
        .iter()
        .filter(|up| !up.takes.is_input())
        .map(|up| up.no)
        .collect();
    following.sort_unstable();
    ink.number((node.upstream().len() - following.len()) as u64);
    for up in taking {
        ink.number(up.no.into());
        ink.number(match up.takes {
            Takes::Value => 0,
            Takes::Maybe => 1,
            Takes::Outcome => 2,
            Takes::Failure => 3,
            Takes::Order | Takes::Ended => 4,
        });
    }
    ink.number(following.len() as u64);
    following.iter().for_each(|no| ink.number((*no).into()));
}

/// No deeper than tuples may lie in one another.
fn shape(shape: Option<&Shape>, ink: &mut Ink) {
    match shape {
        None => ink.number(0),
        Some(Shape::One) => ink.number(1),
        Some(Shape::List(count)) => {
            ink.number(2);
            ink.number((*count).into());
        }
        Some(Shape::Maybe) => ink.number(4),
        Some(Shape::Tuple(inner)) => {
            ink.number(3);
            ink.number(inner.len() as u64);
            inner.iter().for_each(|one| self::shape(Some(one), ink));
        }
    }
}

fn options(options: &StepOptions, ink: &mut Ink) {
    let StepOptions {
        queue,
        priority,
        max_attempts,
        timeout_ms,
        lease_ms,
        backoff,
        delay_ms,
    } = options;
    ink.text(queue);
    ink.0.update(priority.to_le_bytes());
    ink.number((*max_attempts).into());
    ink.maybe(*timeout_ms);
    ink.number(*lease_ms);
    // As it is stored: what a backoff may come to hold is in it too.
    ink.text(&serde_json::to_string(backoff).unwrap_or_default());
    ink.number(*delay_ms);
}
