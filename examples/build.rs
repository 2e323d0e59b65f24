//! Writes a doc test for the README and for each guide, so that `cargo test --doc` compiles their Rust blocks.
//!
//! A doc test is one program: the first Rust block of a page, and each later block as a module that sees the items of
//! the first block. So a later block can continue the first one without hidden lines.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let guides = root.join("docs/guides");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed={}", guides.display());

    let mut pages = vec![root.join("README.md")];
    for entry in fs::read_dir(guides)? {
        pages.push(entry?.path());
    }
    pages.sort();

    let mut tests = String::new();
    for page in pages {
        println!("cargo::rerun-if-changed={}", page.display());
        let blocks = rust_blocks(&fs::read_to_string(&page)?);
        let Some(program) = program(&blocks) else {
            continue;
        };
        let _ = writeln!(
            tests,
            "#[doc = {:?}]\nmod {} {{}}",
            format!("```no_run\n{program}```"),
            module_name(&page)
        );
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or(io::ErrorKind::NotFound)?);
    fs::write(out.join("guides.rs"), tests)
}

/// Returns the Rust blocks of a page, without their fences.
fn rust_blocks(page: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut block: Option<String> = None;
    let mut is_fenced = false;
    for line in page.lines() {
        if line.starts_with("```") {
            is_fenced = !is_fenced;
            blocks.extend(block.take());
            if is_fenced && line.starts_with("```rust") {
                block = Some(String::new());
            }
        } else if let Some(block) = &mut block {
            // Without these attributes, the tests of a page are compiled as well.
            let is_test_attribute = ["#[cfg(test)]", "#[sqlx::test]"].contains(&line.trim());
            if !is_test_attribute {
                let line = line.strip_prefix("# ").unwrap_or(line);
                let _ = writeln!(block, "{line}");
            }
        }
    }
    blocks
}

/// Returns the program that consists of all blocks of a page.
fn program(blocks: &[String]) -> Option<String> {
    let (first, later) = blocks.split_first()?;
    let mut program = first.clone();
    if !first.contains("fn main()") {
        program.push_str("fn main() {}\n");
    }
    for (number, block) in later.iter().enumerate() {
        let _ = writeln!(
            program,
            "mod block_{} {{\nuse super::*;\n{block}}}",
            number + 2
        );
    }
    Some(program)
}

/// Returns the name of the page as a Rust identifier.
fn module_name(page: &Path) -> String {
    let stem = page.file_stem().unwrap_or_default().to_string_lossy();
    stem.to_lowercase().replace('-', "_")
}
