//! The links of the guides lead to pages and headings that exist, in the repository and in rustdoc.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
}

/// Returns the text of each page that rustdoc shows, by its path in `docs`.
fn pages() -> BTreeMap<String, String> {
    let mut paths = vec!["guarantees.md".to_owned()];
    for entry in std::fs::read_dir(docs().join("guides")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        paths.push(format!("guides/{name}"));
    }
    let read = |path: String| {
        let text = std::fs::read_to_string(docs().join(&path)).unwrap();
        (path, text)
    };
    paths.into_iter().map(read).collect()
}

/// Returns the lines of a page outside its code blocks.
fn prose(page: &str) -> impl Iterator<Item = &str> {
    let mut is_fenced = false;
    page.lines().filter(move |line| {
        let is_fence = line.starts_with("```");
        is_fenced ^= is_fence;
        !is_fence && !is_fenced
    })
}

/// Returns the anchors of the headings of a page.
fn anchors(page: &str) -> BTreeSet<String> {
    let headings = prose(page).filter(|line| line.starts_with('#'));
    let anchor = |line: &str| {
        let text = line.trim_start_matches('#').trim().to_lowercase();
        let kept = text
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.collect::<String>().replace(' ', "-")
    };
    headings.map(anchor).collect()
}

/// Returns the link definitions of a text, label and target.
fn definitions(text: &str) -> BTreeMap<&str, &str> {
    text.lines()
        .filter_map(|line| line.strip_prefix('[')?.split_once("]: "))
        .filter(|(label, _)| !label.contains(']'))
        .collect()
}

#[test]
fn every_link_of_the_guides_leads_to_a_page_and_a_heading() {
    let pages = pages();
    let mut count = 0;
    for (path, page) in &pages {
        for (label, target) in definitions(page) {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let folder = Path::new(path).parent().unwrap();
            let file = match file.strip_prefix("../") {
                Some(above) => above.to_owned(),
                None => folder.join(file).to_string_lossy().into_owned(),
            };
            let found = pages.get(&file);
            let found =
                found.unwrap_or_else(|| panic!("{path}: {target} is not a page of rustdoc"));
            assert!(
                anchor.is_empty() || anchors(found).contains(anchor),
                "{path}: {target} has no such heading"
            );
            assert!(
                page.contains(&format!("][{label}]")),
                "{path}: {label} is not used"
            );
            count += 1;
        }
        for line in prose(page) {
            for (_, rest) in line
                .match_indices("](")
                .map(|(at, _)| line.split_at(at + 2))
            {
                let target = rest.split(')').next().unwrap_or(rest);
                let is_own = target
                    .strip_prefix('#')
                    .is_some_and(|it| anchors(page).contains(it));
                assert!(
                    is_own || target.starts_with("https://"),
                    "{path}: {target} is an inline link; rustdoc needs a reference link, and a heading of this page \
                     must exist"
                );
            }
        }
    }
    assert!(count > 50, "{count} links were read");
}

#[test]
fn rustdoc_has_a_target_for_every_link_of_the_guides() {
    let links = docs().join("../pipeline/docs/guide-links.md");
    let links = std::fs::read_to_string(links).unwrap();
    let links = definitions(&links);
    let mut used = BTreeSet::new();
    for (path, page) in &pages() {
        for (label, target) in definitions(page) {
            let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
            let name = Path::new(file)
                .file_stem()
                .unwrap()
                .to_string_lossy()
                .replace('-', "_");
            let anchor = if anchor.is_empty() {
                String::new()
            } else {
                format!("#{anchor}")
            };
            let expected = format!("crate::guides::{name}{anchor}");
            assert_eq!(
                links.get(label),
                Some(&expected.as_str()),
                "{path}: `[{label}]: {expected}` belongs into pipeline/docs/guide-links.md"
            );
            used.insert(label.to_owned());
        }
    }
    let unused: Vec<_> = links
        .keys()
        .filter(|label| !used.contains(**label))
        .collect();
    assert!(
        unused.is_empty(),
        "pipeline/docs/guide-links.md: no guide uses {unused:?}"
    );
}
