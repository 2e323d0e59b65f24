//! The rules of `docs/rules.md` as a pure state machine; comments name rules and sections by its numbers.
//!
//! The model is written from the rules, not from the engine, and is the engine's judge: the same events go
//! through both, and both must reach the same statuses, callbacks and released work. The model has none of
//! the techniques that make the engine fast (counters, groups, hand-over): after each event it looks at
//! every pending step until no step can be decided.
//!
//! | file | rules |
//! |---|---|
//! | [`index`] | what a graph means: edges, gates, arms, strategies (13), what Halt spares (12) |
//! | [`status`] | the two tables of §6 |
//! | [`world`] | runs, steps, and the only two functions that change a status |
//! | [`event`] | what comes in, what goes out, what is refused |
//! | [`apply`] | one event, one transaction (4); starting (7), taking and ending attempts (3, 15) |
//! | [`advance`] | edges, decisions, Halt, `cx.end_run()`, the end of a run (9, 12, 13, 14, 20) |
//! | [`waits`] | time, timers, signals, children (22, 23) |
//! | [`cancel`] | cancel and deadline (18) |
//! | [`chains`] | callbacks and chains (16, 17) |
//! | [`reopen`] | reopening (19) |
//! | [`input`] | what a step receives (§4, §8) |
//! | [`allowed`] | whether an ended run is one that the rules allow: told once more, from the end |
//! | [`play`] | a run played to its end, by a script and an order |
//! | [`arbitrary`] | random graphs, scripts and orders |
//! | [`histories`] | whole random histories, of one run and of several in chains |
//! | [`build`], [`sketch`] | graphs by hand, and in a few words |
//!
//! Where a rule can be read in two ways the place says "Reading", and
//! `docs/decisions/0004-reading-of-the-rules.md` says why.
//!
//! ```
//! use tests::model::{Event, Model, Outcome, RunStatus, build::{graph, job}};
//!
//! let video = graph([job("download"), job("publish").after("download")]);
//! let mut model = Model::new(&video);
//! let run = model.start();
//! model.run_attempt(run, "download", Outcome::Success(1));
//! model.run_attempt(run, "publish", Outcome::Success(2));
//! assert_eq!(model.status(run), RunStatus::Succeeded);
//! assert!(model.apply(&Event::Cancel { run }).is_err());
//! ```

pub mod advance;
pub mod allowed;
pub mod apply;
pub mod arbitrary;
pub mod build;
pub mod cancel;
pub mod chains;
pub mod event;
pub mod histories;
pub mod index;
pub mod input;
pub mod play;
pub mod reopen;
pub mod sketch;
pub mod status;
pub mod waits;
pub mod world;

pub use event::{Effect, Event, GraphId, Outcome, Payload, Refusal, RunId, Token, Why};
pub use index::{Index, Key};
pub use status::{RunStatus, StepStatus};
pub use world::{Drain, Model, Run, Step, Value};
