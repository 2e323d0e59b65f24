//! The language of Graphviz.

use std::fmt::Write as _;

use super::super::compiled::{Graph, Node};
use super::super::spec::StepKind;
use super::{Line, Picture, arm_name, heading, title};

pub(super) fn draw(graph: &Graph, picture: &Picture) -> String {
    let mut text = format!("digraph {} {{\n", quoted(graph.name()));
    let _ = writeln!(text, "  label={}; labelloc=t;", quoted(heading(graph)));
    text.push_str("  node [shape=box, style=rounded];\n");
    let mut depth = 1;
    for line in &picture.lines {
        // Writing to a string cannot fail.
        let _ = match line {
            Line::Node(no) => match graph.node(*no) {
                Some(node) => writeln!(text, "{:1$}{2}", "", 2 * depth, self::node(node)),
                None => Ok(()),
            },
            Line::Open(arm) => {
                let name = graph
                    .node(arm.branch)
                    .and_then(|of| arm_name(of, arm.index));
                let name = quoted(name.unwrap_or_default());
                let (branch, index) = (arm.branch, arm.index);
                depth += 1;
                let indent = 2 * (depth - 1);
                writeln!(
                    text,
                    "{:indent$}subgraph cluster_{branch}_{index} {{ label={name};",
                    ""
                )
            }
            Line::Close => {
                depth -= 1;
                writeln!(text, "{:1$}}}", "", 2 * depth)
            }
        };
    }
    for arrow in &picture.arrows {
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
    // The last of two styles counts.
    let optional = if node.is_optional() {
        ", style=dashed"
    } else {
        ""
    };
    let title = quoted(&title(node).join("\n"));
    format!("n{} [label={title}{look}{optional}];", node.no())
}

/// A quoted text; lines stay lines.
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
