//! The fingerprint of a graph.
//!
//! It is taken from the compiled graph, so that it does not depend on how the graph was written. The table in
//! `docs/graphs/fingerprint.md` lists what changes it, and a test checks the table. Every struct is destructured, so that
//! a new field cannot be forgotten here.

use std::fmt;

use sha2::{Digest, Sha256};

use super::compiled::{Graph, Node};
use super::spec::{
    CallbackOn, CallbackSpec, GraphSpec, Join, Shape, StepKind, StepOptions, StepSpec, Strategy,
    Takes,
};

/// Sixteen bytes that are equal for graphs that behave alike, in every process and version of this crate. `Display`
/// writes 32 hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint([u8; 16]);

impl Fingerprint {
    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// Creates a fingerprint from stored bytes.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    pub(super) fn of(graph: &Graph) -> Self {
        let mut hasher = FingerprintHasher(Sha256::new());
        hasher.text("pipeline graph 1");
        pipeline(graph, &mut hasher);
        for node in graph.nodes() {
            self::node(graph, node, &mut hasher);
        }
        let all: [u8; 32] = hasher.0.finalize().into();
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

/// Hashes numbers with a fixed length, and texts and lists after their length, so that different graphs never hash the
/// same bytes.
struct FingerprintHasher(Sha256);

impl FingerprintHasher {
    fn number(&mut self, number: u64) {
        self.0.update(number.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.update(text);
    }

    fn optional(&mut self, number: Option<u64>) {
        self.number(u64::from(number.is_some()));
        self.number(number.unwrap_or(0));
    }
}

fn pipeline(graph: &Graph, hasher: &mut FingerprintHasher) {
    let GraphSpec {
        name,
        deadline_ms,
        asynchronous_commit,
        callbacks,
        output: _,       // hashed by number, below
        output_shape: _, // resolved
        steps: _,        // node by node
        strategy: _,     // resolved in each node
        display_name: _,
        description: _,
        tags: _,
    } = graph.spec();
    hasher.text(name);
    hasher.optional(*deadline_ms);
    hasher.number(u64::from(*asynchronous_commit));
    hasher.number(callbacks.len() as u64);
    for callback in callbacks {
        self::callback(callback, hasher);
    }
    hasher.number(graph.spec().output.len() as u64);
    for node in graph.output() {
        hasher.number(node.no().into());
    }
    shape(graph.output_shape().as_ref(), hasher);
    hasher.number(graph.len() as u64);
}

fn callback(callback: &CallbackSpec, hasher: &mut FingerprintHasher) {
    let CallbackSpec {
        on,
        job,
        version,
        options,
    } = callback;
    hasher.number(match on {
        CallbackOn::Complete => 0,
        CallbackOn::Success => 1,
        CallbackOn::Failure => 2,
    });
    hasher.text(job);
    hasher.number((*version).into());
    self::options(options, hasher);
}

fn node(graph: &Graph, node: Node<'_>, hasher: &mut FingerprintHasher) {
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
    hasher.text(key);
    self::kind(graph, node, kind, hasher);
    edges(node, hasher);
    shape(node.shape().as_ref(), hasher);
    hasher.number(match join {
        Join::All => 0,
        Join::Any => 1,
    });
    hasher.number(match node.strategy() {
        Strategy::Halt => 0,
        Strategy::Continue => 1,
        Strategy::Ignore => 2,
    });
    hasher.number(u64::from(*optional));
    let arm = node.arms().last();
    hasher.optional(arm.map(|arm| arm.branch.into()));
    hasher.optional(arm.map(|arm| arm.index.into()));
    hasher.number(u64::from(options.is_some()));
    if let Some(options) = options {
        self::options(options, hasher);
    }
}

fn kind(graph: &Graph, node: Node<'_>, kind: &StepKind, hasher: &mut FingerprintHasher) {
    let job = |hasher: &mut FingerprintHasher, tag: u64, job: &str, version: u32| {
        hasher.number(tag);
        hasher.text(job);
        hasher.number(version.into());
    };
    match kind {
        StepKind::Job { job: name, version } => job(hasher, 0, name, *version),
        StepKind::Branch {
            job: name,
            version,
            arms,
        } => {
            job(hasher, 1, name, *version);
            hasher.number(arms.len() as u64);
            arms.iter().for_each(|arm| hasher.text(arm));
        }
        StepKind::Merge { branch, values } => {
            let number = |key: &str| graph.find(key).map(|node| node.no().into());
            hasher.number(2);
            hasher.optional(number(branch));
            // An arm returns one value, so the order of the list has no meaning.
            let mut values: Vec<_> = values.iter().collect();
            values.sort_unstable();
            hasher.number(values.len() as u64);
            for (arm, step) in values {
                hasher.text(arm);
                hasher.optional(number(step));
            }
        }
        StepKind::Barrier => hasher.number(3),
        StepKind::Each {
            job: name,
            version,
            tolerate,
        } => {
            job(hasher, 4, name, *version);
            hasher.number(tolerate.unwrap_or(0).into());
        }
        StepKind::Child { graph: _ } => {
            hasher.number(5);
            let child = node.child().map(Graph::fingerprint);
            hasher.0.update(child.map_or([0; 16], |child| child.0));
        }
        StepKind::Timer { delay_ms } => {
            hasher.number(6);
            hasher.number(*delay_ms);
        }
        StepKind::Signal { name, timeout_ms } => {
            hasher.number(7);
            hasher.text(name);
            hasher.optional(*timeout_ms);
        }
    }
}

/// Hashes the edges: those that take a value in their order, the others sorted, because their order has no meaning.
fn edges(node: Node<'_>, hasher: &mut FingerprintHasher) {
    let taking = node.upstream().iter().filter(|up| up.takes.is_input());
    let mut following: Vec<u32> = node
        .upstream()
        .iter()
        .filter(|up| !up.takes.is_input())
        .map(|up| up.no)
        .collect();
    following.sort_unstable();
    hasher.number((node.upstream().len() - following.len()) as u64);
    for up in taking {
        hasher.number(up.no.into());
        hasher.number(match up.takes {
            Takes::Value => 0,
            Takes::Maybe => 1,
            Takes::Outcome => 2,
            Takes::Failure => 3,
            Takes::Order | Takes::Ended => 4,
        });
    }
    hasher.number(following.len() as u64);
    following.iter().for_each(|no| hasher.number((*no).into()));
}

/// Hashes a shape. The recursion is bounded: validation limits how deep tuples are nested.
fn shape(shape: Option<&Shape>, hasher: &mut FingerprintHasher) {
    match shape {
        None => hasher.number(0),
        Some(Shape::One) => hasher.number(1),
        Some(Shape::List(count)) => {
            hasher.number(2);
            hasher.number((*count).into());
        }
        Some(Shape::Maybe) => hasher.number(4),
        Some(Shape::Tuple(inner)) => {
            hasher.number(3);
            hasher.number(inner.len() as u64);
            inner.iter().for_each(|one| self::shape(Some(one), hasher));
        }
    }
}

fn options(options: &StepOptions, hasher: &mut FingerprintHasher) {
    let StepOptions {
        queue,
        priority,
        max_attempts,
        timeout_ms,
        lease_ms,
        backoff,
        delay_ms,
    } = options;
    hasher.text(queue);
    hasher.0.update(priority.to_le_bytes());
    hasher.number((*max_attempts).into());
    hasher.optional(*timeout_ms);
    hasher.number(*lease_ms);
    // The stored form of the backoff, so that later fields are hashed too.
    hasher.text(&serde_json::to_string(backoff).unwrap_or_default());
    hasher.number(*delay_ms);
}
