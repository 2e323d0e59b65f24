//! Rule 16: callbacks. Rule 17: chains.

use super::support::*;

const COMPLETE: CallbackOn = CallbackOn::Complete;
const SUCCESS: CallbackOn = CallbackOn::Success;
const FAILURE: CallbackOn = CallbackOn::Failure;

#[test]
fn rule_16_callbacks_fire_by_the_status_of_the_end() {
    let (mut model, run) = started(&graph([job("a")]));
    let fired = callbacks(&model.ok(run, "a"));
    assert_eq!(fired, [(run, 1, COMPLETE), (run, 1, SUCCESS)]);

    for strategy in [Strategy::Halt, Strategy::Continue] {
        let (mut model, run) = started(&under(strategy, [job("a")]));
        let fired = callbacks(&model.fail(run, "a"));
        assert_eq!(
            fired,
            [(run, 1, COMPLETE), (run, 1, FAILURE)],
            "{strategy:?}"
        );
    }

    let (mut model, run) = started(&graph([job("a")]));
    assert_eq!(callbacks(&model.cancel(run)), [(run, 1, COMPLETE)]);

    let (mut model, run) = started(&within(5, graph([job("a")])));
    model.must(Event::Time { ms: 5 });
    let effects = model.must(Event::DeadlinePassed { run });
    assert_eq!(callbacks(&effects), [(run, 1, COMPLETE), (run, 1, FAILURE)]);
}

#[test]
fn rule_16_a_skipped_run_has_ended_too() {
    let (mut model, first) = started(&graph([job("a")]));
    let next = then(&mut model, &[first]);
    let effects = model.fail(first, "a");
    assert!(callbacks(&effects).contains(&(next, 1, COMPLETE)));
    assert_eq!(callbacks(&effects).len(), 3);
}

#[test]
fn rule_16_callbacks_fire_once_in_each_round() {
    let (mut model, run) = started(&graph([job("a")]));
    model.fail(run, "a");
    assert_eq!(callbacks(&model.reopen(run, &[])), []);
    let fired = callbacks(&model.ok(run, "a"));
    assert_eq!(fired, [(run, 2, COMPLETE), (run, 2, SUCCESS)]);
}

#[test]
fn rule_16_what_is_not_declared_does_not_fire() {
    let mut spec = graph([job("a")]);
    spec.callbacks.retain(|callback| callback.on == FAILURE);
    let (mut model, run) = started(&spec);
    assert_eq!(callbacks(&model.ok(run, "a")), []);
}

#[test]
fn rule_17_a_chained_run_starts_when_all_its_upstreams_succeeded() {
    let (mut model, one) = started(&graph([job("a")]));
    let two = model.start();
    let next = then(&mut model, &[one, two]);
    assert_eq!(
        (model.status(next), model.is(next, "a")),
        (R::Pending, S::Pending)
    );
    model.ok(one, "a");
    assert_eq!(model.status(next), R::Pending);
    assert_eq!(released(&model.ok(two, "a")), ["a"]);
    assert_eq!(model.status(next), R::Running);
}

#[test]
fn rule_17_it_is_skipped_with_its_steps_as_soon_as_one_ended_otherwise() {
    let (mut model, one) = started(&graph([job("a")]));
    let two = model.start();
    let next = then(&mut model, &[one, two]);
    let last = then(&mut model, &[next]);
    model.fail(two, "a");
    assert_eq!(model.status(one), R::Running);
    for run in [next, last] {
        assert_eq!(
            (model.status(run), model.is(run, "a")),
            (R::Skipped, S::Skipped)
        );
    }
    model.ok(one, "a");
    assert_eq!(model.status(next), R::Skipped);
}

type End = fn(&mut Model, RunId);

#[test]
fn rule_17_every_end_but_success_skips_what_is_chained() {
    let endings: [(End, R); 3] = [
        (|model, run| drop(model.fail(run, "a")), R::Halted),
        (|model, run| drop(model.cancel(run)), R::Cancelled),
        (
            |model, run| {
                model.must(Event::Time { ms: 9 });
                model.must(Event::DeadlinePassed { run });
            },
            R::Failed,
        ),
    ];
    for (end, status) in endings {
        let (mut model, first) = started(&within(9, graph([job("a")])));
        let next = then(&mut model, &[first]);
        end(&mut model, first);
        assert_eq!(
            (model.status(first), model.status(next)),
            (status, R::Skipped)
        );
    }
}

#[test]
fn rule_17_an_upstream_that_is_being_cancelled_has_not_ended() {
    let (mut model, first) = started(&graph([job("a")]));
    model.take(first, "a");
    let next = then(&mut model, &[first]);
    model.cancel(first);
    assert_eq!(
        (model.status(first), model.status(next)),
        (R::Cancelling, R::Pending)
    );
}

#[test]
fn rule_17_then_on_a_run_that_has_ended_acts_at_once() {
    let (mut model, good) = started(&graph([job("a")]));
    let bad = model.start();
    let open = model.start();
    model.ok(good, "a");
    model.fail(bad, "a");
    let next = then(&mut model, &[good]);
    assert_eq!(
        (model.status(next), model.is(next, "a")),
        (R::Running, S::Enqueued)
    );
    let next = then(&mut model, &[open, bad]);
    assert_eq!(model.status(next), R::Skipped);
    let after_skipped = then(&mut model, &[next]);
    assert_eq!(model.status(after_skipped), R::Skipped);
}

#[test]
fn rule_17_chains_fan_out_and_in() {
    let (mut model, first) = started(&graph([job("a")]));
    let left = then(&mut model, &[first]);
    let right = then(&mut model, &[first]);
    let last = then(&mut model, &[left, right]);
    model.ok(first, "a");
    model.ok(left, "a");
    assert_eq!(model.status(last), R::Pending);
    model.ok(right, "a");
    model.ok(last, "a");
    assert_eq!(model.status(last), R::Succeeded);
}
