//! `docs/state-machine.md` and the database agree.

use std::collections::BTreeSet;

use tests::with_database;

const PAGE: &str = include_str!("../../docs/state-machine.md");

/// The words of the page that are names of functions in the database.
fn functions() -> BTreeSet<&'static str> {
    let words = PAGE.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let is_function = |word: &&str| {
        let others = [
            "job_after_v1",
            "step_outcome_after",
            "step_status_after",
            "edge_effect",
            "any_edge_effect",
            "final_run_status",
        ];
        word.ends_with("_v1") || others.contains(word)
    };
    words.filter(is_function).collect()
}

#[tokio::test]
async fn every_function_of_the_page_exists() {
    with_database(async |db| {
        let names = functions();
        assert!(names.len() > 20, "{names:?}");
        let missing: Vec<String> = sqlx::query_scalar(
            "select name from unnest($1::text[]) as name
             where not exists (select from pg_proc p join pg_namespace n on n.oid = p.pronamespace
                               where n.nspname = 'pipeline' and p.proname = name)",
        )
        .bind(names.into_iter().collect::<Vec<_>>())
        .fetch_all(db.pool())
        .await
        .unwrap();
        assert!(missing.is_empty(), "{missing:?}");
    })
    .await;
}

#[test]
fn every_function_of_the_model_exists() {
    let mut count = 0;
    for (file, rest) in PAGE
        .split('`')
        .zip(PAGE.split('`').skip(2))
        .filter(|(file, _)| file.ends_with(".rs"))
    {
        let path = format!("{}/src/model/{file}", env!("CARGO_MANIFEST_DIR"));
        let source = std::fs::read_to_string(&path).unwrap();
        assert!(source.contains(&format!("fn {rest}(")), "{file}: {rest}");
        count += 1;
    }
    assert!(count >= 9, "{count}");
}

/// The rows of a table of the page, after its header.
fn rows(header: &str) -> Vec<Vec<String>> {
    let table = PAGE.split(header).nth(1).expect("the page has this table");
    let lines = table.lines().skip(2);
    let lines = lines.take_while(|line| line.starts_with('|'));
    let cells = |line: &str| {
        let cells = line.trim_matches('|').split('|');
        cells.map(|cell| cell.trim().to_owned()).collect()
    };
    lines.map(cells).collect()
}

#[tokio::test]
async fn the_table_of_edges_is_what_the_database_does() {
    with_database(async |db| {
        let rows = rows("| the upstream step is | value, maybe, outcome, order | failure | ended | of `after_any` |");
        assert_eq!(rows.len(), 7);
        for row in rows {
            let status = row[0].split('`').nth(1).unwrap().to_owned();
            let is_ignored = row[0].contains("Ignore");
            let columns = [("value", 1), ("maybe", 1), ("outcome", 1), ("order", 1), ("failure", 2), ("ended", 3)];
            for (takes, column) in columns {
                let effect: String = sqlx::query_scalar(
                    "select pipeline.edge_effect($1::pipeline.step_status, $2, $3::pipeline.takes)::text",
                )
                .bind(&status)
                .bind(is_ignored)
                .bind(takes)
                .fetch_one(db.pool())
                .await
                .unwrap();
                assert_eq!(effect.replace('_', " "), row[column], "{status} {takes}");
            }
            let effect: String =
                sqlx::query_scalar("select pipeline.any_edge_effect($1::pipeline.step_status)::text")
                    .bind(&status)
                    .fetch_one(db.pool())
                    .await
                    .unwrap();
            assert_eq!(effect.replace('_', " "), row[4], "{status} of after_any");
        }
    })
    .await;
}

#[tokio::test]
async fn the_table_of_the_next_status_is_what_the_database_does() {
    with_database(async |db| {
        // For each row: open edges, after_any, kind, whether an upstream step succeeded, an edge is broken, an edge
        // was not taken. Conditions of later rows hold as well.
        let cases = [
            (1, true, "job", true, true, false),
            (1, true, "job", false, true, true),
            (0, true, "job", false, true, true),
            (0, true, "job", false, false, true),
            (0, false, "barrier", true, true, true),
            (0, false, "barrier", true, true, false),
            (0, false, "barrier", true, false, false),
            (0, false, "job", true, false, false),
        ];
        let rows = rows("| condition | status |");
        assert_eq!(rows.len(), cases.len());
        for (row, (open, is_any, kind, has_success, is_broken, is_not_taken)) in rows.iter().zip(cases) {
            let status: String = sqlx::query_scalar(
                "select pipeline.step_status_after($1, $2, $3::pipeline.node_kind, $4, $5, $6)::text",
            )
            .bind(open)
            .bind(is_any)
            .bind(kind)
            .bind(has_success)
            .bind(is_broken)
            .bind(is_not_taken)
            .fetch_one(db.pool())
            .await
            .unwrap();
            assert_eq!(format!("`{status}`"), row[1], "{}", row[0]);
        }
    })
    .await;
}
