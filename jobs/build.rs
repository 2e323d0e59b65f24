//! Embeds the migrations anew when one is added: the macro notices changed files only.

fn main() {
    println!("cargo::rerun-if-changed=migrations");
}
