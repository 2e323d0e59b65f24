//! Lists of runs, by filter and by page.

use std::collections::BTreeSet;
use std::time::Duration;

use pipeline::{Client, Cursor, NewRun, Page, Pipeline, RunFilter, RunStatus};
use tests::{Database, with_database};

use super::support::act;

fn named(name: &str) -> Pipeline {
    Pipeline::configure(name, |p| {
        p.step("a", act("a"));
    })
    .unwrap()
}

fn client(db: &Database) -> Client {
    Client::new(db.pool().clone())
}

fn ids(page: &Page<pipeline::RunInfo>) -> Vec<pipeline::RunId> {
    page.items.iter().map(|run| run.id).collect()
}

#[tokio::test]
async fn runs_are_found_by_what_is_known_of_them() {
    with_database(async |db| {
        let client = client(db);
        let start = async |name: &str, tags: &[&str]| {
            let new = NewRun::new(named(name)).actor("somebody");
            let new = tags.iter().fold(new, |new, tag| new.tag(*tag));
            let run = client.start(new).await.unwrap();
            db.move_clock(Duration::from_secs(60)).await;
            run
        };
        let a = start("video", &["blue", "small"]).await;
        let b = start("audio", &["blue"]).await;
        let c = start("video", &[]).await;
        let d = start("video", &["small"]).await;
        c.cancel().await.unwrap();
        let (a, b, c, d) = (a.id(), b.id(), c.id(), d.id());
        let find = async |filter: RunFilter| ids(&client.runs(&filter).await.unwrap());
        let all = RunFilter::new;

        assert_eq!(find(all()).await, [d, c, b, a]);
        assert_eq!(find(all().pipeline("video")).await, [d, c, a]);
        assert!(find(all().pipeline("nobody")).await.is_empty());
        let running = all().status(RunStatus::Running);
        assert_eq!(find(running.clone()).await, [d, b, a]);
        assert_eq!(find(running.clone().pipeline("video")).await, [d, a]);
        let either = running.clone().status(RunStatus::Cancelled);
        assert_eq!(
            find(either.clone().status(RunStatus::Running)).await,
            [d, c, b, a]
        );
        assert_eq!(find(either.pipeline("video")).await, [d, c, a]);
        assert_eq!(find(all().tag("blue")).await, [b, a]);
        assert_eq!(find(all().tag("blue").tag("small")).await, [a]);
        assert_eq!(find(all().tag("small").pipeline("video")).await, [d, a]);
        assert!(
            find(all().tag("blue").status(RunStatus::Failed))
                .await
                .is_empty()
        );

        let page = client.runs(&all()).await.unwrap();
        let of_c = page.items.iter().find(|run| run.id == c).unwrap();
        assert_eq!(
            (&*of_c.pipeline, of_c.status),
            ("video", RunStatus::Cancelled)
        );
        assert_eq!(
            (of_c.actor.as_deref(), of_c.ended_at.is_some()),
            (Some("somebody"), true)
        );
        let since = all().created_from(of_c.created_at);
        assert_eq!(find(since.clone()).await, [d, c]);
        assert_eq!(find(since.clone().pipeline("video")).await, [d, c]);
        assert_eq!(find(since.tag("small")).await, [d]);
        let before = all().created_before(of_c.created_at);
        assert_eq!(find(before.clone()).await, [b, a]);
        assert_eq!(find(before.clone().pipeline("video")).await, [a]);
        assert_eq!(find(before.tag("blue")).await, [b, a]);
    })
    .await;
}

/// In every way that a list can be read: all of them, of a pipeline, with a tag.
#[tokio::test]
async fn pages_show_every_run_once_whatever_comes_meanwhile() {
    with_database(async |db| {
        let client = client(db);
        // Many of one moment, as bulk makes them, and of several.
        let mut there = BTreeSet::new();
        for size in [40, 1, 17, 30] {
            let new = (0..size).map(|_| NewRun::new(named("video")).tag("blue"));
            let runs = client.start(new.collect::<Vec<_>>()).await.unwrap();
            for run in runs.iter().step_by(3) {
                run.cancel().await.unwrap();
            }
            there.extend(runs.iter().map(|run| run.id()));
        }
        for filter in [
            RunFilter::new(),
            RunFilter::new().pipeline("video"),
            RunFilter::new().tag("blue"),
        ] {
            let mut seen = Vec::new();
            let mut filter = filter.limit(9);
            loop {
                let page = client.runs(&filter).await.unwrap();
                assert!(
                    page.items
                        .is_sorted_by(|a, b| (a.created_at, a.id) > (b.created_at, b.id))
                );
                seen.extend(ids(&page));
                let Some(next) = page.next else { break };
                assert_eq!(page.items.len(), 9);
                // As it goes through a URL.
                filter = filter.after(next.to_string().parse::<Cursor>().unwrap());
                let late = NewRun::new(named("video")).tag("blue");
                client.start(late).await.unwrap();
            }
            let found: BTreeSet<_> = seen.iter().copied().collect();
            assert_eq!(found.len(), seen.len(), "none is shown twice");
            assert!(there.is_subset(&found));
            there = client
                .runs(&RunFilter::new().limit(1_000))
                .await
                .unwrap()
                .items
                .iter()
                .map(|run| run.id)
                .collect();
        }
    })
    .await;
}

#[tokio::test]
async fn the_last_page_says_so() {
    with_database(async |db| {
        let client = client(db);
        client.start(vec![named("video"); 4]).await.unwrap();
        let page = client.runs(&RunFilter::new().limit(4)).await.unwrap();
        assert_eq!((page.items.len(), page.next), (4, None));
        let page = client.runs(&RunFilter::new().limit(3)).await.unwrap();
        let rest = RunFilter::new().after(page.next.unwrap());
        let rest = client.runs(&rest).await.unwrap();
        assert_eq!((rest.items.len(), rest.next), (1, None));
        let error = "next please".parse::<Cursor>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "`next please` is not a cursor: pass the text of `Page::next` unchanged, or list the first page"
        );
    })
    .await;
}
