//! The chart: a panel for each workload, a bar for each system.
//!
//! The colours are set by classes, and another set of them applies where the reader prefers dark pages. The page's own
//! background shows through.

use std::fmt::Write as _;

use super::figures::Figures;
use super::workload::{ALL, OURS, REFERENCE, Workload, name};

const WIDTH: f64 = 760.0;
/// Where the bars begin.
const LEFT: f64 = 170.0;
/// Where the longest bar ends; the figures stand behind the bars.
const RIGHT: f64 = 670.0;
const MARGIN: f64 = 10.0;
/// The height of a panel's title.
const TITLE: f64 = 26.0;
/// From a bar to the next one.
const ROW: f64 = 20.0;
const BAR: f64 = 14.0;
/// From a panel to the next one.
const GAP: f64 = 14.0;

const STYLE: &str = "
  text { font: 12px system-ui, sans-serif; fill: #24292f }
  .title { font-weight: 600 }
  .note { fill: #57606a }
  .ours { fill: #1f6feb }
  .theirs { fill: #afb8c1 }
  .reference { fill: none; stroke: #57606a; stroke-dasharray: 3 2 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 }
    .note { fill: #9198a1 }
    .ours { fill: #58a6ff }
    .theirs { fill: #57606a }
    .reference { stroke: #9198a1 }
  }";

/// The chart as a file's text.
pub(crate) fn svg(figures: &Figures) -> String {
    let mut body = String::new();
    let mut top = MARGIN;
    for workload in ALL {
        let systems = figures.systems(workload);
        if !systems.is_empty() {
            top = panel(&mut body, figures, workload, &systems, top) + GAP;
        }
    }
    let height = top - GAP + MARGIN;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         aria-label=\"Ours and the peers\">\n<style>{STYLE}\n</style>\n{body}</svg>\n"
    )
}

/// Draws a panel, and returns where it ends.
fn panel(
    body: &mut String,
    figures: &Figures,
    workload: Workload,
    systems: &[&str],
    top: f64,
) -> f64 {
    let better = match workload.is_time() {
        true => "less is better",
        false => "more is better",
    };
    line(
        body,
        format_args!(
            "<text x=\"{MARGIN}\" y=\"{:.1}\" class=\"title\">{}<tspan class=\"note\" font-weight=\"400\"> {}, \
             {better}</tspan></text>",
            top + TITLE - 12.0,
            title(workload),
            workload.unit()
        ),
    );
    let number = |system: &str| figures.figure(workload, system).unwrap_or(0.0);
    let most = systems.iter().map(|it| number(it)).fold(0.0, f64::max);
    for (at, system) in systems.iter().enumerate() {
        let y = top + TITLE + ROW * at as f64;
        let width = match most > 0.0 {
            true => (RIGHT - LEFT) * number(system) / most,
            false => 0.0,
        };
        let class = match name(system) {
            its if its.starts_with(OURS) => "ours",
            REFERENCE => "reference",
            _ => "theirs",
        };
        let baseline = y + BAR - 3.0;
        line(
            body,
            format_args!(
                "<text x=\"{:.1}\" y=\"{baseline:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 8.0,
                label(workload, system)
            ),
        );
        line(
            body,
            format_args!(
                "<rect x=\"{LEFT}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{BAR}\" rx=\"2\" class=\"{class}\"/>"
            ),
        );
        line(
            body,
            format_args!(
                "<text x=\"{:.1}\" y=\"{baseline:.1}\">{}</text>",
                LEFT + width + 6.0,
                figure(workload, number(system))
            ),
        );
    }
    top + TITLE + ROW * systems.len() as f64
}

fn line(body: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _ = writeln!(body, "{text}");
}

fn title(workload: Workload) -> &'static str {
    match workload {
        Workload::Jobs => "Plain jobs",
        Workload::Chain => "Chain of 5, 200 runs started at a time",
        Workload::Chain10Kb => "Chain of 5 with payloads of 10 KB",
        Workload::Single => "Chain of 5, each run started alone, 64 in flight",
        Workload::Fan => "1 → 10 → 1",
        Workload::Latency => "Chain of 5, one run at a time, start to output",
        Workload::LatencySplit => "The same, client and worker in two processes",
    }
}

/// The system's name; of plain jobs, with our slots.
fn label(workload: Workload, system: &str) -> String {
    match (workload, system.split_once(':')) {
        (Workload::Jobs, Some((OURS, slots))) => format!("{OURS}, {slots} slots"),
        _ => name(system).to_owned(),
    }
}

/// Formats a figure for the chart: `12,345` or `3.45`.
fn figure(workload: Workload, number: f64) -> String {
    if workload.is_time() {
        return format!("{number:.1}");
    }
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Counted, Measured};
    use crate::peers::figures::Outcome;

    #[test]
    fn a_bar_is_as_long_as_its_figure() {
        let mut figures = Figures::default();
        for (system, items) in [("ours:1000", 20_000), ("graphile_worker:1:2", 10_000)] {
            figures.add(Outcome {
                workload: Workload::Jobs,
                system: system.to_owned(),
                measured: Measured {
                    items,
                    seconds: 1.0,
                    ..Measured::default()
                },
                counted: Counted::default(),
            });
        }
        let svg = svg(&figures);
        assert!(svg.contains("ours, 1000 slots"), "{svg}");
        assert!(svg.contains("width=\"500.0\""), "{svg}");
        assert!(svg.contains("width=\"250.0\""), "{svg}");
        assert!(svg.contains(">20,000<"), "{svg}");
    }
}
