//! Drawings of graphs, as [mermaid](https://mermaid.js.org) and [DOT](https://graphviz.org).
//!
//! A step is a box, a branch a diamond with a frame around each arm and a circle where the arms meet, a barrier a bar. An
//! arrow is a value that is taken, a dashed arrow is only order. Redundant edges, such as those from every step of a phase
//! to its barrier, are left out.

mod dot;
mod mermaid;

use std::collections::HashSet;

use super::compiled::{Arm, Graph, Node};
use super::spec::{Join, StepKind, Takes};

impl Graph {
    /// Draws the graph as a mermaid flowchart.
    pub fn to_mermaid(&self) -> String {
        mermaid::draw(self, &Drawing::of(self))
    }

    /// Draws the graph in DOT, the language of Graphviz.
    pub fn to_dot(&self) -> String {
        dot::draw(self, &Drawing::of(self))
    }
}

/// The drawing of a graph, for both languages.
struct Drawing {
    lines: Vec<DrawingLine>,
    arrows: Vec<Arrow>,
}

/// A line of the drawing.
enum DrawingLine {
    Node(u32),
    /// Opens the frame of an arm.
    Open(Arm),
    /// Closes the innermost frame.
    Close,
}

struct Arrow {
    from: u32,
    to: u32,
    dashed: bool,
    label: String,
}

impl Drawing {
    fn of(graph: &Graph) -> Self {
        let used: HashSet<Arm> = graph.nodes().flat_map(Node::arms).copied().collect();
        let arrows = graph.nodes().flat_map(|node| arrows(graph, node, &used));
        Self {
            lines: lines(graph),
            arrows: arrows.collect(),
        }
    }

    /// Writes the nodes and the frames around them, a line each, with the functions of a language.
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
                DrawingLine::Node(no) => (depth, graph.node(*no).map(&node).unwrap_or_default()),
                DrawingLine::Open(arm) => {
                    let branch = graph.node(arm.branch);
                    let name = branch.and_then(|branch| arm_name(branch, arm.index));
                    depth += 1;
                    (depth - 1, open(arm, name.unwrap_or_default()))
                }
                DrawingLine::Close => {
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

/// Orders the nodes, each inside the frames of its arms.
fn lines(graph: &Graph) -> Vec<DrawingLine> {
    let mut nodes: Vec<Node<'_>> = graph.nodes().collect();
    // Sorted by the arms around them, the nodes of each arm follow one another, inside the arms around it.
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
        lines.extend(open[common..].iter().map(|_| DrawingLine::Close));
        lines.extend(arms[common..].iter().map(|arm| DrawingLine::Open(*arm)));
        lines.push(DrawingLine::Node(node.no()));
        open = arms;
    }
    lines.extend(open.iter().map(|_| DrawingLine::Close));
    lines
}

/// Returns the arrows to a node.
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
        Takes::Maybe if !matches!(node.kind(), StepKind::Merge { .. }) => Some("optional"),
        Takes::Outcome => Some("outcome"),
        Takes::Failure => Some("failed"),
        Takes::Ended => Some("ended"),
        Takes::Maybe | Takes::Value | Takes::Order => None,
    };
    let words: Vec<&str> = arm.into_iter().chain(takes).collect();
    words.join(", ")
}

/// Returns whether no other step of a node's phase runs after the node.
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

/// Returns the arms of a branch that have no steps.
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

/// Returns the lines of a node's label: its key, its job if it has another name, and its special properties. The node
/// where the arms of a branch meet is named after the branch.
fn title(node: Node<'_>) -> Vec<String> {
    let mut title = vec![match node.kind() {
        StepKind::Merge { branch, .. } => format!("end of {branch}"),
        _ => node.key().to_owned(),
    }];
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

/// Returns the heading: the display name, or the name of the pipeline.
fn heading(graph: &Graph) -> &str {
    graph.spec().display_name.as_deref().unwrap_or(graph.name())
}
