//! `docs/conformance.md` and the tests agree.
//!
//! The page names each scenario of the reference study once, and for each scenario that is shown
//! the tests that show it. A test names its scenarios in a line of its doc comment,
//! `/// Scenarios: T055, T061`. Each pair of scenario and test stands in both places.

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

/// Every test with the scenarios that its doc comment names. Tests of this package are named by their
/// module, tests inside a crate as `crate/module`.
fn tests() -> BTreeMap<String, BTreeSet<String>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut found = BTreeMap::new();
    for (crate_name, folder) in [
        ("", "tests/behaviour"),
        ("pipeline/", "pipeline/src"),
        ("jobs/", "jobs/src"),
    ] {
        collect(&root.join(folder), crate_name, &mut found);
    }
    found
}

fn collect(folder: &Path, module: &str, found: &mut BTreeMap<String, BTreeSet<String>>) {
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
            for (test, scenarios) in functions(&source) {
                found.insert(format!("{inner}{test}"), scenarios);
            }
        }
    }
}

/// Returns the test functions of a source file, each with the scenarios of its doc comment.
fn functions(source: &str) -> Vec<(&str, BTreeSet<String>)> {
    let mut tests = Vec::new();
    let (mut is_test, mut scenarios) = (false, BTreeSet::new());
    for line in source.lines().map(str::trim) {
        if let Some(list) = line.strip_prefix("/// Scenarios:") {
            scenarios.extend(list.split(',').map(|it| it.trim().to_owned()));
        }
        is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
        let function = line.strip_prefix("async ").unwrap_or(line);
        if let Some(function) = function.strip_prefix("fn ") {
            let name = function.split(['(', '<']).next().unwrap_or(function);
            let scenarios = std::mem::take(&mut scenarios);
            if std::mem::take(&mut is_test) {
                tests.push((name, scenarios));
            } else {
                assert!(
                    scenarios.is_empty(),
                    "`{name}` names scenarios and is no test"
                );
            }
        }
    }
    tests
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
fn the_page_and_the_tests_name_the_same_pairs_of_scenario_and_test() {
    let (all, tests, rows) = (scenarios(), tests(), rows());
    let mut on_the_page: BTreeSet<(&str, &str)> = BTreeSet::new();
    for (number, row) in &rows {
        for test in &row.tests {
            assert!(
                tests.contains_key(test),
                "{number}: there is no test `{test}`"
            );
            assert_ne!(row.answer, "not shown yet", "{number} names `{test}`");
            on_the_page.insert((number, test));
        }
    }
    let mut in_the_tests: BTreeSet<(&str, &str)> = BTreeSet::new();
    for (test, scenarios) in &tests {
        for number in scenarios {
            assert!(
                all.contains(number),
                "`{test}`: there is no scenario `{number}`"
            );
            in_the_tests.insert((number, test));
        }
    }
    let only_page: Vec<_> = on_the_page.difference(&in_the_tests).collect();
    let only_tests: Vec<_> = in_the_tests.difference(&on_the_page).collect();
    assert!(
        only_page.is_empty() && only_tests.is_empty(),
        "named on the page, not in the test's doc comment: {only_page:?}; \
        named in the test's doc comment, not on the page: {only_tests:?}"
    );
}

#[test]
fn the_name_of_a_test_is_a_behaviour_and_bears_no_number() {
    for test in tests().keys() {
        let name = test.rsplit("::").next().unwrap_or(test);
        let first = name.split('_').next().unwrap_or(name);
        assert!(
            !is_scenario(&first.to_uppercase()),
            "`{test}`: the number belongs into the doc comment, `/// Scenarios: {}`",
            first.to_uppercase()
        );
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
