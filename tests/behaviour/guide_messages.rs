//! The compiler messages that a guide shows are those that the compiler prints.

use std::path::Path;

/// Returns a message without the paths of its types, which depend on what is in scope.
fn short(message: &str) -> String {
    ["std::option::", "std::result::", "pipeline::"]
        .iter()
        .fold(message.to_owned(), |text, path| text.replace(path, ""))
}

#[test]
fn every_error_of_the_guide_to_type_errors_is_one_that_the_compiler_prints() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let guide = root.join("../docs/guides/reading-type-errors.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let mut printed = Vec::new();
    for entry in std::fs::read_dir(root.join("ui/graphs")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|it| it == "stderr") {
            let text = std::fs::read_to_string(path).unwrap();
            printed.extend(text.lines().map(short));
        }
    }
    let shown: Vec<&str> = guide
        .lines()
        .filter(|line| line.starts_with("error["))
        .collect();
    assert!(shown.len() >= 6, "the guide shows messages: {shown:?}");
    for message in shown {
        assert!(
            printed.contains(&short(message)),
            "no test prints: {message}"
        );
    }
}
