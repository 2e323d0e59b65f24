//! Drawings in DOT, the language of Graphviz.

use std::fmt::Write as _;

use super::super::compiled::{Arm, Graph, Node};
use super::super::spec::StepKind;
use super::{Drawing, heading, title};

pub(super) fn draw(graph: &Graph, drawing: &Drawing) -> String {
    let mut text = format!("digraph {} {{\n", quoted(graph.name()));
    // Writing to a string cannot fail.
    let _ = writeln!(text, "  label={}; labelloc=t;", quoted(heading(graph)));
    text.push_str("  node [shape=box, style=rounded];\n");
    let frame = |arm: &Arm, name: &str| {
        let (branch, index) = (arm.branch, arm.index);
        format!(
            "subgraph cluster_{branch}_{index} {{ label={};",
            quoted(name)
        )
    };
    text += &drawing.nested(graph, node, frame, "}");
    for arrow in &drawing.arrows {
        let style = arrow.dashed.then(|| "style=dashed".to_owned());
        let label = (!arrow.label.is_empty()).then(|| format!("label={}", quoted(&arrow.label)));
        let attributes: Vec<String> = style.into_iter().chain(label).collect();
        let attributes = match attributes.as_slice() {
            [] => String::new(),
            some => format!(" [{}]", some.join(", ")),
        };
        let _ = writeln!(text, "  n{} -> n{}{attributes};", arrow.from, arrow.to);
    }
    text.push_str("}\n");
    text
}

fn node(node: Node<'_>) -> String {
    let look = match node.kind() {
        StepKind::Branch { .. } => ", shape=diamond, style=solid",
        StepKind::Merge { .. } => ", shape=circle, style=solid",
        StepKind::Barrier => {
            ", style=filled, fillcolor=black, fontcolor=white, width=4, height=0.2"
        }
        StepKind::Each { .. } => ", shape=box3d, style=solid",
        StepKind::Child { .. } => ", peripheries=2",
        StepKind::Timer { .. } => ", shape=ellipse, style=solid",
        StepKind::Signal { .. } => ", shape=cds, style=solid",
        StepKind::Job { .. } => "",
    };
    // Graphviz uses the last of two styles.
    let optional = if node.is_optional() {
        ", style=dashed"
    } else {
        ""
    };
    let title = quoted(&title(node).join("\n"));
    format!("n{} [label={title}{look}{optional}];", node.no())
}

/// Quotes a text and keeps its line breaks.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for letter in text.chars() {
        match letter {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            control if control.is_control() => quoted.push(' '),
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}
