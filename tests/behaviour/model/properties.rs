//! What holds of all graphs, scripts and orders. `PROPTEST_CASES` says how many are tried.

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, any, prop_assert, prop_assert_eq, proptest};
use tests::model::allowed::{End, allowed};
use tests::model::arbitrary::{Knobs, graph, order, script};
use tests::model::histories::{chained_history, disturb, history};
use tests::model::play::{Order, Play, Script};
use tests::model::{Drain, Key};

use super::support::*;

/// A failed case prints itself and is written nowhere.
pub(super) fn config() -> ProptestConfig {
    let mut config = ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = 128;
    }
    config
}

/// One run of this graph, played to its end.
pub(super) fn played(spec: &GraphSpec, script: &Script, order: &Order) -> (Play, RunId) {
    let mut play = Play::new(Model::new(spec), script, order);
    let run = play.start();
    play.to_the_end();
    (play, run)
}

/// Plays a run to its end, and often disturbs it between its events.
fn disturbed(
    spec: &GraphSpec,
    script: &Script,
    order: &Order,
    mut between: impl FnMut(&mut Play, RunId),
) -> (Play, RunId) {
    let mut play = Play::new(Model::new(spec), script, order);
    let run = play.start();
    loop {
        between(&mut play, run);
        if !play.go_on() {
            return (play, run);
        }
    }
}

fn final_statuses(play: &Play, run: RunId) -> (R, Vec<(Key, S)>) {
    (play.model.status(run), play.model.statuses(run))
}

proptest! {
    #![proptest_config(config())]

    /// Without Halt, `cx.end_run()`, `after_any` and cancel, the order of ends does not matter.
    #[test]
    fn every_order_of_ends_gives_the_same_statuses(
        spec in graph(Knobs::ORDER_FREE),
        script in script(Knobs::ORDER_FREE),
        one in order(),
        two in order(),
    ) {
        let (first, run) = played(&spec, &script, &one);
        let (second, _) = played(&spec, &script, &two);
        prop_assert_eq!(final_statuses(&first, run), final_statuses(&second, run));
    }

    /// With all of them, it gives a result that the rules allow, as they are told from the end; and
    /// rule 9: once every attempt has ended and every wait was answered, the run has.
    #[test]
    fn every_order_gives_a_result_that_the_rules_allow(
        spec in graph(Knobs::ALL),
        script in script(Knobs::ALL),
        order in order(),
    ) {
        let (play, run) = played(&spec, &script, &order);
        prop_assert!(play.model.status(run).ended());
        let end = End::of(&play.model, run);
        prop_assert_eq!(allowed(&spec, &end), Ok(()), "{:?}", play.model.statuses(run));
    }

    /// A run that is cancelled or meets its deadline at any moment has ended when no event is left.
    #[test]
    fn a_drained_run_ends_as_the_rules_allow(
        spec in graph(Knobs::ALL),
        script in script(Knobs::ALL),
        order in order(),
    ) {
        let spec = within(15, spec.0);
        let (play, run) = disturbed(&spec, &script, &order, |play, run| match play.number() % 12 {
            0 => drop(play.apply(Event::Cancel { run })),
            1 => drop(play.apply(Event::Time { ms: 4 })),
            2 => drop(play.apply(Event::DeadlinePassed { run })),
            _ => {}
        });
        prop_assert!(play.model.status(run).ended());
        let end = End::of(&play.model, run);
        prop_assert_eq!(allowed(&spec, &end), Ok(()), "{:?}", play.model.statuses(run));
    }

    /// Rule 3: neither an end that comes again nor one that comes late changes anything.
    #[test]
    fn redelivery_and_late_ends_change_nothing(
        spec in graph(Knobs::ALL),
        script in script(Knobs::ALL),
        order in order(),
    ) {
        let (play, run) = disturbed(&spec, &script, &order, |play, _| {
            let ends: Vec<Event> = play.log.iter().map(|(event, _)| event.clone()).collect();
            for event in ends {
                if matches!(event, Event::Ended { .. }) {
                    let before = play.model.clone();
                    let effects = play.model.apply(&event).expect("no error");
                    let told = matches!(
                        effects[..],
                        [Effect::Stale { .. } | Effect::AlreadyEnded { .. }]
                    );
                    assert!(told && play.model.same_as(&before), "{event:?}: {effects:?}");
                }
            }
            if play.number().is_multiple_of(4) {
                disturb(play);
            }
        });
        prop_assert!(play.model.status(run).ended());
    }

    /// Takeovers and late ends change no status either: only who was first counts.
    #[test]
    fn a_run_with_lost_workers_ends_like_one_without(
        spec in graph(Knobs::ORDER_FREE),
        script in script(Knobs::ORDER_FREE),
        one in order(),
        two in order(),
    ) {
        let (plain, run) = played(&spec, &script, &one);
        let (rough, _) = disturbed(&spec, &script, &two, |play, _| {
            if play.number().is_multiple_of(3) {
                disturb(play);
            }
        });
        prop_assert_eq!(final_statuses(&plain, run), final_statuses(&rough, run));
    }

    /// Nothing is released, begins to wait, or ends twice in a round.
    #[test]
    fn nothing_is_released_twice(
        spec in graph(Knobs::ALL),
        script in script(Knobs::ALL),
        order in order(),
    ) {
        let (play, _) = disturbed(&spec, &script, &order, |play, run| match play.number() % 16 {
            0 => disturb(play),
            1 => drop(play.apply(Event::Cancel { run })),
            _ => {}
        });
        let mut seen = BTreeSet::new();
        for effect in play.log.iter().flat_map(|(_, effects)| effects) {
            let (what, step) = match effect {
                Effect::Released { step, .. } => ("released", step),
                Effect::Waits { step, .. } => ("waits", step),
                Effect::Ended { step, .. } => ("ended", step),
                _ => continue,
            };
            prop_assert!(seen.insert((what, step.clone())), "{step} was {what} twice");
        }
        for node in &play.model.run(RunId(0)).graph.nodes {
            prop_assert!(seen.contains(&("ended", node.key.clone())));
        }
    }

    /// Rule 12 and §8: an error path behind a barrier starts when all steps before the barrier have ended.
    #[test]
    fn an_error_path_behind_a_barrier_starts_when_all_before_it_have_ended(
        spec in graph(Knobs::ALL),
        script in script(Knobs::ALL),
        order in order(),
    ) {
        let (play, run) = disturbed(&spec, &script, &order, |_, _| {});
        let mut live: BTreeSet<Key> = play.model.statuses(run).into_iter().map(|(key, _)| key).collect();
        for effect in play.log.iter().flat_map(|(_, effects)| effects) {
            match effect {
                Effect::Ended { step, .. } => drop(live.remove(step)),
                Effect::Released { step, .. } => {
                    let graph = &play.model.run(run).graph;
                    let links = &graph.nodes[graph.number(step).unwrap()].links;
                    for gate in links.iter().filter(|link| link.takes == Takes::Ended) {
                        let mut before = graph.nodes[..=gate.from].iter();
                        prop_assert!(before.all(|node| !live.contains(&node.key)), "{step}");
                    }
                }
                _ => {}
            }
        }
    }

    /// Rule 13: where every step has a strategy of its own, the pipeline's decides nothing.
    #[test]
    fn override_means_override(
        spec in graph(Knobs::ALL),
        own in vec(any::<u8>(), 10),
        script in script(Knobs::ALL),
        order in order(),
    ) {
        let mut spec = spec.0;
        for (step, own) in spec.steps.iter_mut().zip(own.into_iter().cycle()) {
            if step.strategy.is_none() && !step.optional {
                step.strategy = Some([Strategy::Halt, Strategy::Continue][usize::from(own % 2)]);
            }
        }
        let ends = [Strategy::Halt, Strategy::Continue, Strategy::Ignore].map(|strategy| {
            let spec = GraphSpec { strategy, ..spec.clone() };
            let (play, run) = played(&spec, &script, &order);
            final_statuses(&play, run)
        });
        prop_assert_eq!(&ends[0], &ends[1]);
        prop_assert_eq!(&ends[0], &ends[2]);
    }

    /// Rule 18: once a run is being drained, the first reason for it is how it ends.
    #[test]
    fn cancel_wins_over_every_outcome_but_a_deadline_that_passed_before_it(
        spec in graph(Knobs::ALL),
        script in script(Knobs::ALL),
        order in order(),
        after in 0_usize..20,
        deadline_first in any::<bool>(),
        both in any::<bool>(),
    ) {
        let spec = within(0, spec.0);
        let mut play = Play::new(Model::new(&spec), &script, &order);
        let run = play.start();
        for _ in 0..after {
            play.go_on();
        }
        let reasons = [Event::DeadlinePassed { run }, Event::Cancel { run }];
        let first = usize::from(!deadline_first);
        let drained = play.apply(reasons[first].clone()).is_ok();
        prop_assert_eq!(drained, play.model.run(run).drain.is_some());
        if both {
            let _ = play.apply(reasons[1 - first].clone());
        }
        play.to_the_end();
        let expected = match play.model.run(run).drain {
            Some(Drain::Deadline) => R::Failed,
            Some(Drain::Cancel) => R::Cancelled,
            None => return Ok(()),
        };
        prop_assert!(!drained || (expected == R::Failed) == deadline_first);
        prop_assert_eq!(play.model.status(run), expected);
    }

    /// Rule 16: once per run, round and kind, by the status of that end; over several rounds, with
    /// chained runs that are skipped and start.
    #[test]
    fn callbacks_fire_exactly_once(
        spec in graph(Knobs::ALL),
        script in script(Knobs::ALL),
        order in order(),
    ) {
        let mut model = Model::new(&spec);
        let first = model.start();
        let next = then(&mut model, &[first]);
        then(&mut model, &[first, next]);
        let mut play = Play::new(model, &script, &order);
        for _ in 0..3 {
            while play.go_on() {
                if play.number().is_multiple_of(24) {
                    let run = RunId(play.number() % 3);
                    let _ = play.apply(Event::Cancel { run });
                }
            }
            let run = RunId(play.number() % 3);
            let _ = play.apply(Event::Reopen { run, named: vec![] });
        }
        play.to_the_end();
        let effects: Vec<Effect> = play.log.iter().flat_map(|(_, effects)| effects.clone()).collect();
        let mut due = BTreeMap::new();
        for effect in &effects {
            if let Effect::Run { run, round, status } = effect && status.ended() {
                let kinds = match status {
                    R::Succeeded => vec![CallbackOn::Complete, CallbackOn::Success],
                    R::Failed | R::Halted => vec![CallbackOn::Complete, CallbackOn::Failure],
                    _ => vec![CallbackOn::Complete],
                };
                prop_assert!(due.insert((*run, *round), kinds).is_none(), "ended twice");
            }
        }
        for (run, round, on) in callbacks(&effects) {
            let kinds = due.get_mut(&(run, round)).expect("the round has ended");
            let at = kinds.iter().position(|kind| *kind == on);
            prop_assert!(at.is_some(), "{on:?} of {run} in round {round}");
            kinds.remove(at.unwrap());
        }
        prop_assert!(due.values().all(Vec::is_empty), "some did not fire");
    }

    /// Rule 19: reopened, with every ignored failure named and nothing failing any more, a run and
    /// all that is chained to it succeeds, whatever happened before.
    #[test]
    fn a_reopened_run_can_always_succeed(
        spec in graph(Knobs::ALL),
        script in script(Knobs::ALL),
        order in order(),
        cancel in any::<bool>(),
    ) {
        let mut model = Model::new(&spec);
        let run = model.start();
        let next = then(&mut model, &[run]);
        let script = Script { good_from: 2, ..script };
        let mut play = Play::new(model, &script, &order);
        while play.go_on() && play.model.run(run).round == 1 {
            if cancel && play.number().is_multiple_of(8) {
                let _ = play.apply(Event::Cancel { run });
            }
            if play.model.status(run).ended() {
                break;
            }
        }
        if !play.model.status(run).ended_otherwise() {
            return Ok(());
        }
        let here = play.model.run(run);
        let ignored = here.graph.nodes.iter().zip(&here.steps).filter(|(node, step)| {
            step.status == S::Failed && node.strategy == Strategy::Ignore
        });
        let named = ignored.map(|(node, _)| node.key.clone()).collect();
        play.apply(Event::Reopen { run, named }).expect("it may be reopened");
        play.to_the_end();
        prop_assert_eq!(play.model.status(run), R::Succeeded, "{:?}", play.model.statuses(run));
        prop_assert_eq!(play.model.status(next), R::Succeeded);
    }

    /// A history is what an engine can be led along: the model takes each of its events, and ends.
    #[test]
    fn a_history_can_be_replayed(history in history(Knobs::JOBS)) {
        let mut model = Model::new(&history.spec);
        for event in history.events {
            let waits = matches!(
                event,
                Event::Signal { .. } | Event::ChildEnded { .. } | Event::Time { .. }
            );
            prop_assert!(!waits, "these graphs have jobs only");
            model.must(event);
        }
        prop_assert!(model.status(RunId(0)).ended());
    }

    /// A history of several runs in chains, cancelled and reopened, is accepted again; all its runs have ended, and
    /// each matches its upstreams by rule 17.
    #[test]
    fn a_chained_history_can_be_replayed(history in chained_history(Knobs::ALL)) {
        let mut model = Model::new(&history.spec);
        for event in history.events {
            model.must(event);
        }
        for run in model.runs() {
            prop_assert!(run.status.ended());
            let mut upstreams = run.after.iter().map(|up| model.status(*up));
            let skipped = upstreams.any(R::ended_otherwise);
            prop_assert!(!skipped || matches!(run.status, R::Skipped | R::Cancelled));
            prop_assert!(skipped || run.status != R::Skipped);
        }
    }
}
