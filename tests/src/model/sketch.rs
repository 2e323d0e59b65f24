//! Graphs, scripts and orders printed in one line each, for the report of a failed case.

use std::fmt;
use std::ops::Deref;

use pipeline::graph::spec::{Edge, GraphSpec, Join, StepSpec, Takes};

use super::play::{Order, Script};

/// A graph that is printed in one line.
#[derive(Clone, PartialEq)]
pub struct Sketch(pub GraphSpec);

impl Deref for Sketch {
    type Target = GraphSpec;

    fn deref(&self) -> &GraphSpec {
        &self.0
    }
}

impl fmt::Debug for Sketch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "under {:?}", self.strategy)?;
        for step in &self.steps {
            write!(f, "\n    ")?;
            line(f, step)?;
        }
        Ok(())
    }
}

fn line(f: &mut fmt::Formatter<'_>, step: &StepSpec) -> fmt::Result {
    write!(f, "{}", step.key)?;
    if let Some(arm) = &step.arm {
        write!(f, " in {}/{}", arm.branch, arm.arm)?;
    }
    if let Some(strategy) = step.strategy {
        write!(f, " on failure {strategy:?}")?;
    }
    if step.optional {
        write!(f, " optional")?;
    }
    let after: Vec<String> = step.after.iter().map(edge).collect();
    match (after.is_empty(), step.join) {
        (true, _) => Ok(()),
        (false, Join::All) => write!(f, " after {}", after.join(", ")),
        (false, Join::Any) => write!(f, " after any of {}", after.join(", ")),
    }
}

fn edge(edge: &Edge) -> String {
    match edge.takes {
        Takes::Value => edge.step.clone(),
        takes => format!("{} ({takes:?})", edge.step),
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "script {:?}", self.fates)
    }
}

impl fmt::Debug for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "order {:?}", self.0)
    }
}
