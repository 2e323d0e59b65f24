//! §6: the tables, and what a refusal says; rule 9: how a run's status is derived.

use tests::model::Outcome;

use super::support::*;

/// Scenarios: T140, T141, T142
#[test]
fn section_6_a_run_goes_only_where_the_table_says() {
    let table = [
        (R::Pending, vec![R::Running, R::Skipped, R::Cancelled]),
        (
            R::Running,
            vec![R::Cancelling, R::Succeeded, R::Failed, R::Halted],
        ),
        (R::Cancelling, vec![R::Failed, R::Cancelled]),
        (R::Succeeded, vec![]),
        (R::Failed, vec![]),
        (R::Halted, vec![]),
        (R::Skipped, vec![]),
        (R::Cancelled, vec![]),
    ];
    for (from, allowed) in table {
        let found: Vec<R> = R::ALL
            .into_iter()
            .filter(|to| from.may_become(*to))
            .collect();
        assert_eq!(found, allowed, "from {from}");
    }
}

#[test]
fn section_6_a_run_is_reopened_only_where_the_table_says() {
    for from in R::ALL {
        let found: Vec<R> = R::ALL
            .into_iter()
            .filter(|to| from.may_reopen_as(*to))
            .collect();
        let allowed = match from {
            R::Failed | R::Halted | R::Cancelled => vec![R::Pending, R::Running],
            R::Skipped => vec![R::Pending],
            _ => vec![],
        };
        assert_eq!(found, allowed, "from {from}");
    }
}

/// Scenarios: T186, T187, T189
#[test]
fn section_6_a_step_goes_only_where_the_table_says() {
    let table = [
        (
            S::Pending,
            vec![
                S::Enqueued,
                S::Waiting,
                S::Succeeded,
                S::Failed,
                S::Skipped,
                S::SkippedByBranch,
                S::Cancelled,
            ],
        ),
        (
            S::Enqueued,
            vec![
                S::Waiting,
                S::Succeeded,
                S::Failed,
                S::EndedRun,
                S::Cancelled,
            ],
        ),
        (
            S::Waiting,
            vec![S::Succeeded, S::Failed, S::Skipped, S::Cancelled],
        ),
        (S::Succeeded, vec![]),
        (S::Failed, vec![]),
        (S::EndedRun, vec![]),
        (S::Skipped, vec![]),
        (S::SkippedByBranch, vec![]),
        (S::Cancelled, vec![]),
    ];
    for (from, allowed) in table {
        let found: Vec<S> = S::ALL
            .into_iter()
            .filter(|to| from.may_become(*to))
            .collect();
        assert_eq!(found, allowed, "from {from}");
    }
}

#[test]
fn section_6_a_step_is_reopened_only_where_the_table_says() {
    for from in S::ALL {
        let allowed = matches!(from, S::Failed | S::Skipped | S::Cancelled);
        assert_eq!(from.is_reset_by_reopening(), allowed, "{from}");
    }
}

/// Scenarios: T192
#[test]
fn section_6_a_refusal_names_what_was_asked_to_move_and_both_statuses() {
    let (mut model, run) = started(&graph([job("a"), timer("t", 5).after("a")]));
    let due = Event::Due {
        run,
        step: "t".into(),
    };
    let refusal = model.apply(&due).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "step t of run 0 is pending and cannot become succeeded"
    );
    model.fail(run, "a");
    let refusal = model.apply(&Event::Cancel { run }).unwrap_err();
    assert_eq!(
        refusal.to_string(),
        "run 0 is halted and cannot become cancelling"
    );
}

#[test]
fn rule_4_a_refused_event_changes_nothing() {
    let (mut model, run) = started(&graph([job("a").optional(), job("b")]));
    model.fail(run, "a");
    model.fail(run, "b");
    let before = model.statuses(run);
    let named = vec!["a".into(), "b".into()];
    assert!(model.apply(&Event::Reopen { run, named }).is_err());
    assert_eq!(model.statuses(run), before);
    assert_eq!((model.run(run).round, model.status(run)), (1, R::Halted));
}

#[test]
fn rule_7_a_run_appears_with_its_steps_and_its_first_jobs() {
    let mut model = Model::new(&graph([job("a"), job("b"), job("c").after("a")]));
    let effects = model.must(Event::Start { graph: GraphId(0) });
    let run = RunId(0);
    assert_eq!(model.status(run), R::Running);
    assert_eq!(released(&effects), ["a", "b"]);
    assert_eq!(model.is(run, "c"), S::Pending);
}

#[test]
fn rule_9_a_run_is_over_when_no_step_is_pending_enqueued_or_waiting() {
    let (mut model, run) = started(&graph([
        job("a"),
        job("b").after("a"),
        timer("t", 1).after("b"),
    ]));
    for step in ["a", "b"] {
        assert_eq!(model.status(run), R::Running);
        model.ok(run, step);
    }
    assert_eq!(
        (model.is(run, "t"), model.status(run)),
        (S::Waiting, R::Running)
    );
    model.must(Event::Time { ms: 1 });
    model.must(Event::Due {
        run,
        step: "t".into(),
    });
    assert_eq!(model.status(run), R::Succeeded);
}

#[test]
fn rule_9_skipped_and_halted_steps_alone_do_not_fail_a_run() {
    let (mut model, run) = started(&graph([job("a"), job("b").after("a")]));
    model.run_attempt(run, "a", Outcome::EndRun(1));
    assert_eq!(model.are(run, ["a", "b"]), [S::EndedRun, S::Skipped]);
    assert_eq!(model.status(run), R::Succeeded);
}

#[test]
fn rule_9_an_optional_failure_does_not_count() {
    let (mut model, run) = started(&graph([job("a").optional(), job("b")]));
    model.fail(run, "a");
    model.ok(run, "b");
    assert_eq!(model.status(run), R::Succeeded);
}

#[test]
fn rule_9_halt_triggered_with_a_failure_is_halted_else_failed() {
    for (strategy, status) in [
        (Strategy::Halt, R::Halted),
        (Strategy::Continue, R::Failed),
        (Strategy::Ignore, R::Failed),
    ] {
        let (mut model, run) = started(&under(strategy, [job("a"), job("b")]));
        model.fail(run, "a");
        model.ok(run, "b");
        assert_eq!(model.status(run), status, "{strategy:?}");
    }
}

#[test]
fn rule_9_a_passed_deadline_comes_before_all_else() {
    let (mut model, run) = started(&within(10, graph([job("a")])));
    let token = model.take(run, "a");
    model.must(Event::Time { ms: 10 });
    model.must(Event::DeadlinePassed { run });
    model.cancel(run);
    let ended = Event::Ended {
        run,
        step: "a".into(),
        token,
        outcome: Outcome::Success(1),
    };
    model.must(ended);
    assert_eq!(
        (model.is(run, "a"), model.status(run)),
        (S::Succeeded, R::Failed)
    );
}
