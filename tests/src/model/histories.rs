//! Random histories: sequences of events that are applied to the engine and to the model.
//!
//! ```no_run
//! use proptest::prelude::*;
//! use tests::model::{Model, arbitrary::Knobs, histories::history};
//!
//! proptest!(|(history in history(Knobs::JOBS))| {
//!     let mut model = Model::new(&history.spec);
//!     for event in history.events {
//!         // Apply the event to Postgres; token 2 stands for the second claim of its step.
//!         model.must(event);
//!     }
//!     // Compare the statuses of runs and steps, and the callbacks.
//! });
//! ```

use proptest::prelude::*;

use super::arbitrary::{Knobs, graph, order, script};
use super::event::{Event, GraphId, Outcome, RunId};
use super::play::Play;
use super::sketch::Sketch;
use super::status::StepStatus;
use super::world::Model;

/// A graph and the events that the model accepted, from the first start to the end.
#[derive(Debug, Clone)]
pub struct History {
    /// The graph.
    pub spec: Sketch,
    /// The events; the first starts a run.
    pub events: Vec<Event>,
}

/// Generates histories of one run: ends in some order, with redeliveries, late ends of jobs that were
/// taken over, and, in some, a cancel.
pub fn history(knobs: Knobs) -> impl Strategy<Value = History> {
    let parts = (graph(knobs), script(knobs), order(), any::<bool>());
    parts.prop_map(|(spec, script, order, cancel)| {
        let mut play = Play::new(Model::new(&spec), &script, &order);
        let run = play.start();
        loop {
            match play.number() % 16 {
                0 => disturb(&mut play),
                1 if cancel => drop(play.apply(Event::Cancel { run })),
                _ => {}
            }
            if !play.go_on() {
                break;
            }
        }
        let events = play.log.into_iter().map(|(event, _)| event).collect();
        History { spec, events }
    })
}

/// Generates histories of several runs of one graph: chained before and after their upstreams end,
/// cancelled, reopened, each at any moment, until no event is possible.
pub fn chained_history(knobs: Knobs) -> impl Strategy<Value = History> {
    let parts = (graph(knobs), script(knobs), order());
    parts.prop_map(|(spec, script, order)| {
        let mut play = Play::new(Model::new(&spec), &script, &order);
        play.start();
        loop {
            match play.number() % 24 {
                0 => disturb(&mut play),
                1..=3 if play.model.runs().len() < 5 => chain(&mut play),
                4 => {
                    let run = some_run(&mut play);
                    drop(play.apply(Event::Cancel { run }));
                }
                5 | 6 => reopen(&mut play),
                _ => {}
            }
            if !play.go_on() && play.is_out_of_numbers() {
                break;
            }
        }
        let events = play.log.into_iter().map(|(event, _)| event).collect();
        History { spec, events }
    })
}

/// Generates histories of one run that is played to its end and reopened, up to three times.
pub fn reopened_history(knobs: Knobs) -> impl Strategy<Value = History> {
    let parts = (graph(knobs), script(knobs), order());
    parts.prop_map(|(spec, script, order)| {
        let mut play = Play::new(Model::new(&spec), &script, &order);
        play.start();
        for _ in 0..3 {
            while play.go_on() {}
            reopen(&mut play);
        }
        while play.go_on() {}
        let events = play.log.into_iter().map(|(event, _)| event).collect();
        History { spec, events }
    })
}

fn some_run(play: &mut Play) -> RunId {
    RunId(play.number() % play.model.runs().len())
}

fn chain(play: &mut Play) {
    let mut after: Vec<RunId> = (0..=play.number() % 3).map(|_| some_run(play)).collect();
    after.sort_unstable();
    after.dedup();
    let graph = GraphId(0);
    let then = Event::Then { graph, after };
    play.apply(then).expect("all of these runs are there");
}

/// Reopens a run if the rules allow it, with all or none of its ignored failures.
fn reopen(play: &mut Play) {
    let run = some_run(play);
    let all = play.number().is_multiple_of(2);
    let failed = play.model.statuses(run).into_iter();
    let failed = failed.filter(|(_, status)| all && *status == StepStatus::Failed);
    let ignored = failed.filter(|(key, _)| play.model.is_ignored(run, key));
    let named = ignored.map(|(key, _)| key).collect();
    drop(play.apply(Event::Reopen { run, named }));
}

/// Lets a job be taken over so that its first worker's end comes late, or repeats an end.
pub fn disturb(play: &mut Play) {
    let ends: Vec<Event> = play
        .log
        .iter()
        .map(|(event, _)| event)
        .filter(|event| matches!(event, Event::Ended { .. }))
        .cloned()
        .collect();
    let enabled = play.enabled().into_iter();
    let running = enabled.filter(|event| matches!(event, Event::Ended { .. }));
    let running: Vec<Event> = running.collect();
    if let Some(Event::Ended {
        run, step, token, ..
    }) = running.first().cloned()
    {
        let taken_over = Event::Taken {
            run,
            step: step.clone(),
        };
        if play.apply(taken_over).is_ok() {
            let outcome = Outcome::Failed;
            let late = Event::Ended {
                run,
                step,
                token,
                outcome,
            };
            play.apply(late).expect("a late end is no error");
        }
    }
    if let Some(again) = ends.last() {
        play.apply(again.clone()).expect("a second end is no error");
    }
}
