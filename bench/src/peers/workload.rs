//! The workloads, and which systems have them.

use crate::throughput;

/// What the systems are given to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum Workload {
    /// Plain jobs, from a full queue to their ends.
    Jobs,
    /// Chains of five steps, 200 started at a time.
    Chain,
    /// Chains of five steps with payloads of 10 KB, 200 started at a time; one round.
    #[value(name = "chain_10kb")]
    Chain10Kb,
    /// Chains of five steps, each started by a call of its own, 64 in flight.
    Single,
    /// One step, ten after it, one after these, 200 runs started at a time.
    Fan,
    /// Chains of five steps, one at a time, from the start to the output.
    Latency,
    /// Chains of five steps, one at a time, with client and worker in two processes.
    LatencySplit,
}

pub(crate) const ALL: [Workload; 7] = [
    Workload::Jobs,
    Workload::Chain,
    Workload::Chain10Kb,
    Workload::Single,
    Workload::Fan,
    Workload::Latency,
    Workload::LatencySplit,
];

pub(crate) const OURS: &str = "ours";
pub(crate) const OURS_RELAXED: &str = "ours-relaxed";
pub(crate) const REFERENCE: &str = "reference";
pub(crate) const DBOS: &str = "dbos";
const APALIS: &str = "apalis-workflow";
const UNDERWAY: &str = "underway";

impl Workload {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Jobs => "jobs",
            Self::Chain => "chain",
            Self::Chain10Kb => "chain_10kb",
            Self::Single => "single",
            Self::Fan => "fan",
            Self::Latency => "latency",
            Self::LatencySplit => "latency_split",
        }
    }

    /// What the children of the workload are told.
    pub(crate) fn bench(self) -> String {
        match self {
            Self::Jobs => self.name().to_owned(),
            _ => format!("peers.{}", self.name()),
        }
    }

    /// The systems that have the workload, ours first. Numbers after a colon are settings: see the system's file.
    ///
    /// graphile_worker and apalis-postgres have jobs alone, and dbos has none without a workflow around them.
    /// underway has no fan, and its queue no index, so that the cost of a plain job grows with the rows.
    pub(crate) fn systems(self) -> Vec<&'static str> {
        match self {
            Self::Jobs => vec![
                throughput::OURS,
                throughput::OURS_100,
                throughput::GRAPHILE,
                throughput::APALIS,
            ],
            Self::Chain => vec![OURS, REFERENCE, DBOS, APALIS, UNDERWAY],
            Self::Chain10Kb | Self::Single => vec![OURS, DBOS, APALIS, UNDERWAY],
            Self::Fan => vec![OURS, DBOS, APALIS],
            Self::Latency => vec![OURS, OURS_RELAXED, DBOS, APALIS, UNDERWAY],
            Self::LatencySplit => vec![OURS],
        }
    }

    /// Whether the figure is a time, of which less is better, and not a speed.
    pub(crate) fn is_time(self) -> bool {
        matches!(self, Self::Latency | Self::LatencySplit)
    }

    /// What is counted by the second, or timed.
    pub(crate) fn unit(self) -> &'static str {
        match self {
            Self::Jobs => "jobs/s",
            Self::Latency | Self::LatencySplit => "ms",
            _ => "steps/s",
        }
    }
}

/// The name of a system without the numbers that it is set up with.
pub(crate) fn name(system: &str) -> &str {
    system.split(':').next().unwrap_or(system)
}

/// Returns whether the program in `bench/peers` measures this system; the program in `bench` measures the others.
pub(crate) fn is_peer(system: &str) -> bool {
    ![OURS, OURS_RELAXED, REFERENCE].contains(&name(system))
}

/// The systems of a workload that the user wants: by name, or with other numbers than the usual ones.
pub(crate) fn chosen(workload: Workload, wanted: Option<&[String]>) -> Vec<String> {
    let usual = workload.systems().into_iter().map(str::to_owned);
    let Some(wanted) = wanted else {
        return usual.collect();
    };
    usual
        .flat_map(|system| {
            let mut found: Vec<String> = Vec::new();
            for wanted in wanted.iter().filter(|it| name(it) == name(&system)) {
                found.push(match wanted.contains(':') {
                    true => wanted.clone(),
                    false => system.clone(),
                });
            }
            found
        })
        .fold(Vec::new(), |mut all, system| {
            if !all.contains(&system) {
                all.push(system);
            }
            all
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systems_are_chosen_by_name_or_with_numbers() {
        let wanted = ["ours", "dbos:10"].map(str::to_owned);
        assert_eq!(chosen(Workload::Single, Some(&wanted)), ["ours", "dbos:10"]);
        assert_eq!(
            chosen(Workload::Jobs, Some(&wanted)),
            [throughput::OURS, throughput::OURS_100]
        );
        assert_eq!(chosen(Workload::LatencySplit, None), ["ours"]);
    }
}
