//! What it came to: a row for each type of job and status.

use jobs::{JobInfo, JobStatus};

use crate::Result;
use crate::screen::Screen;
use crate::snapshot::{Group, Snapshot, error, seconds};

const HEAD: [&str; 7] = [
    "kind",
    "queue",
    "jobs",
    "attempts",
    "status",
    "time",
    "last error",
];
/// Numbers stand on the right. The error is last: on a narrow terminal, nothing is behind it.
const RIGHT: [bool; 7] = [false, false, true, true, false, true, false];
const STATUS: usize = 4;

type Row = [String; 7];

pub(crate) fn show(screen: &mut Screen, snapshot: &Snapshot) -> Result<()> {
    let mut rows = vec![(HEAD.map(str::to_owned), "1")];
    for group in &snapshot.groups {
        for status in [
            JobStatus::Succeeded,
            JobStatus::Discarded,
            JobStatus::Failed,
        ] {
            rows.extend(row(group, status).map(|row| (row, colour(status))));
        }
    }
    let widths: [usize; 7] = std::array::from_fn(|at| {
        rows.iter()
            .map(|(row, _)| row[at].chars().count())
            .max()
            .unwrap_or(0)
    });
    screen.line("")?;
    for (number, (row, colour)) in rows.iter().enumerate() {
        let mut line = String::from(" ");
        for (at, cell) in row.iter().enumerate() {
            let room = widths[at] - cell.chars().count();
            let (left, right) = if RIGHT[at] { (room, 0) } else { (0, room) };
            let cell = match number == 0 || at == STATUS {
                true => screen.paint(colour, cell),
                false => cell.clone(),
            };
            line.extend([" ", &" ".repeat(left), &cell, &" ".repeat(right), " "]);
        }
        screen.line(line.trim_end())?;
    }
    Ok(())
}

/// The jobs of a group that came to this, if some did.
fn row(group: &Group, status: JobStatus) -> Option<Row> {
    let jobs: Vec<&JobInfo> = group
        .jobs
        .iter()
        .filter(|job| job.status == status)
        .collect();
    let began = jobs.iter().map(|job| job.created_at).min()?;
    let ended = jobs.iter().filter_map(|job| job.ended_at).max()?;
    let attempts: i64 = jobs.iter().map(|job| i64::from(job.attempt)).sum();
    let last_error = jobs.iter().map(|job| error(job)).find(|it| !it.is_empty());
    Some([
        group.kind.clone(),
        group.queue.clone(),
        jobs.len().to_string(),
        attempts.to_string(),
        status.to_string(),
        seconds(ended - began),
        last_error.unwrap_or_default(),
    ])
}

fn colour(status: JobStatus) -> &'static str {
    match status {
        JobStatus::Succeeded => "32",
        _ => "31",
    }
}
