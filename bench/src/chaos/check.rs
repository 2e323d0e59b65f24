//! Compares the records of the workers with the rows of the database.
//!
//! What must hold, for each job that was enqueued:
//!
//! 1. It ended once: its row has succeeded, and the database took one success for it.
//! 2. That success is of the attempt that its row counts last, which is not on record as lost, and
//!    whose `perform` was begun and had returned before.
//! 3. Every attempt before that one is on record as lost with its worker, once, and the next one began
//!    after that: attempts are 1, 2, 3.. without a gap and without two of a number.
//! 4. The database took no other end: each one is that success, or a lease on record as lost.
//! 5. Each attempt was begun once at most, in one process, and all that were begun are accounted for.
//!    One that is on record and was never begun was lost between its claim and its begin: nothing else
//!    explains it.

use std::collections::{HashMap, HashSet};

use sqlx::PgPool;

use super::log::{Line, Moment};
use crate::frame::Result;

const SUCCEEDED: &str = "succeeded";

pub(super) struct Evidence {
    enqueued: Vec<i64>,
    lines: Vec<Line>,
    rows: HashMap<i64, Row>,
    lost: Vec<Lost>,
    ends: Vec<End>,
}

#[derive(sqlx::FromRow)]
struct Row {
    id: i64,
    status: String,
    attempt: i64,
}

/// An attempt that did not succeed.
#[derive(sqlx::FromRow)]
struct Lost {
    job: i64,
    token: i64,
    attempt: i64,
    class: Option<String>,
    at: i64,
}

/// An end that the database took.
#[derive(sqlx::FromRow)]
struct End {
    job: i64,
    token: i64,
    outcome: String,
}

impl Evidence {
    /// Reads the database's rows of the naps; other jobs may be there, too.
    pub(super) async fn gather(pool: &PgPool, enqueued: Vec<i64>, lines: &[Line]) -> Result<Self> {
        let rows: Vec<Row> = sqlx::query_as(
            "select id, status::text, attempt::bigint from pipeline.jobs where job_type = 'chaos.nap'",
        )
        .fetch_all(pool)
        .await?;
        let lost: Vec<Lost> = sqlx::query_as(
            "select job, token, attempt::bigint, error_class as class,
                    (extract(epoch from ended_at) * 1000000)::bigint as at
             from pipeline.attempts",
        )
        .fetch_all(pool)
        .await?;
        let ends: Vec<End> = sqlx::query_as("select job, token, outcome from ends")
            .fetch_all(pool)
            .await?;
        let naps: HashSet<i64> = rows
            .iter()
            .map(|row| row.id)
            .chain(enqueued.clone())
            .collect();
        Ok(Self {
            enqueued,
            lines: lines
                .iter()
                .filter(|line| naps.contains(&line.job))
                .copied()
                .collect(),
            rows: rows.into_iter().map(|row| (row.id, row)).collect(),
            lost: lost
                .into_iter()
                .filter(|lost| naps.contains(&lost.job))
                .collect(),
            ends: ends
                .into_iter()
                .filter(|end| naps.contains(&end.job))
                .collect(),
        })
    }
}

pub(super) struct Verdict {
    pub(super) leases_lost: usize,
    pub(super) summary: String,
    pub(super) violations: Vec<String>,
}

/// All records of one job.
#[derive(Default)]
struct Case<'a> {
    begins: Vec<&'a Line>,
    returns: Vec<&'a Line>,
    lost: Vec<&'a Lost>,
    ends: Vec<&'a End>,
}

pub(super) fn check(evidence: &Evidence) -> Verdict {
    let mut cases: HashMap<i64, Case<'_>> = HashMap::new();
    for line in &evidence.lines {
        let case = cases.entry(line.job).or_default();
        match line.moment {
            Moment::Begin => case.begins.push(line),
            Moment::End => case.returns.push(line),
        }
    }
    for lost in &evidence.lost {
        cases.entry(lost.job).or_default().lost.push(lost);
    }
    for end in &evidence.ends {
        cases.entry(end.job).or_default().ends.push(end);
    }
    let mut violations = Vec::new();
    for job in &evidence.enqueued {
        let mut say = |what: String| violations.push(format!("job {job}: {what}"));
        match (evidence.rows.get(job), cases.remove(job)) {
            (Some(row), Some(case)) => check_job(row, &case, &mut say),
            (None, _) => say("its row is gone".to_owned()),
            (_, None) => say("nobody has heard of it".to_owned()),
        }
    }
    for (job, _) in cases {
        violations.push(format!("job {job}: was never enqueued"));
    }
    if evidence.rows.len() != evidence.enqueued.len() {
        let (rows, jobs) = (evidence.rows.len(), evidence.enqueued.len());
        violations.push(format!(
            "{jobs} jobs were enqueued, and {rows} rows are there"
        ));
    }
    check_tokens(evidence, &mut violations);
    Verdict {
        leases_lost: evidence.lost.len(),
        summary: summary(evidence, &mut violations),
        violations,
    }
}

fn check_job(row: &Row, case: &Case<'_>, say: &mut dyn FnMut(String)) {
    if row.status != "succeeded" {
        say(format!("is {}", row.status));
    }
    let successes: Vec<_> = case
        .ends
        .iter()
        .filter(|e| e.outcome == SUCCEEDED)
        .collect();
    if let [success] = successes[..] {
        check_success(row, case, success.token, say);
    } else {
        say(format!("the database took {} successes", successes.len()));
    }
    for end in case.ends.iter().filter(|end| end.outcome != SUCCEEDED) {
        if !case.lost.iter().any(|lost| lost.token == end.token) {
            say(format!(
                "attempt {} ended, its job became {}, and it is not on record as lost",
                end.token, end.outcome
            ));
        }
    }
    for lost in &case.lost {
        check_lost(case, lost, say);
    }
    let mut numbers: Vec<i64> = case.lost.iter().map(|lost| lost.attempt).collect();
    numbers.sort_unstable();
    if !numbers.iter().copied().eq(1..row.attempt) {
        let last = row.attempt;
        say(format!(
            "its row counts {last} attempts; lost are those numbered {numbers:?}"
        ));
    }
    for begin in &case.begins {
        let before = case
            .lost
            .iter()
            .find(|lost| lost.attempt + 1 == begin.attempt);
        if begin.attempt > 1 && before.is_none_or(|lost| lost.at > begin.at) {
            let number = begin.attempt;
            say(format!(
                "attempt {number} began before the one before it was lost"
            ));
        }
    }
}

/// Returns the attempt that succeeded by the database's rows.
fn check_success(row: &Row, case: &Case<'_>, token: i64, say: &mut dyn FnMut(String)) {
    let begin = case.begins.iter().find(|line| line.token == token);
    match begin {
        Some(line) if line.attempt == row.attempt => {}
        Some(line) => say(format!(
            "attempt {} has succeeded, and its row counts {}",
            line.attempt, row.attempt
        )),
        None => say(format!("attempt {token} has succeeded and never begun")),
    }
    if !case.returns.iter().any(|line| line.token == token) {
        say(format!("attempt {token} has succeeded and never returned"));
    }
    if case.lost.iter().any(|lost| lost.token == token) {
        say(format!("attempt {token} has succeeded after it was lost"));
    }
}

/// An attempt on record as lost: by a lost lease, and its end was taken once.
fn check_lost(case: &Case<'_>, lost: &Lost, say: &mut dyn FnMut(String)) {
    if lost.class.as_deref() != Some("WorkerDied") {
        let class = lost.class.as_deref().unwrap_or("nothing");
        say(format!("attempt {} ended by {class}", lost.attempt));
    }
    let ends = case
        .ends
        .iter()
        .filter(|end| end.token == lost.token)
        .count();
    if ends != 1 {
        say(format!(
            "attempt {} was lost, and ended {ends} times",
            lost.attempt
        ));
    }
    for begin in case.begins.iter().filter(|line| line.token == lost.token) {
        if begin.attempt != lost.attempt {
            say(format!(
                "attempt {} is on record as {}",
                begin.attempt, lost.attempt
            ));
        }
    }
}

/// Each attempt was begun and returned once at most, and what was begun is accounted for.
fn check_tokens(evidence: &Evidence, violations: &mut Vec<String>) {
    let ended: HashSet<i64> = evidence.ends.iter().map(|end| end.token).collect();
    if ended.len() != evidence.ends.len() {
        violations.push("an attempt has ended twice".to_owned());
    }
    let mut begun: HashMap<i64, i64> = HashMap::new();
    let mut returned: HashSet<i64> = HashSet::new();
    for line in &evidence.lines {
        let (job, token) = (line.job, line.token);
        match line.moment {
            Moment::Begin => {
                if begun.insert(token, line.pid).is_some() {
                    violations.push(format!("job {job}: attempt {token} was begun twice"));
                }
                if !ended.contains(&token) {
                    violations.push(format!("job {job}: attempt {token} never ended"));
                }
            }
            Moment::End => {
                if begun.get(&token) != Some(&line.pid) {
                    violations.push(format!("job {job}: attempt {token} returned unbegun"));
                }
                if !returned.insert(token) {
                    violations.push(format!("job {job}: attempt {token} returned twice"));
                }
            }
        }
    }
}

/// Checks the sums, which must match, too.
fn summary(evidence: &Evidence, violations: &mut Vec<String>) -> String {
    let begun: HashSet<i64> = tokens(evidence, Moment::Begin);
    let returned: HashSet<i64> = tokens(evidence, Moment::End);
    let lost: HashSet<i64> = evidence.lost.iter().map(|lost| lost.token).collect();
    let counted: i64 = evidence.rows.values().map(|row| row.attempt).sum();
    let never_begun = lost.difference(&begun).count();
    let in_vain = lost.intersection(&returned).count();
    if counted != evidence.ends.len() as i64 || evidence.ends.len() != begun.len() + never_begun {
        violations.push(format!(
            "{counted} attempts are counted, {} ended, {} begun and {never_begun} lost before",
            evidence.ends.len(),
            begun.len()
        ));
    }
    format!(
        "{} jobs, {counted} attempts: {} begun and {never_begun} lost between claim and begin; \
         {} leases lost, {in_vain} of them by attempts whose perform had returned",
        evidence.enqueued.len(),
        begun.len(),
        lost.len(),
    )
}

fn tokens(evidence: &Evidence, moment: Moment) -> HashSet<i64> {
    let lines = evidence.lines.iter().filter(|line| line.moment == moment);
    lines.map(|line| line.token).collect()
}
