//! What a bench prints: a table for people, then lines of exactly three fields for programs.

use super::{Counted, Measured};

/// Collects what is to be printed; [`Report::print`] prints it.
#[derive(Default)]
pub(crate) struct Report {
    rows: Vec<[String; 7]>,
    lines: Vec<String>,
}

const HEAD: [&str; 7] = [
    "system",
    "items",
    "items/s",
    "tx/item",
    "statements/item",
    "WAL bytes/item",
    "peak MB",
];

impl Report {
    /// Adds a row to the table.
    pub(crate) fn row(&mut self, system: &str, measured: &Measured, counted: &Counted) {
        let each = |count: i64| count as f64 / measured.items as f64;
        self.rows.push([
            system.to_owned(),
            measured.items.to_string(),
            format!("{:.0}", measured.items as f64 / measured.seconds),
            format!("{:.3}", each(counted.transactions)),
            counted
                .statements
                .map_or("n/a".to_owned(), |n| format!("{:.3}", each(n))),
            format!("{:.0}", each(counted.wal_bytes)),
            measured
                .peak_kib
                .map_or("n/a".to_owned(), |n| format!("{:.1}", n as f64 / 1024.0)),
        ]);
    }

    /// Adds the ratio of two figures.
    pub(crate) fn ratio(&mut self, name: &str, number: f64) {
        self.line("ratio", name, number);
    }

    /// Adds a single figure.
    pub(crate) fn value(&mut self, name: &str, number: f64) {
        self.line("value", name, number);
    }

    /// Adds a count.
    pub(crate) fn count(&mut self, name: &str, number: usize) {
        debug_assert!(!name.contains(char::is_whitespace), "`{name}` has a blank");
        self.lines.push(format!("value {name} {number}"));
    }

    fn line(&mut self, kind: &str, name: &str, number: f64) {
        debug_assert!(!name.contains(char::is_whitespace), "`{name}` has a blank");
        self.lines.push(format!("{kind} {name} {number:.3}"));
    }

    /// The lines for programs.
    pub(crate) fn close(&self) {
        for line in &self.lines {
            println!("{line}");
        }
    }

    pub(crate) fn print(&self, title: &str, settings: &str) {
        println!("{title}\n{settings}\n");
        let head = HEAD.map(str::to_owned);
        table(std::iter::once(&head).chain(&self.rows));
        println!();
        self.close();
    }
}

/// Prints rows of cells in columns, the first to the left and the others to the right.
pub(crate) fn table<'a, const N: usize>(rows: impl IntoIterator<Item = &'a [String; N]>) {
    let rows: Vec<&[String; N]> = rows.into_iter().collect();
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    for row in rows {
        let cells: Vec<String> = row
            .iter()
            .zip(widths)
            .enumerate()
            .map(|(column, (cell, width))| match column {
                0 => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            })
            .collect();
        println!("{}", cells.join("  "));
    }
}

/// The middle one; of an even number, the lower of the two.
pub(crate) fn median(mut numbers: Vec<f64>) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers
        .get(numbers.len().saturating_sub(1) / 2)
        .copied()
        .unwrap_or(f64::NAN)
}

/// The number that this part of all numbers does not exceed: 0.99 is the 99th percentile.
pub(crate) fn percentile(numbers: &[f64], part: f64) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    let index = (sorted.len().saturating_sub(1) as f64 * part) as usize;
    sorted.get(index).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_one() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.0);
        assert!(median(vec![]).is_nan());
    }

    #[test]
    fn a_percentile_is_one_of_the_numbers() {
        let numbers: Vec<f64> = (0..=100).rev().map(f64::from).collect();
        assert_eq!(percentile(&numbers, 0.5), 50.0);
        assert_eq!(percentile(&numbers, 0.99), 99.0);
        assert_eq!(percentile(&numbers, 1.0), 100.0);
        assert!(percentile(&[], 0.5).is_nan());
    }

    #[test]
    fn lines_have_three_fields() {
        let mut report = Report::default();
        report.ratio("floor/commit-group", 12.345_67);
        report.value("floor/peak_mb", 1.0);
        report.count("chaos/jobs/violations", 0);
        assert_eq!(
            report.lines,
            [
                "ratio floor/commit-group 12.346",
                "value floor/peak_mb 1.000",
                "value chaos/jobs/violations 0"
            ]
        );
    }
}
