//! What was measured, and the table of it.

use super::floor::{CHAIN_MS, FLOOR_MS};
use super::workload::{ALL, Workload, name};
use crate::frame::{Counted, Measured, median, percentile, table};

/// One system under one workload in one round.
pub(crate) struct Outcome {
    pub(crate) workload: Workload,
    pub(crate) system: String,
    pub(crate) measured: Measured,
    pub(crate) counted: Counted,
}

impl Outcome {
    /// Items by the second; for a workload that is timed, the median time in milliseconds.
    fn figure(&self) -> f64 {
        match self.workload.is_time() {
            true => self.part_of(CHAIN_MS, 0.5),
            false => self.measured.items as f64 / self.measured.seconds,
        }
    }

    fn part_of(&self, series: &str, part: f64) -> f64 {
        percentile(self.measured.series(series), part)
    }

    /// The p99 over the p50.
    fn spread(&self, series: &str) -> f64 {
        self.part_of(series, 0.99) / self.part_of(series, 0.5)
    }

    fn each(&self, count: i64) -> f64 {
        count as f64 / self.measured.items as f64
    }
}

/// All outcomes, in the order of their measuring.
#[derive(Default)]
pub(crate) struct Figures(Vec<Outcome>);

impl Figures {
    pub(crate) fn add(&mut self, outcome: Outcome) {
        self.0.push(outcome);
    }

    /// The systems that have been measured under a workload.
    pub(crate) fn systems(&self, workload: Workload) -> Vec<&str> {
        let mut systems: Vec<&str> = Vec::new();
        for outcome in self.0.iter().filter(|it| it.workload == workload) {
            if !systems.contains(&outcome.system.as_str()) {
                systems.push(&outcome.system);
            }
        }
        systems
    }

    /// The median over the rounds of something about a system under a workload; of systems with the same name, the
    /// one that was measured first.
    pub(crate) fn median_of(
        &self,
        workload: Workload,
        system: &str,
        of: impl Fn(&Outcome) -> f64,
    ) -> Option<f64> {
        let systems = self.systems(workload);
        let exact = systems.iter().find(|it| **it == system);
        let same_name = || systems.iter().find(|it| name(it) == system);
        let system = *exact.or_else(same_name)?;
        let rounds = self.0.iter();
        let rounds = rounds.filter(|it| it.workload == workload && it.system == system);
        Some(median(rounds.map(of).collect()))
    }

    /// Items by the second, or the median time in milliseconds.
    pub(crate) fn figure(&self, workload: Workload, system: &str) -> Option<f64> {
        self.median_of(workload, system, Outcome::figure)
    }

    /// The median time over that of the floor, which was measured in turn with it.
    pub(crate) fn over_floor(&self, workload: Workload, system: &str) -> Option<f64> {
        self.median_of(workload, system, |it| {
            it.part_of(CHAIN_MS, 0.5) / it.part_of(FLOOR_MS, 0.5)
        })
    }

    /// The p99 over the p50, over the same of the floor.
    pub(crate) fn spread_over_floor(&self, workload: Workload, system: &str) -> Option<f64> {
        self.median_of(workload, system, |it| {
            it.spread(CHAIN_MS) / it.spread(FLOOR_MS)
        })
    }

    pub(crate) fn transactions_per_item(&self, workload: Workload, system: &str) -> Option<f64> {
        self.median_of(workload, system, |it| it.each(it.counted.transactions))
    }

    pub(crate) fn wal_bytes_per_item(&self, workload: Workload, system: &str) -> Option<f64> {
        self.median_of(workload, system, |it| it.each(it.counted.wal_bytes))
    }

    /// Prints a table for each workload, and under it how each system was set up.
    pub(crate) fn print(&self) {
        for workload in ALL {
            let systems = self.systems(workload);
            if systems.is_empty() {
                continue;
            }
            println!("{}, {}", workload.name(), workload.unit());
            match workload.is_time() {
                true => self.print_times(workload, &systems),
                false => self.print_speeds(workload, &systems),
            }
            for system in &systems {
                let of_it = |it: &&Outcome| it.workload == workload && it.system == *system;
                if let Some(outcome) = self.0.iter().find(of_it) {
                    println!("  {system}: {}", outcome.measured.settings);
                }
            }
            println!();
        }
    }

    fn print_speeds(&self, workload: Workload, systems: &[&str]) {
        let head = [
            "",
            "median",
            "rounds",
            "tx/item",
            "WAL bytes/item",
            "peak MB",
        ];
        let mut rows = vec![head.map(str::to_owned)];
        for system in systems {
            let number = |of: &dyn Fn(&Outcome) -> f64| {
                self.median_of(workload, system, of).unwrap_or(f64::NAN)
            };
            rows.push([
                (*system).to_owned(),
                format!("{:.0}", number(&Outcome::figure)),
                self.rounds(workload, system, |figure| format!("{figure:.0}")),
                format!("{:.3}", number(&|it| it.each(it.counted.transactions))),
                format!("{:.0}", number(&|it| it.each(it.counted.wal_bytes))),
                format!("{:.1}", number(&peak_mb)),
            ]);
        }
        table(&rows);
    }

    /// Each system's times, and those of the floor beside it.
    fn print_times(&self, workload: Workload, systems: &[&str]) {
        let head = ["", "p50", "p90", "p99", "p50 of the rounds", "tx/run"];
        let mut rows = vec![head.map(str::to_owned)];
        for system in systems {
            for (label, series) in [("", CHAIN_MS), (", its floor", FLOOR_MS)] {
                let at = |part| {
                    let number = self.median_of(workload, system, |it| it.part_of(series, part));
                    format!("{:.2}", number.unwrap_or(f64::NAN))
                };
                let is_floor = series == FLOOR_MS;
                let transactions = self.transactions_per_item(workload, system);
                rows.push([
                    format!("{system}{label}"),
                    at(0.5),
                    at(0.9),
                    at(0.99),
                    match is_floor {
                        true => String::new(),
                        false => self.rounds(workload, system, |figure| format!("{figure:.2}")),
                    },
                    match (is_floor, transactions) {
                        // The floor's seven are counted with those of the system.
                        (false, Some(transactions)) => format!("{:.1}", transactions - 7.0),
                        _ => String::new(),
                    },
                ]);
            }
        }
        table(&rows);
    }

    fn rounds(&self, workload: Workload, system: &str, text: impl Fn(f64) -> String) -> String {
        let rounds = self.0.iter();
        let rounds = rounds.filter(|it| it.workload == workload && it.system == system);
        let texts: Vec<String> = rounds.map(|it| text(it.figure())).collect();
        texts.join(" ")
    }
}

fn peak_mb(outcome: &Outcome) -> f64 {
    let peak = outcome.measured.peak_kib;
    peak.map_or(f64::NAN, |kib| kib as f64 / 1024.0)
}
