//! Random valid graphs, scripts and orders, for the model and for the engine.

use pipeline::graph::spec::{GraphSpec, StepKind, Strategy as OnFailure, Takes};
use proptest::collection::vec;
use proptest::prelude::*;

use super::build::{self, Node};
use super::play::{Order, Script};
use super::sketch::Sketch;

/// Which features a random graph and its script may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Knobs {
    /// The strategy Halt.
    pub halt: bool,
    /// Attempts that call `cx.end_run()`.
    pub end_run: bool,
    /// Joins by `after_any`.
    pub any: bool,
    /// Timers, signals, children, lists, and jobs that return pipelines.
    pub waits: bool,
    /// Edges out of an arm other than by its merge.
    pub out_of_arms: bool,
    /// Edges from arm to arm of one branch, `after_any` across phases and into arms, `after_failure` into arms:
    /// the rules have a reading for them, and no graph that can be declared has them.
    pub across: bool,
    /// Blocks (steps or branches) at the top level.
    pub blocks: usize,
}

impl Knobs {
    /// All features.
    pub const ALL: Self = Self {
        halt: true,
        end_run: true,
        any: true,
        waits: true,
        out_of_arms: true,
        across: true,
        blocks: 8,
    };

    /// No feature that makes a result depend on the order of ends.
    pub const ORDER_FREE: Self = Self {
        halt: false,
        end_run: false,
        any: false,
        ..Self::ALL
    };

    /// Jobs, branches and barriers only: all that the coordinator supports today.
    pub const JOBS: Self = Self {
        waits: false,
        across: false,
        ..Self::ALL
    };
}

/// The random numbers from which a step is built.
#[derive(Debug, Clone)]
struct Seed {
    kind: u8,
    strategy: u8,
    takes: u8,
    upstreams: Vec<u8>,
}

#[derive(Debug, Clone)]
enum Block {
    Step(Seed),
    Branch(Seed, Vec<Vec<Block>>),
    Barrier,
}

fn seed() -> impl Strategy<Value = Seed> {
    let parts = (
        any::<u8>(),
        any::<u8>(),
        any::<u8>(),
        vec(any::<u8>(), 0..4),
    );
    parts.prop_map(|(kind, strategy, takes, upstreams)| Seed {
        kind,
        strategy,
        takes,
        upstreams,
    })
}

fn blocks(knobs: Knobs) -> impl Strategy<Value = Vec<Block>> {
    let step = || seed().prop_map(Block::Step);
    let branch = |inner| {
        let arms = vec(vec(inner, 0..3), 1..4);
        (seed(), arms).prop_map(|(seed, arms)| Block::Branch(seed, arms))
    };
    let inner = prop_oneof![6 => step(), 1 => branch(step().boxed())];
    let outer = branch(inner.boxed());
    let top = prop_oneof![7 => step(), 2 => outer, 1 => Just(Block::Barrier)];
    vec(top, 1..=knobs.blocks)
}

/// Generates valid graphs: layers, branches (nested, empty), barriers, error paths, strategies at both levels.
pub fn graph(knobs: Knobs) -> impl Strategy<Value = Sketch> {
    (blocks(knobs), any::<u8>()).prop_map(move |(mut blocks, number)| {
        if number / 3 % 4 == 0 {
            // Small graphs seldom have two phases by themselves.
            blocks.insert(blocks.len() - 1, Block::Barrier);
        }
        let strategy = match number % 3 {
            0 if knobs.halt => OnFailure::Halt,
            1 => OnFailure::Ignore,
            _ => OnFailure::Continue,
        };
        Sketch(Weave::new(knobs, strategy).graph(&blocks))
    })
}

/// Generates scripts: the outcomes of attempts.
pub fn script(knobs: Knobs) -> impl Strategy<Value = Script> {
    vec(any::<u8>(), 40).prop_map(move |fates| Script {
        fates,
        ends_run: knobs.end_run,
        children: knobs.waits,
        good_from: u32::MAX,
    })
}

/// Generates orders of events.
pub fn order() -> impl Strategy<Value = Order> {
    vec(any::<u16>(), 0..120).prop_map(Order)
}

/// Builds a graph from blocks.
struct Weave {
    knobs: Knobs,
    strategy: OnFailure,
    nodes: Vec<Node>,
    /// The steps that a further step may come after.
    seen: Vec<Seen>,
    /// The arm that is being built.
    arm: Option<(String, String)>,
    phase: usize,
    /// The index from which on the steps seen are in the current phase and arm.
    inside: usize,
}

#[derive(Debug, Clone)]
struct Seen {
    key: String,
    /// Whether the step certainly has a value when a step after it runs.
    sure: bool,
    /// Whether the step may be `skipped_by_branch` although a step after it runs.
    may_be_left_out: bool,
    can_fail: bool,
    decides: bool,
}

impl Weave {
    fn new(knobs: Knobs, strategy: OnFailure) -> Self {
        Self {
            knobs,
            strategy,
            nodes: Vec::new(),
            seen: Vec::new(),
            arm: None,
            phase: 0,
            inside: 0,
        }
    }

    fn graph(mut self, blocks: &[Block]) -> GraphSpec {
        for block in blocks {
            self.block(block);
        }
        let barrier = |node: &Node| matches!(node.0.kind, StepKind::Barrier);
        if self.nodes.last().is_some_and(barrier) {
            self.nodes.pop();
        }
        if self.nodes.is_empty() {
            self.nodes.push(build::job("only"));
        }
        build::under(self.strategy, self.nodes)
    }

    /// Returns the step that represents the block, if it certainly has a value.
    fn block(&mut self, block: &Block) -> Option<String> {
        match block {
            Block::Step(seed) => self.step(seed),
            Block::Branch(seed, arms) => self.branch(seed, arms),
            Block::Barrier => {
                if self.nodes.len() > self.phase {
                    let key = self.key("barrier");
                    self.nodes.push(build::barrier(&key));
                    self.phase = self.nodes.len();
                    self.inside = self.seen.len();
                }
                None
            }
        }
    }

    fn key(&self, kind: &str) -> String {
        format!("{kind}{}", self.nodes.len())
    }

    fn step(&mut self, seed: &Seed) -> Option<String> {
        let failing = self.failing(seed);
        // The one that is taken has succeeded: only a merge may have no value even so.
        let mut any: Vec<&Seen> = self
            .within()
            .iter()
            .filter(|seen| (seen.sure || !seen.key.starts_with("merge")) && !seen.decides)
            .collect();
        let may_all_be_left_out = any.iter().any(|seen| seen.may_be_left_out)
            && (matches!(seed.kind % 16, 4..=6) || seed.takes.is_multiple_of(2));
        if may_all_be_left_out {
            any.retain(|seen| seen.may_be_left_out);
        }
        let mut optional = seed.strategy % 7 == 6;
        let mut may_be_left_out = false;
        let is_any = |kind: u8| match kind {
            12 | 13 => !any.is_empty(),
            4..=6 => may_all_be_left_out,
            _ => false,
        };
        // Behind a barrier there are more error paths than elsewhere.
        let is_error_path = match self.arm {
            None if self.phase > 0 => matches!(seed.kind % 16, 0..=3 | 14 | 15),
            _ => matches!(seed.kind % 16, 3 | 14 | 15),
        };
        let node = match (seed.kind % 16, failing) {
            (_, Some(of)) if is_error_path => {
                may_be_left_out = true;
                build::job(&self.key("error")).after_failure(&of)
            }
            (kind, _) if self.knobs.any && is_any(kind) => {
                let pick = |number: &u8| any[usize::from(*number) % any.len()];
                let mut of: Vec<&str> = Vec::new();
                may_be_left_out = true;
                for seen in seed.upstreams.iter().map(pick).chain([any[0]]) {
                    may_be_left_out &= seen.may_be_left_out;
                    if !of.contains(&&*seen.key) {
                        of.push(&seen.key);
                    }
                }
                build::job(&self.key("any")).after_any(&of)
            }
            (kind, _) => self.follow(self.plain(kind), seed),
        };
        let can_fail = !matches!(
            node.0.kind,
            StepKind::Timer { .. } | StepKind::Signal { .. }
        );
        optional &= can_fail;
        let own = self.own(seed).filter(|_| can_fail && !optional);
        let is_ignored = optional || own.unwrap_or(self.strategy) == OnFailure::Ignore;
        let is_sure = !may_be_left_out && !is_ignored;
        let key = self.add(node, own, optional);
        self.see(&key, is_sure, may_be_left_out, can_fail);
        is_sure.then_some(key)
    }

    /// Returns the steps that an `after_any` step may come after.
    fn within(&self) -> &[Seen] {
        let from = if self.knobs.across { 0 } else { self.inside };
        &self.seen[from..]
    }

    /// Returns a step that an error path can follow: outside of arms also a step of an earlier phase.
    fn failing(&self, seed: &Seed) -> Option<String> {
        let seen = match self.arm {
            Some(_) => self.within(),
            None => &self.seen,
        };
        let failing: Vec<&Seen> = seen.iter().filter(|seen| seen.can_fail).collect();
        let of = failing.get(usize::from(seed.takes) % failing.len().max(1))?;
        Some(of.key.clone())
    }

    fn plain(&self, kind: u8) -> Node {
        match kind {
            8 if self.knobs.waits => build::timer(&self.key("timer"), 10),
            11 if self.knobs.waits => build::signal(&self.key("signal"), "go", Some(20)),
            10 if self.knobs.waits => build::child(&self.key("child")),
            9 if self.knobs.waits => build::each(&self.key("each")),
            _ => build::job(&self.key("job")),
        }
    }

    fn own(&self, seed: &Seed) -> Option<OnFailure> {
        match seed.strategy % 7 {
            0 => Some(OnFailure::Continue),
            1 => Some(OnFailure::Ignore),
            2 if self.knobs.halt => Some(OnFailure::Halt),
            _ => None,
        }
    }

    fn follow(&self, mut node: Node, seed: &Seed) -> Node {
        let mut used = Vec::new();
        for number in &seed.upstreams {
            if self.seen.is_empty() {
                break;
            }
            let of = &self.seen[usize::from(*number) % self.seen.len()];
            let takes = match (seed.takes % 3, of.sure) {
                (0, _) => Takes::Order,
                (_, true) => Takes::Value,
                (_, false) => Takes::Maybe,
            };
            if !used.contains(&of.key) {
                used.push(of.key.clone());
                node = node.takes(&of.key, takes);
            }
        }
        node
    }

    fn branch(&mut self, seed: &Seed, arms: &[Vec<Block>]) -> Option<String> {
        let names: Vec<String> = (0..arms.len()).map(|no| format!("arm{no}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let key = self.key("branch");
        let decides = build::branch(&key, &names);
        let failing = self.failing(seed).filter(|_| seed.kind % 8 == 7);
        let asked = failing.is_none();
        let decides = match failing {
            Some(of) => decides.after_failure(&of),
            None => self.follow(decides, seed),
        };
        let own = self.own(seed).filter(|own| *own != OnFailure::Ignore);
        self.add(decides, own, false);
        self.see(&key, asked, !asked, true);
        let mut values = Vec::new();
        let mut arms_before = Vec::new();
        for (name, blocks) in names.iter().zip(arms) {
            let outside = self.seen.len();
            let value = self.arm(&key, name, blocks);
            values.extend(value.map(|value| (*name, value)));
            if !self.knobs.across {
                // What two arms hold never runs in one run.
                arms_before.extend(self.seen.drain(outside..));
            }
        }
        self.seen.extend(arms_before);
        let all = asked && values.len() == arms.len();
        let values: Vec<(&str, &str)> = values.iter().map(|(arm, step)| (*arm, &**step)).collect();
        let merge = build::merge(&self.key("merge"), &key, &values);
        let merge = self.add(merge, None, false);
        self.see(&merge, all, false, false);
        all.then_some(merge)
    }

    fn arm(&mut self, branch: &str, arm: &str, blocks: &[Block]) -> Option<String> {
        let outside = self.seen.len();
        let around = self.arm.replace((branch.to_owned(), arm.to_owned()));
        let inside = std::mem::replace(&mut self.inside, outside);
        let values: Vec<Option<String>> = blocks.iter().map(|block| self.block(block)).collect();
        self.arm = around;
        self.inside = inside;
        if self.knobs.out_of_arms {
            for seen in &mut self.seen[outside..] {
                seen.sure = false;
                seen.may_be_left_out = true;
            }
        } else {
            self.seen.truncate(outside);
        }
        values.into_iter().next_back().flatten()
    }

    fn add(&mut self, mut node: Node, own: Option<OnFailure>, optional: bool) -> String {
        node.0.strategy = own;
        node.0.optional = optional;
        if let Some((branch, arm)) = &self.arm {
            node = node.arm(branch, arm);
        }
        let key = node.0.key.clone();
        self.nodes.push(node);
        key
    }

    fn see(&mut self, key: &str, sure: bool, may_be_left_out: bool, can_fail: bool) {
        self.seen.push(Seen {
            key: key.to_owned(),
            sure,
            may_be_left_out,
            can_fail,
            decides: key.starts_with("branch"),
        });
    }
}
