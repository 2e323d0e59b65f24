//! Rules 21 to 23 as far as a run sees them: lists, children, timers, signals.

use tests::model::{Outcome, Value};

use super::support::*;

fn sent(to: Option<RunId>, name: &str, keep: bool, payload: u64) -> Event {
    let name = name.to_owned();
    Event::Signal {
        to,
        name,
        keep,
        payload,
    }
}

#[test]
fn rule_21_a_list_is_one_step_with_one_end() {
    let (mut model, run) = started(&graph([
        job("list"),
        each("all").after("list"),
        job("sum").after("all"),
    ]));
    assert_eq!(released(&model.ok(run, "list")), ["all"]);
    assert_eq!(released(&model.ok(run, "all")), ["sum"]);
}

#[test]
fn rule_22_a_step_waits_for_its_child_and_ends_as_it_did() {
    for (ended, status) in [
        (R::Succeeded, S::Succeeded),
        (R::Failed, S::Failed),
        (R::Halted, S::Failed),
        (R::Cancelled, S::Failed),
    ] {
        let (mut model, run) = started(&under(
            Strategy::Continue,
            [child("c"), job("d").after("c")],
        ));
        assert_eq!(model.is(run, "c"), S::Waiting);
        let step = "c".into();
        model.must(Event::ChildEnded {
            run,
            step,
            status: ended,
        });
        let next = if status == S::Succeeded {
            S::Enqueued
        } else {
            S::Skipped
        };
        assert_eq!(model.are(run, ["c", "d"]), [status, next], "{ended}");
    }
}

#[test]
fn rule_22_a_job_that_returns_a_pipeline_leaves_its_step_waiting() {
    let (mut model, run) = started(&graph([job("a"), job("b").after("a")]));
    model.run_attempt(run, "a", Outcome::Child);
    assert_eq!(model.are(run, ["a", "b"]), [S::Waiting, S::Pending]);
    model.must(Event::ChildEnded {
        run,
        step: "a".into(),
        status: R::Succeeded,
    });
    assert_eq!(model.is(run, "b"), S::Enqueued);
}

#[test]
fn rule_23_a_timer_waits_from_when_its_upstreams_ended() {
    let (mut model, run) = started(&graph([
        job("a"),
        timer("t", 10).following("a"),
        job("b").following("t"),
    ]));
    model.must(Event::Time { ms: 100 });
    model.ok(run, "a");
    let due = Event::Due {
        run,
        step: "t".into(),
    };
    model.must(Event::Time { ms: 9 });
    assert!(model.apply(&due).is_err());
    model.must(Event::Time { ms: 1 });
    assert_eq!(model.due().first(), Some(&due));
    assert_eq!(released(&model.must(due)), ["b"]);
}

#[test]
fn rule_23_a_signal_to_a_run_is_kept_until_a_wait_takes_it_once() {
    let steps = [
        job("a"),
        signal("one", "go", None).following("a"),
        signal("two", "go", None).following("one"),
    ];
    let (mut model, run) = started(&graph(steps));
    model.must(sent(Some(run), "go", false, 7));
    model.ok(run, "a");
    assert_eq!(model.are(run, ["one", "two"]), [S::Succeeded, S::Waiting]);
    assert_eq!(model.step(run, "one").value, Some(Value::Of(7)));
    model.must(sent(Some(run), "go", false, 8));
    assert_eq!(model.step(run, "two").value, Some(Value::Of(8)));
    assert_eq!(model.status(run), R::Succeeded);
}

#[test]
fn rule_23_the_oldest_wait_takes_the_oldest_signal() {
    let steps = [
        job("a"),
        signal("late", "go", None).following("a"),
        signal("early", "go", None),
    ];
    let (mut model, run) = started(&graph(steps));
    model.ok(run, "a");
    model.must(sent(Some(run), "go", false, 1));
    assert_eq!(
        model.are(run, ["early", "late"]),
        [S::Succeeded, S::Waiting]
    );

    let (mut model, run) = started(&graph([job("a"), signal("s", "go", None).following("a")]));
    model.must(sent(None, "go", true, 1));
    model.must(sent(Some(run), "go", false, 2));
    model.ok(run, "a");
    assert_eq!(model.step(run, "s").value, Some(Value::Of(1)));
}

#[test]
fn rule_23_a_signal_must_be_declared_and_the_run_not_ended() {
    let (mut model, run) = started(&graph([signal("s", "go", None)]));
    let refusal = model.apply(&sent(Some(run), "stop", false, 1)).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "run 0 has no step that waits for signal stop"
    );
    model.must(sent(Some(run), "go", false, 1));
    let refusal = model.apply(&sent(Some(run), "go", false, 1)).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "run 0 is succeeded and takes no signals"
    );
}

#[test]
fn rule_23_sent_to_whoever_waits_it_is_kept_only_if_asked() {
    let mut model = Model::new(&graph([signal("s", "go", None)]));
    model.must(sent(None, "go", false, 1));
    let one = model.start();
    let two = model.start();
    assert_eq!(model.is(one, "s"), S::Waiting);
    model.must(sent(None, "go", false, 2));
    assert_eq!(
        (model.status(one), model.status(two)),
        (R::Succeeded, R::Running)
    );
    model.must(sent(None, "go", false, 3));
    model.must(sent(None, "go", true, 4));
    let three = model.start();
    assert_eq!(model.step(three, "s").value, Some(Value::Of(4)));
}

#[test]
fn rule_23_a_timeout_is_an_outcome() {
    let (mut model, run) = started(&graph([signal("s", "go", Some(10)), job("b").after("s")]));
    model.must(Event::Time { ms: 10 });
    model.must(Event::Due {
        run,
        step: "s".into(),
    });
    assert_eq!(model.are(run, ["s", "b"]), [S::Succeeded, S::Enqueued]);
    assert_eq!(model.step(run, "s").value, Some(Value::TimedOut));
}

#[test]
fn rule_23_signal_and_timeout_at_one_instant_whoever_is_first() {
    let (mut model, run) = started(&graph([signal("s", "go", Some(10)), job("b").after("s")]));
    model.must(Event::Time { ms: 10 });
    model.must(sent(Some(run), "go", false, 1));
    let refusal = model
        .apply(&Event::Due {
            run,
            step: "s".into(),
        })
        .unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "step s of run 0 is succeeded and cannot become succeeded"
    );
}
