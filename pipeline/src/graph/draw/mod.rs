//! Graphs as pictures, for people: [mermaid](https://mermaid.js.org) and
//! [DOT](https://graphviz.org).
//!
//! What is drawn is what a reader would draw: boxes, diamonds that decide, the arms of a branch each
//! in a frame, bars between phases; an arrow for what is taken, a dashed one for order alone. Edges
//! that only say again what others say, such as those from every step of a phase to its barrier,
//! are left out.

mod dot;
mod mermaid;

use std::collections::HashSet;

use super::compiled::{Arm, Graph, Node};
use super::spec::{Join, StepKind, Takes};

impl Graph {
    /// The graph as a mermaid flowchart.
    pub fn to_mermaid(&self) -> String {
        mermaid::draw(self, &Picture::of(self))
    }

    /// The graph in the language of Graphviz.
    pub fn to_dot(&self) -> String {
        dot::draw(self, &Picture::of(self))
    }
}

/// What both languages draw.
struct Picture {
    lines: Vec<Line>,
    arrows: Vec<Arrow>,
}

/// What stands in the picture, one after the other.
enum Line {
    Node(u32),
    /// The frame of an arm opens.
    Open(Arm),
    /// The innermost frame closes.
    Close,
}

struct Arrow {
    from: u32,
    to: u32,
    dashed: bool,
    label: String,
}

impl Picture {
    fn of(graph: &Graph) -> Self {
        let used: HashSet<Arm> = graph.nodes().flat_map(Node::arms).copied().collect();
        let arrows = graph.nodes().flat_map(|node| arrows(graph, node, &used));
        Self {
            lines: lines(graph),
            arrows: arrows.collect(),
        }
    }

    /// The nodes and the frames around them, a line each: in the words of a language.
    fn nested(
        &self,
        graph: &Graph,
        node: impl Fn(Node<'_>) -> String,
        open: impl Fn(&Arm, &str) -> String,
        close: &str,
    ) -> String {
        let mut text = String::new();
        let mut depth = 1;
        for line in &self.lines {
            let (at, line) = match line {
                Line::Node(no) => (depth, graph.node(*no).map(&node).unwrap_or_default()),
                Line::Open(arm) => {
                    let branch = graph.node(arm.branch);
                    let name = branch.and_then(|branch| arm_name(branch, arm.index));
                    depth += 1;
                    (depth - 1, open(arm, name.unwrap_or_default()))
                }
                Line::Close => {
                    depth -= 1;
                    (depth, close.to_owned())
                }
            };
            text.push_str(&"  ".repeat(at));
            text.push_str(&line);
            text.push('\n');
        }
        text
    }
}

/// The nodes in the frames of their arms.
fn lines(graph: &Graph) -> Vec<Line> {
    let mut nodes: Vec<Node<'_>> = graph.nodes().collect();
    // By the arms around them: then each arm is in one piece, and stands in those around it.
    let frames = |node: &Node<'_>| -> Vec<(u32, u32)> {
        let arms = node.arms().iter();
        arms.map(|arm| (arm.branch, arm.index)).collect()
    };
    nodes.sort_by_cached_key(|node| (frames(node), node.no()));
    let mut lines = Vec::new();
    let mut open: &[Arm] = &[];
    for node in nodes {
        let arms = node.arms();
        let common = arms.iter().zip(open).take_while(|(a, b)| a == b).count();
        lines.extend(open[common..].iter().map(|_| Line::Close));
        lines.extend(arms[common..].iter().map(|arm| Line::Open(*arm)));
        lines.push(Line::Node(node.no()));
        open = arms;
    }
    lines.extend(open.iter().map(|_| Line::Close));
    lines
}

/// The arrows to a node.
fn arrows(graph: &Graph, node: Node<'_>, used: &HashSet<Arm>) -> Vec<Arrow> {
    let mut arrows = Vec::new();
    let mut drawn = HashSet::new();
    for up in node.upstream() {
        if !drawn.insert(*up) {
            continue;
        }
        let Some(before) = graph.node(up.no) else {
            continue;
        };
        let label = match node.kind() {
            StepKind::Barrier if !ends_its_phase(graph, before) => continue,
            StepKind::Barrier if *before.kind() == StepKind::Barrier => continue,
            StepKind::Merge { branch, .. } if branch == before.key() => {
                let empty = empty_arms(before, used);
                if empty.is_empty() {
                    continue;
                }
                empty.join(", ")
            }
            _ => label(node, before, up.takes),
        };
        let into_arm = node.arms().last().is_some_and(|arm| arm.branch == up.no);
        let resolved = matches!(node.kind(), StepKind::Barrier | StepKind::Merge { .. });
        let from_bar = *before.kind() == StepKind::Barrier;
        arrows.push(Arrow {
            from: up.no,
            to: node.no(),
            dashed: up.takes == Takes::Order && !into_arm && !resolved && !from_bar,
            label,
        });
    }
    arrows
}

fn label(node: Node<'_>, before: Node<'_>, takes: Takes) -> String {
    let arm = node.arms().last().filter(|arm| arm.branch == before.no());
    let arm = arm.and_then(|arm| arm_name(before, arm.index));
    let takes = match takes {
        Takes::Maybe if !matches!(node.kind(), StepKind::Merge { .. }) => Some("maybe"),
        Takes::Outcome => Some("outcome"),
        Takes::Failure => Some("failed"),
        Takes::Ended => Some("ended"),
        Takes::Maybe | Takes::Value | Takes::Order => None,
    };
    let words: Vec<&str> = arm.into_iter().chain(takes).collect();
    words.join(", ")
}

/// Whether nothing of its phase comes after a node but the barrier.
fn ends_its_phase(graph: &Graph, node: Node<'_>) -> bool {
    let mut after = node
        .downstream()
        .iter()
        .filter_map(|down| graph.node(down.no));
    after.all(|after| *after.kind() == StepKind::Barrier || after.phase() != node.phase())
}

fn arm_name(branch: Node<'_>, index: u32) -> Option<&str> {
    match branch.kind() {
        StepKind::Branch { arms, .. } => arms.get(index as usize).map(String::as_str),
        _ => None,
    }
}

/// The arms of a branch in which no step stands.
fn empty_arms<'g>(branch: Node<'g>, used: &HashSet<Arm>) -> Vec<&'g str> {
    let StepKind::Branch { arms, .. } = branch.kind() else {
        return Vec::new();
    };
    let arm = |index: u32| Arm {
        branch: branch.no(),
        index,
    };
    let empty = (0..)
        .zip(arms)
        .filter(|(index, _)| !used.contains(&arm(*index)));
    empty.map(|(_, name)| name.as_str()).collect()
}

/// What a node is called: its key, its job if that is another word, and what is special about it.
fn title(node: Node<'_>) -> Vec<String> {
    let mut title = vec![node.key().to_owned()];
    match node.kind() {
        StepKind::Job { job, .. } | StepKind::Branch { job, .. } if job != node.key() => {
            title.push(job.clone());
        }
        StepKind::Each { job, .. } => title.push(format!("each: {job}")),
        StepKind::Child { graph } => title.push(format!("pipeline: {}", graph.name)),
        StepKind::Timer { delay_ms } => title.push(format!("after {delay_ms} ms")),
        StepKind::Signal { name, .. } => title.push(format!("signal: {name}")),
        _ => {}
    }
    if node.join() == Join::Any {
        title.push("any of".to_owned());
    }
    if node.is_optional() {
        title.push("optional".to_owned());
    }
    title
}

/// What people call the pipeline.
fn heading(graph: &Graph) -> &str {
    graph.spec().display_name.as_deref().unwrap_or(graph.name())
}
