//! The error of an invalid graph, with all of its problems.

use std::fmt;

use super::problem::Problem;

/// The error of a graph that cannot run. It holds every problem at once.
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

    /// Returns the problems; there is at least one.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Returns the problems by value.
    pub fn into_problems(self) -> Vec<Problem> {
        self.problems
    }
}

impl std::error::Error for Invalid {}

jobs::debug_as_display!(Invalid);

/// The number of problems that `Display` writes out; it only counts the rest.
const MAX_WRITTEN_PROBLEMS: usize = 25;

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pipeline, problems } = self;
        if let [only] = problems.as_slice() {
            return write!(f, "pipeline `{pipeline}` is invalid: {only}");
        }
        write!(f, "pipeline `{pipeline}` has {} problems:", problems.len())?;
        for problem in problems.iter().take(MAX_WRITTEN_PROBLEMS) {
            write!(f, "\n- {problem}")?;
        }
        match problems.len().saturating_sub(MAX_WRITTEN_PROBLEMS) {
            0 => Ok(()),
            more => write!(f, "\n- and {more} more"),
        }
    }
}

/// The part of a pipeline that has a problem.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Place {
    /// The pipeline as a whole.
    Pipeline,
    /// The step with this key.
    Step(String),
    /// The callback with this number; the first is 1.
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
