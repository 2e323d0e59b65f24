//! The modules of a crate use each other in one direction: no cycle between them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// What each module of a crate uses, by `crate::module` in its sources. Names that the crate's root re-exports
/// are its vocabulary and do not count; `extension` only re-exports.
fn uses(krate: &str) -> BTreeMap<String, BTreeSet<String>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(krate)
        .join("src");
    let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in sources(&root) {
        let inside = file.strip_prefix(&root).unwrap().with_extension("");
        let module = inside.iter().next().unwrap().to_str().unwrap().to_owned();
        if ["lib", "extension"].contains(&module.as_str()) {
            continue;
        }
        let text = fs::read_to_string(&file).unwrap();
        let code = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"));
        let code: String = code.collect::<Vec<_>>().join(" ");
        for used in code.split("crate::").skip(1) {
            let names: Vec<&str> = match used.strip_prefix('{') {
                Some(list) => list.split('}').next().unwrap().split(',').collect(),
                None => vec![used],
            };
            for name in names {
                let name: String = name
                    .trim()
                    .chars()
                    .take_while(|char| char.is_ascii_lowercase() || *char == '_')
                    .collect();
                let is_module =
                    root.join(&name).is_dir() || root.join(format!("{name}.rs")).exists();
                if !name.is_empty() && name != module && is_module {
                    uses.entry(module.clone()).or_default().insert(name);
                }
            }
        }
    }
    uses
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| {
            if path.is_dir() {
                sources(&path)
            } else {
                vec![path]
            }
        })
        .filter(|path| path.extension().is_some_and(|it| it == "rs"))
        .collect()
}

/// A way from a module back to itself.
fn cycle(uses: &BTreeMap<String, BTreeSet<String>>) -> Option<Vec<String>> {
    fn walk(
        uses: &BTreeMap<String, BTreeSet<String>>,
        path: &mut Vec<String>,
        done: &mut BTreeSet<String>,
    ) -> Option<Vec<String>> {
        let at = path.last()?.clone();
        for next in uses.get(&at).into_iter().flatten() {
            if let Some(from) = path.iter().position(|it| it == next) {
                return Some(path[from..].to_vec());
            }
            if !done.contains(next) {
                path.push(next.clone());
                if let Some(found) = walk(uses, path, done) {
                    return Some(found);
                }
                path.pop();
            }
        }
        done.insert(at);
        None
    }
    let mut done = BTreeSet::new();
    uses.keys()
        .find_map(|start| walk(uses, &mut vec![start.clone()], &mut done))
}

#[test]
fn the_modules_of_a_crate_use_each_other_in_one_direction() {
    for krate in ["jobs", "pipeline"] {
        let uses = uses(krate);
        assert!(uses.len() >= 4, "{krate}: the sources are found: {uses:?}");
        assert_eq!(cycle(&uses), None, "{krate}: {uses:#?}");
    }
}

#[test]
fn a_cycle_is_found() {
    let edge = |from: &str, to: &str| (from.to_owned(), BTreeSet::from([to.to_owned()]));
    let uses = BTreeMap::from([edge("a", "b"), edge("b", "c"), edge("c", "b")]);
    assert_eq!(cycle(&uses), Some(vec!["b".to_owned(), "c".to_owned()]));
}
