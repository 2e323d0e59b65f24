//! Draws a run as a tree: each step is below the last step that all paths to it go through.

use std::fmt::Write as _;

use pipeline::prelude::*;
use pipeline::{Graph, NodeKind, RunState, StepState};

/// The drawing of a graph, without the statuses of a run.
#[derive(Debug, Clone)]
pub struct Tree {
    rows: Vec<Row>,
    width: usize,
}

#[derive(Debug, Clone)]
struct Row {
    key: String,
    /// The lines before the key: `├─ `.
    lines: String,
    /// The upstream steps, if there are several.
    after: String,
    is_optional: bool,
}

/// One line of a drawing: a step and its status.
#[derive(Debug, Clone)]
pub struct Drawn {
    /// The lines that connect the step with the steps above it.
    pub lines: String,
    /// One character for the status, and its colour on a terminal.
    pub mark: (&'static str, &'static str),
    /// The key of the step, padded to the same width in all lines.
    pub key: String,
    /// The status in words.
    pub words: String,
    /// Whether the step has left the status `pending`.
    pub is_news: bool,
}

impl Tree {
    /// Creates the drawing of a graph.
    pub fn of(graph: &Graph) -> Self {
        let mut parents: Vec<Option<usize>> = Vec::with_capacity(graph.len());
        for node in graph.nodes() {
            let mut above: Vec<usize> = node.upstream().iter().map(|up| up.no as usize).collect();
            // A step in an arm also comes after its branch.
            let branch = node
                .step()
                .arm
                .as_ref()
                .and_then(|arm| graph.find(&arm.branch));
            above.extend(branch.map(|branch| branch.no() as usize));
            let lowest = above
                .iter()
                .filter(|no| !above.iter().any(|it| is_above(&parents, **no, *it)));
            let parent = lowest
                .map(|no| Some(*no))
                .reduce(|a, b| meet(&parents, a, b));
            parents.push(parent.flatten());
        }
        let mut tree = Self {
            rows: Vec::with_capacity(graph.len()),
            width: 0,
        };
        tree.add(graph, &parents, None, "");
        let wide = |row: &Row| row.lines.chars().count() + row.key.chars().count();
        tree.width = tree.rows.iter().map(wide).max().unwrap_or(0);
        tree
    }

    /// Adds the nodes below a node, and the nodes below those.
    fn add(&mut self, graph: &Graph, parents: &[Option<usize>], under: Option<usize>, lead: &str) {
        let is_under = |no: &usize| parents[*no] == under;
        let below: Vec<usize> = (0..parents.len()).filter(is_under).collect();
        for (at, no) in below.iter().enumerate() {
            let is_last = at + 1 == below.len();
            let (here, further) = if is_last {
                ("└─ ", "   ")
            } else {
                ("├─ ", "│  ")
            };
            if let Some(node) = u32::try_from(*no).ok().and_then(|no| graph.node(no)) {
                let up = node.upstream().iter().filter_map(|up| graph.node(up.no));
                let up: Vec<&str> = up.map(|node| node.key()).collect();
                self.rows.push(Row {
                    key: node.key().to_owned(),
                    lines: format!("{lead}{here}"),
                    after: match up.len() {
                        0 | 1 => String::new(),
                        _ => format!("after {}", up.join(", ")),
                    },
                    is_optional: node.is_optional(),
                });
            }
            self.add(graph, parents, Some(*no), &format!("{lead}{further}"));
        }
    }

    /// Draws the steps of a run, one line each.
    pub fn draw(&self, state: &RunState) -> Vec<Drawn> {
        let rows = self.rows.iter();
        rows.filter_map(|row| {
            let step = state.step(&row.key)?;
            let room = self.width - row.lines.chars().count();
            Some(Drawn {
                lines: row.lines.clone(),
                mark: mark(step),
                key: format!("{:<room$}", row.key),
                words: row.words(step),
                is_news: step.status != StepStatus::Pending,
            })
        })
        .collect()
    }

    /// Returns the drawing of a run as text.
    pub fn text(&self, state: &RunState) -> String {
        let mut text = format!("{}: {}\n", state.pipeline, state.status);
        for step in self.draw(state) {
            let line = format!("{}{} {}  {}", step.lines, step.mark.0, step.key, step.words);
            let _ = writeln!(text, "  {}", line.trim_end());
        }
        text
    }
}

/// Returns whether a node is above another node.
fn is_above(parents: &[Option<usize>], above: usize, below: usize) -> bool {
    let mut next = parents[below];
    while let Some(no) = next {
        if no == above {
            return true;
        }
        next = parents[no];
    }
    false
}

/// Returns the lowest node that is above both nodes, or one of the two. The number of a node is higher than the
/// numbers of the nodes above it.
fn meet(parents: &[Option<usize>], a: Option<usize>, b: Option<usize>) -> Option<usize> {
    let (mut a, mut b) = (a?, b?);
    while a != b {
        let lower = if a > b { &mut a } else { &mut b };
        *lower = parents[*lower]?;
    }
    Some(a)
}

fn mark(step: &StepState) -> (&'static str, &'static str) {
    match (step.status, step.in_queue) {
        (StepStatus::Succeeded | StepStatus::EndedRun, _) => ("●", "32"),
        (StepStatus::Failed, _) => ("✗", "31"),
        (StepStatus::Enqueued, Some(JobStatus::Running)) => ("◐", "33"),
        (StepStatus::Enqueued, Some(JobStatus::Scheduled)) if step.attempt > 0 => ("○", "31"),
        (StepStatus::Pending | StepStatus::Enqueued | StepStatus::Waiting, _) => ("○", "2"),
        _ => ("–", "2"),
    }
}

impl Row {
    fn words(&self, step: &StepState) -> String {
        let attempt = match step.max_attempts {
            Some(of) if step.attempt > 1 => format!(", attempt {} of {of}", step.attempt),
            _ => String::new(),
        };
        let error = step.error.as_ref();
        let error = error.map_or_else(String::new, |it| format!("{}: {}", it.class, it.message));
        match (step.status, step.in_queue) {
            (StepStatus::Pending, _) => self.after.clone(),
            (StepStatus::Enqueued, Some(JobStatus::Running)) => format!("runs{attempt}"),
            (StepStatus::Enqueued, Some(JobStatus::Scheduled)) if step.attempt > 0 => {
                format!("is retried: {error}")
            }
            (StepStatus::Enqueued, _) => "is enqueued".to_owned(),
            (StepStatus::Failed, _) if self.is_optional => {
                format!("failed (optional){attempt}: {error}")
            }
            (StepStatus::Failed, _) => format!("failed{attempt}: {error}"),
            (StepStatus::Succeeded, _) if step.kind == NodeKind::Merge => {
                "where the arms meet".to_owned()
            }
            (StepStatus::Succeeded, _) => match step.ran {
                Some(ran) => format!("{:.1} s{attempt}", ran.as_secs_f32()),
                None => String::new(),
            },
            (status, _) => match &step.reason {
                Some(why) => format!("{status}: {why}"),
                None => status.to_string(),
            },
        }
    }
}
