//! Drawings in the language of mermaid.

use std::fmt::Write as _;

use super::super::compiled::{Arm, Graph, Node};
use super::super::spec::StepKind;
use super::{Drawing, heading, title};

pub(super) fn draw(graph: &Graph, drawing: &Drawing) -> String {
    let heading = serde_json::Value::from(heading(graph));
    let mut text = format!("---\ntitle: {heading}\n---\nflowchart TD\n");
    let frame = |arm: &Arm, name: &str| {
        let (branch, index) = (arm.branch, arm.index);
        format!("subgraph arm{branch}_{index}[\"{}\"]", escaped(name))
    };
    text += &drawing.nested(graph, node, frame, "end");
    for arrow in &drawing.arrows {
        let line = if arrow.dashed { "-.->" } else { "-->" };
        let label = match arrow.label.as_str() {
            "" => String::new(),
            label => format!("|\"{}\"|", escaped(label)),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  n{} {line}{label} n{}", arrow.from, arrow.to);
    }
    text.push_str("  classDef bar fill:#444,stroke:#444,color:#fff\n");
    text.push_str("  classDef optional stroke-dasharray:4 3\n");
    text
}

fn node(node: Node<'_>) -> String {
    let (open, close) = match node.kind() {
        StepKind::Branch { .. } => ("{", "}"),
        StepKind::Merge { .. } => ("((", "))"),
        StepKind::Each { .. } => ("[/", "/]"),
        StepKind::Child { .. } => ("[[", "]]"),
        StepKind::Timer { .. } => ("([", "])"),
        StepKind::Signal { .. } => (">", "]"),
        StepKind::Job { .. } | StepKind::Barrier => ("[", "]"),
    };
    let class = match node.kind() {
        StepKind::Barrier => ":::bar",
        _ if node.is_optional() => ":::optional",
        _ => "",
    };
    let title: Vec<String> = title(node).iter().map(|line| escaped(line)).collect();
    format!(
        "n{}{open}\"{}\"{close}{class}",
        node.no(),
        title.join("<br/>")
    )
}

/// Escapes characters that would end a quoted text or have a meaning in mermaid.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '"' | '#' | '<' | '>' | '&' | '`' | ';' | '\\' => {
                let _ = write!(escaped, "#{};", letter as u32);
            }
            control if control.is_control() => escaped.push(' '),
            letter => escaped.push(letter),
        }
    }
    escaped
}
