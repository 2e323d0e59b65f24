//! `docs/conformance.md` and the tests say the same.
//!
//! The list names each scenario once. What it names as shown has a test, and a test that bears a
//! scenario's number in its name is named there. Numbers in a name stand before the first word:
//! `t055_halt_..`, `t001_t002_..`, or from one to another `t125_to_t132_..`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const LIST: &str = include_str!("../../../docs/conformance.md");

/// The scenarios there are: the study's own numbers, which have gaps.
const SCENARIOS: [(char, &[(u16, u16)]); 3] = [
    (
        'T',
        &[
            (1, 15),
            (17, 201),
            (206, 206),
            (208, 208),
            (210, 212),
            (214, 225),
            (227, 241),
            (244, 246),
            (248, 256),
            (260, 260),
            (262, 275),
            (280, 281),
        ],
    ),
    ('U', &[(1, 70)]),
    (
        'H',
        &[
            (1, 11),
            (13, 25),
            (27, 29),
            (31, 70),
            (74, 82),
            (84, 84),
            (86, 86),
            (92, 94),
            (96, 115),
        ],
    ),
];

const ANSWERS: [&str; 5] = [
    "shown",
    "differs",
    "no meaning",
    "with the dashboard",
    "not shown yet",
];

/// Where ours may differ.
const MAY_DIFFER: [&str; 6] = ["rule 13", "rule 16", "rule 18", "rule 19", "rule 25", "§8"];

fn scenarios() -> BTreeSet<String> {
    let all = SCENARIOS.iter().flat_map(|(letter, ranges)| {
        let numbers = ranges.iter().flat_map(|(from, to)| *from..=*to);
        numbers.map(move |number| format!("{letter}{number:03}"))
    });
    all.collect()
}

/// A row of the list.
struct Row {
    answer: &'static str,
    rule: String,
    tests: Vec<String>,
    said: String,
}

fn is_scenario(word: &str) -> bool {
    let mut chars = word.chars();
    word.len() == 4
        && chars.next().is_some_and(|it| "TUH".contains(it))
        && chars.all(|it| it.is_ascii_digit())
}

fn rows() -> Vec<(String, Row)> {
    let mut rows = Vec::new();
    for line in LIST.lines() {
        let line = line.replace("\\|", "/");
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let ["", number, _, answer, said, ""] = cells[..] else {
            continue;
        };
        if !is_scenario(number) {
            continue;
        }
        let (answer, rule) = answer.split_once(": ").unwrap_or((answer, ""));
        let known = ANSWERS.into_iter().find(|it| *it == answer);
        let tests = said.split('`').skip(1).step_by(2);
        let tests = tests.filter(|it| it.contains("::")).map(str::to_owned);
        let row = Row {
            answer: known.unwrap_or_else(|| panic!("{number}: `{answer}` is no answer")),
            rule: rule.to_owned(),
            tests: tests.collect(),
            said: said.to_owned(),
        };
        rows.push((number.to_owned(), row));
    }
    rows
}

/// All tests: those of this package by their module, those inside a crate as `crate/module`.
fn tests() -> BTreeSet<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut found = BTreeSet::new();
    for (crate_name, folder) in [
        ("", "tests/behaviour"),
        ("pipeline/", "pipeline/src"),
        ("jobs/", "jobs/src"),
    ] {
        collect(&root.join(folder), crate_name, &mut found);
    }
    found
}

fn collect(folder: &Path, module: &str, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        if path.is_dir() {
            collect(&path, &format!("{module}{name}::"), found);
        } else if path.extension().is_some_and(|it| it == "rs") {
            let inner = match name {
                "mod" | "main" | "lib" => module.to_owned(),
                name => format!("{module}{name}::"),
            };
            let source = std::fs::read_to_string(&path).unwrap();
            found.extend(functions(&source).map(|name| format!("{inner}{name}")));
        }
    }
}

/// The functions that are tests.
fn functions(source: &str) -> impl Iterator<Item = &str> {
    let mut is_test = false;
    source.lines().filter_map(move |line| {
        let line = line.trim();
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
        }
        let name = line.strip_prefix("async ").unwrap_or(line);
        let name = name.strip_prefix("fn ")?.split(['(', '<']).next()?;
        std::mem::take(&mut is_test).then_some(name)
    })
}

/// The numbers that a test's name begins with.
fn numbers(test: &str, all: &BTreeSet<String>) -> BTreeSet<String> {
    let name = test.rsplit("::").next().unwrap_or(test);
    let mut found = BTreeSet::new();
    let mut from: Option<String> = None;
    let mut last = String::new();
    for word in name.split('_') {
        if word == "to" && !last.is_empty() {
            from = Some(last.clone());
            continue;
        }
        let number = word.to_uppercase();
        if !is_scenario(&number) || word == number {
            break;
        }
        if let Some(from) = from.take() {
            found.extend(all.range(from..=number.clone()).cloned());
        }
        last.clone_from(&number);
        found.insert(number);
    }
    found
}

#[test]
fn every_scenario_is_listed_once_and_no_other() {
    let listed = rows();
    let numbers: BTreeSet<String> = listed.iter().map(|(number, _)| number.clone()).collect();
    assert_eq!(numbers.len(), listed.len(), "a scenario is there twice");
    assert_eq!(numbers.len(), 432);
    assert_eq!(numbers, scenarios());
}

#[test]
fn every_answer_is_complete() {
    for (number, row) in rows() {
        match row.answer {
            "shown" => assert!(!row.tests.is_empty(), "{number} names no test"),
            "differs" => {
                let rule = MAY_DIFFER.contains(&row.rule.as_str());
                assert!(
                    rule,
                    "{number}: `{}` is no rule by which to differ",
                    row.rule
                );
                assert!(!row.tests.is_empty(), "{number} names no test");
            }
            "no meaning" => assert!(!row.said.is_empty(), "{number} does not say why"),
            _ => {}
        }
    }
}

#[test]
fn the_tests_that_are_named_are_there_and_those_with_a_number_are_named() {
    let (all, tests, rows) = (scenarios(), tests(), rows());
    let mut named: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (number, row) in &rows {
        for test in &row.tests {
            assert!(tests.contains(test), "{number}: there is no test `{test}`");
            assert_ne!(row.answer, "not shown yet", "{number} names `{test}`");
            let borne = numbers(test, &all);
            assert!(
                borne.is_empty() || borne.contains(number),
                "`{test}` does not bear the number {number}"
            );
            named.entry(test).or_default().insert(number);
        }
    }
    for test in &tests {
        for number in numbers(test, &all) {
            assert!(all.contains(&number), "`{test}`: there is no {number}");
            let is_named = named.get(&**test).is_some_and(|it| it.contains(&*number));
            assert!(is_named, "`{test}` is not named at {number}");
        }
    }
}

/// The table at the head of the page: `| shown | 100 |`.
#[test]
fn the_counts_are_right() {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, row) in rows() {
        *counts.entry(row.answer).or_default() += 1;
    }
    for answer in ANSWERS {
        let count = counts.get(answer).copied().unwrap_or(0);
        let line = format!("| {answer} | {count} |");
        assert!(LIST.contains(&line), "the page should say `{line}`");
    }
}
