//! What we aim at, beside what was measured.

use super::ratios::Ratio;
use crate::frame::table;

enum Aim {
    AtLeast(f64),
    AtMost(f64),
}

/// The aim for a figure. Of `chain` and `fan`, the aim is about the best of the peers, so it is one for each of them.
fn aim(name: &str) -> Option<Aim> {
    Some(match name {
        "jobs/graphile_worker" => Aim::AtLeast(1.1),
        "jobs/slots_100_1000" => Aim::AtLeast(0.8),
        "chain/reference" => Aim::AtLeast(0.55),
        "chain/tx_per_step" => Aim::AtMost(0.02),
        "chain/wal_bytes_per_step" => Aim::AtMost(1_300.0),
        "single/dbos" => Aim::AtLeast(4.0),
        "latency/dbos" => Aim::AtMost(0.75),
        "latency/floor" => Aim::AtMost(2.4),
        "latency/p99_p50_over_floor" => Aim::AtMost(1.5),
        "latency/relaxed_dbos" => Aim::AtMost(0.6),
        _ if name.starts_with("chain/") || name.starts_with("fan/") => Aim::AtLeast(6.0),
        _ => return None,
    })
}

/// Prints the figures that have an aim, and whether it is reached.
pub(crate) fn print(ratios: &[Ratio]) {
    let mut rows = Vec::new();
    for ratio in ratios {
        let (text, is_reached) = match aim(&ratio.name) {
            Some(Aim::AtLeast(aim)) => (format!("at least {aim}"), ratio.number >= aim),
            Some(Aim::AtMost(aim)) => (format!("at most {aim}"), ratio.number <= aim),
            None => continue,
        };
        let reached = if is_reached { "reached" } else { "missed" };
        rows.push([
            ratio.name.clone(),
            format!("{:.3}", ratio.number),
            text,
            reached.to_owned(),
        ]);
    }
    if !rows.is_empty() {
        let head = ["ours over theirs", "measured", "aim", ""].map(str::to_owned);
        table(std::iter::once(&head).chain(&rows));
        println!();
    }
}
