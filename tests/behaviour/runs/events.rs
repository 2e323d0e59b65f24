//! The events of a run.

use pipeline::{Event, EventLevel, NewRun, Pipeline, RunStatus};
use tests::with_database;

use super::support::{Running, What, act};

fn failing() -> Pipeline {
    Pipeline::configure("failing", |p| {
        let a = p.step("a", act("a"));
        let b = p.following(&a).step("b", act("b"));
        p.following(&b).step("c", act("c"));
    })
    .unwrap()
}

fn told(events: &[Event]) -> Vec<String> {
    let line = |event: &Event| match (&event.step, event.attempt) {
        (Some(step), Some(attempt)) => format!("{} {step} {} {attempt}", event.no, event.status),
        (Some(step), None) => format!("{} {step} {}", event.no, event.status),
        (None, _) => format!("{} {}", event.no, event.status),
    };
    events.iter().map(line).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn as_much_is_kept_as_was_asked_for() {
    with_database(async |db| {
        let it = Running::start(db);
        it.script.tell("b", What::Fail);
        let kept = [
            (EventLevel::None, vec![]),
            (EventLevel::Runs, vec!["1 running", "2 halted"]),
            (
                EventLevel::Steps,
                vec![
                    "1 running",
                    "2 a succeeded 1",
                    "3 b failed 1",
                    "4 c skipped",
                    "5 halted",
                ],
            ),
            (
                EventLevel::All,
                vec![
                    "1 running",
                    "2 a succeeded 1",
                    "3 b enqueued",
                    "4 b failed 1",
                    "5 c skipped",
                    "6 halted",
                ],
            ),
        ];
        for (history, expected) in kept {
            let run = NewRun::new(failing()).event_level(history);
            let run = it.client.start(run).await.unwrap();
            assert_eq!(run.wait().await.unwrap(), RunStatus::Halted);
            let events = run.events().await.unwrap();
            assert_eq!(told(&events), expected, "{history:?}");
            assert!(events.is_sorted_by_key(|event| event.at));
            let later = run.events_after(2).await.unwrap();
            assert_eq!(later, events.get(2..).unwrap_or_default(), "{history:?}");
            assert_eq!(run.events_after(99).await.unwrap(), []);
        }
        // By default: how the run and each of its steps ended.
        let run = it.client.start(failing()).await.unwrap();
        run.wait().await.unwrap();
        assert_eq!(run.events().await.unwrap().len(), 5);
        it.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_round_goes_on_counting() {
    with_database(async |db| {
        let it = Running::start(db);
        it.script.tell("b", What::Fail);
        let run = it.client.start(failing()).await.unwrap();
        run.wait().await.unwrap();
        it.script.tell("b", What::Succeed);
        run.reopen().await.unwrap();
        assert_eq!(run.wait().await.unwrap(), RunStatus::Succeeded);
        let state = run.state().await.unwrap();
        assert_eq!(state.round, 2);
        let tried = run.attempts("b").await.unwrap();
        let tried: Vec<(u16, &str)> = tried
            .iter()
            .map(|it| (it.attempt, it.outcome.as_str()))
            .collect();
        assert_eq!(tried, [(1, "failed"), (1, "succeeded")]);
        let events = run.events().await.unwrap();
        let numbers: Vec<u32> = events.iter().map(|event| event.no).collect();
        assert_eq!(
            numbers,
            (1..=u32::try_from(events.len()).unwrap()).collect::<Vec<_>>()
        );
        let again = told(&events[5..]);
        assert!(
            again.iter().any(|line| line.ends_with(" running")),
            "{again:?}"
        );
        assert!(again.last().unwrap().ends_with(" succeeded"), "{again:?}");
        it.stop().await;
    })
    .await;
}
