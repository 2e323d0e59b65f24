//! How we compare: ours over theirs, speed for jobs, chain, single and fan, time for latency.

use super::figures::Figures;
use super::workload::{DBOS, OURS, OURS_RELAXED, REFERENCE, Workload, is_peer, name};
use crate::frame::Report;
use crate::throughput;

/// A figure for programs.
pub(crate) struct Ratio {
    pub(crate) name: String,
    pub(crate) number: f64,
    /// Whether it is a figure by itself, and not a ratio.
    is_value: bool,
}

/// All that can be said about what was measured.
pub(crate) fn of(figures: &Figures) -> Vec<Ratio> {
    let mut ratios = Vec::new();
    let mut add = |name: String, number: Option<f64>, is_value| {
        ratios.extend(number.map(|number| Ratio {
            name,
            number,
            is_value,
        }));
    };
    let over = |workload, ours: &str, theirs: &str| {
        Some(figures.figure(workload, ours)? / figures.figure(workload, theirs)?)
    };

    let slots = over(Workload::Jobs, throughput::OURS_100, throughput::OURS);
    add("jobs/slots_100_1000".to_owned(), slots, false);
    let reference = over(Workload::Chain, OURS, REFERENCE);
    add("chain/reference".to_owned(), reference, false);
    for workload in [
        Workload::Jobs,
        Workload::Chain,
        Workload::Chain10Kb,
        Workload::Single,
        Workload::Fan,
        Workload::Latency,
    ] {
        for peer in figures.systems(workload) {
            if is_peer(peer) {
                let label = format!("{}/{}", workload.name(), name(peer));
                add(label, over(workload, OURS, peer), false);
            }
        }
    }
    for workload in [Workload::Latency, Workload::LatencySplit] {
        let label = format!("{}/floor", workload.name());
        add(label, figures.over_floor(workload, OURS), false);
    }
    add(
        "latency/p99_p50_over_floor".to_owned(),
        figures.spread_over_floor(Workload::Latency, OURS),
        false,
    );
    let relaxed = over(Workload::Latency, OURS_RELAXED, DBOS);
    add("latency/relaxed_dbos".to_owned(), relaxed, false);
    let transactions = figures.transactions_per_item(Workload::Chain, OURS);
    add("chain/tx_per_step".to_owned(), transactions, true);
    let wal = figures.wal_bytes_per_item(Workload::Chain, OURS);
    add("chain/wal_bytes_per_step".to_owned(), wal, true);
    ratios
}

/// The lines for programs.
pub(crate) fn report(ratios: &[Ratio]) -> Report {
    let mut report = Report::default();
    for ratio in ratios {
        match ratio.is_value {
            true => report.value(&ratio.name, ratio.number),
            false => report.ratio(&ratio.name, ratio.number),
        }
    }
    report
}
