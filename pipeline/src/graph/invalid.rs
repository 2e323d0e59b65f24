//! A graph that is refused: with all of its problems at once, and where each lies.

use std::fmt;

use super::problem::Problem;

/// A graph that cannot run, with everything that is wrong with it.
#[derive(Clone, PartialEq)]
pub struct Invalid {
    pipeline: String,
    problems: Vec<Problem>,
}

impl Invalid {
    pub(crate) fn new(pipeline: &str, problems: Vec<Problem>) -> Self {
        Self {
            pipeline: super::limits::shown(pipeline),
            problems,
        }
    }

    /// Everything that is wrong, never empty.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Everything that is wrong, to keep.
    pub fn into_problems(self) -> Vec<Problem> {
        self.problems
    }
}

impl std::error::Error for Invalid {}

jobs::debug_as_display!(Invalid);

/// So many problems are written out; the rest is counted.
const WRITTEN: usize = 25;

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pipeline, problems } = self;
        if let [only] = problems.as_slice() {
            return write!(f, "pipeline `{pipeline}` is invalid: {only}");
        }
        write!(f, "pipeline `{pipeline}` has {} problems:", problems.len())?;
        for problem in problems.iter().take(WRITTEN) {
            write!(f, "\n- {problem}")?;
        }
        match problems.len().saturating_sub(WRITTEN) {
            0 => Ok(()),
            more => write!(f, "\n- and {more} more"),
        }
    }
}

/// Where in a graph a problem lies.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// In what holds for the whole pipeline.
    Pipeline,
    /// In a step.
    Step(String),
    /// In a callback; the first is 1.
    Callback(usize),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pipeline => f.write_str("the pipeline"),
            Self::Step(key) => write!(f, "step `{key}`"),
            Self::Callback(number) => write!(f, "callback {number}"),
        }
    }
}
