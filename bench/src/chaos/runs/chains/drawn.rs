//! What was drawn for the steps of a run, and how it has to end by that.

use std::time::Duration;

use jobs::{Backoff, Job as _};
use pipeline::graph::spec::{CallbackOn, CallbackSpec, GraphSpec, StepOptions, Strategy, Takes};
use pipeline::{Graph, Pipeline};

use super::super::steps::{Act, Told};
use crate::frame::Result;
use crate::graphs::graph;

/// What each step of a run comes after.
const BEFORE: [&[usize]; 4] = [&[], &[0], &[0], &[1, 2]];
/// In this order.
pub(super) const CALLBACKS: [CallbackOn; 3] = [
    CallbackOn::Complete,
    CallbackOn::Success,
    CallbackOn::Failure,
];

/// A run to be.
#[derive(Debug, Clone)]
pub(super) struct Drawn([Fate; 4]);

/// What happens to a step, and what that means.
#[derive(Debug, Clone, Copy)]
struct Fate {
    fails: bool,
    stumbles: bool,
    strategy: Strategy,
    optional: bool,
}

impl Drawn {
    pub(super) fn new(rng: &mut fastrand::Rng) -> Self {
        let strategies = [Strategy::Halt, Strategy::Continue, Strategy::Ignore];
        Self(std::array::from_fn(|_| {
            let strategy = strategies[rng.usize(..strategies.len())];
            Fate {
                fails: rng.u8(..) < 20,
                stumbles: rng.u8(..) < 20,
                strategy,
                optional: strategy == Strategy::Ignore && rng.bool(),
            }
        }))
    }

    pub(super) fn pipeline(&self, lease: Duration) -> Result<Pipeline> {
        let mut params = Vec::new();
        for fate in &self.0 {
            let act = Act {
                fails: fate.fails,
                stumbles: fate.stumbles,
            };
            params.push(Some(serde_json::to_string(&act)?));
        }
        Ok(Pipeline::from_graph(
            Graph::compile(self.spec(lease))?,
            params,
        ))
    }

    fn spec(&self, lease: Duration) -> GraphSpec {
        let lease_ms = lease.as_millis() as u64;
        let options = || StepOptions {
            queue: "default".into(),
            priority: 0,
            max_attempts: 1_000,
            timeout_ms: None,
            lease_ms,
            backoff: Backoff::fixed(Duration::from_millis(1)),
            delay_ms: 0,
        };
        let mut spec = graph(BEFORE.len(), Act::NAME, Takes::Order, |n| {
            BEFORE[n].to_vec()
        });
        for (step, fate) in spec.steps.iter_mut().zip(self.0) {
            step.strategy = Some(fate.strategy);
            step.optional = fate.optional;
            step.options = Some(options());
        }
        spec.callbacks = CALLBACKS
            .map(|on| CallbackSpec {
                on,
                job: Told::NAME.to_owned(),
                version: Told::VERSION,
                options: options(),
            })
            .into();
        spec
    }

    /// How its steps end if none of them halts the run, and how the run does.
    ///
    /// That one halts it only keeps others from beginning. So whether the run comes to a halt does not
    /// depend on what was faster: what could have halted it besides was kept from it by one that did.
    fn ends(&self) -> (&'static str, [&'static str; 4]) {
        let mut steps = [""; 4];
        for (at, fate) in self.0.iter().enumerate() {
            let broken = BEFORE[at].iter().any(|up| match steps[*up] {
                "failed" => self.0[*up].strategy != Strategy::Ignore,
                status => status == "skipped",
            });
            steps[at] = match fate.fails {
                _ if broken => "skipped",
                true => "failed",
                false => "succeeded",
            };
        }
        let failed = || {
            let ended = self.0.iter().zip(steps);
            ended
                .filter(|(_, status)| *status == "failed")
                .map(|(fate, _)| fate)
        };
        let status = if failed().any(|fate| fate.strategy == Strategy::Halt) {
            "halted"
        } else if failed().any(|fate| !fate.optional) {
            "failed"
        } else {
            "succeeded"
        };
        (status, steps)
    }
}

/// A run of a chain, and how it has to end.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) run: i64,
    pub(super) status: &'static str,
    pub(super) steps: [&'static str; 4],
}

impl Link {
    /// Whether its steps may have ended so: in a run that was halted, any may have been kept from
    /// beginning.
    pub(super) fn allows(&self, steps: &[String]) -> bool {
        steps.len() == self.steps.len()
            && steps.iter().zip(self.steps).all(|(status, expected)| {
                status == expected || self.status == "halted" && status == "skipped"
            })
    }
}

/// The runs of a chain a → (b, c) → d.
pub(super) fn links(ids: impl Iterator<Item = i64>, drawn: [Drawn; 4]) -> Vec<Link> {
    const AFTER: [&[usize]; 4] = [&[], &[0], &[0], &[1, 2]];
    let mut links: Vec<Link> = Vec::new();
    for ((run, drawn), after) in ids.zip(drawn).zip(AFTER) {
        let goes = after.iter().all(|up| links[*up].status == "succeeded");
        let (status, steps) = if goes {
            drawn.ends()
        } else {
            ("skipped", ["skipped"; 4])
        };
        links.push(Link { run, status, steps });
    }
    links
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(fates: [(bool, Strategy); 4]) -> Drawn {
        Drawn(fates.map(|(fails, strategy)| Fate {
            fails,
            stumbles: false,
            strategy,
            optional: false,
        }))
    }

    #[test]
    fn what_was_drawn_says_how_a_run_ends() {
        use Strategy::{Continue, Halt, Ignore};
        let fine = (false, Halt);
        assert_eq!(drawn([fine; 4]).ends(), ("succeeded", ["succeeded"; 4]));
        assert_eq!(
            drawn([fine, (true, Continue), fine, (true, Halt)]).ends(),
            ("failed", ["succeeded", "failed", "succeeded", "skipped"])
        );
        assert_eq!(
            drawn([fine, (true, Ignore), fine, (true, Halt)]).ends(),
            ("halted", ["succeeded", "failed", "succeeded", "failed"])
        );
    }

    #[test]
    fn what_comes_after_a_run_that_did_not_succeed_is_skipped() {
        let fine = drawn([(false, Strategy::Halt); 4]);
        let halted = drawn([(true, Strategy::Halt); 4]);
        let all = [fine.clone(), fine.clone(), halted, fine];
        let statuses: Vec<_> = links(1.., all).iter().map(|link| link.status).collect();
        assert_eq!(statuses, ["succeeded", "succeeded", "halted", "skipped"]);
    }
}
