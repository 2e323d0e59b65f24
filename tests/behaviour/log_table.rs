//! The guide's table of log lines names every event of the sources, and no other.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The level of an event, and the beginning of its message: up to the first `;` or `:`.
type Event = (String, String);

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn sources(folder: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            found.push(std::fs::read_to_string(path).unwrap());
        }
    }
}

/// Returns the last string literal of a macro call, whose arguments begin here.
fn last_literal(arguments: &str) -> String {
    let (mut depth, mut last) = (1, String::new());
    let mut rest = arguments.chars();
    while depth > 0 {
        match rest.next().expect("the call ends") {
            '(' => depth += 1,
            ')' => depth -= 1,
            '"' => {
                last.clear();
                while let Some(next) = rest.next().filter(|next| *next != '"') {
                    // A backslash at the end of a line joins it with the next one.
                    match next {
                        '\\' => match rest.next() {
                            Some('\n') => rest = rest.as_str().trim_start().chars(),
                            escaped => last.extend(escaped),
                        },
                        next => last.push(next),
                    }
                }
            }
            _ => {}
        }
    }
    last
}

fn beginning(message: &str) -> &str {
    message.split([';', ':']).next().unwrap_or(message)
}

/// The events of the two crates, without those for debugging.
fn logged() -> BTreeSet<Event> {
    let mut files = Vec::new();
    for folder in ["jobs/src", "pipeline/src"] {
        sources(&root().join(folder), &mut files);
    }
    let mut events = BTreeSet::new();
    for file in files {
        for level in ["error", "warn", "info"] {
            let begins = format!("tracing::{level}!(");
            for (at, _) in file.match_indices(&begins) {
                let message = last_literal(&file[at + begins.len()..]);
                events.insert((level.to_owned(), beginning(&message).to_owned()));
            }
        }
    }
    events
}

/// The events of the guide's table.
fn documented() -> BTreeSet<Event> {
    let guide = std::fs::read_to_string(root().join("docs/guides/operating.md")).unwrap();
    let (_, section) = guide.split_once("### The log\n").expect("the section");
    let section = section.split("\n## ").next().unwrap_or(section);
    let mut events = BTreeSet::new();
    for row in section.lines().filter(|line| line.starts_with("| `")) {
        let columns: Vec<&str> = row.split('|').map(str::trim).collect();
        for event in columns[1].split('`').skip(1).step_by(2) {
            let repeated = events.insert((columns[2].to_owned(), event.to_owned()));
            assert!(repeated, "`{event}` has two rows");
        }
    }
    events
}

#[test]
fn the_table_of_log_lines_has_every_event_of_the_sources_and_no_other() {
    let (logged, documented) = (logged(), documented());
    assert!(logged.len() > 30, "the sources were read: {}", logged.len());
    let missing: Vec<_> = logged.difference(&documented).collect();
    let stale: Vec<_> = documented.difference(&logged).collect();
    assert!(
        missing.is_empty() && stale.is_empty(),
        "docs/guides/operating.md, The log: add {missing:#?}, remove {stale:#?}"
    );
}
