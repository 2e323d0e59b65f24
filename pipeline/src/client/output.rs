//! Reads the output of a run and of its steps.

use jobs::extension::{InputValue, redact};
use serde::de::DeserializeOwned;
use serde_path_to_error::Segment;
use sqlx::PgExecutor;

use super::Run;
use crate::db::shape::arrange;
use crate::graph::spec::Shape;
use crate::{Error, Result, RunId, RunStatus, StepStatus};

impl<O: DeserializeOwned> Run<O> {
    /// Returns the output of the run: the outputs of the steps whose handles its pipeline returned.
    ///
    /// ```no_run
    /// # async fn example(run: pipeline::Run<(u64, Option<String>)>) -> pipeline::Result<()> {
    /// run.wait().await?;
    /// let (size, thumbnail) = run.output().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::NotEnded`] if the run has not ended; [`Error::NoOutput`] if a step whose output is part of the run's
    /// output failed or did not run; [`Error::Undecodable`] if the stored output is not an `O`; [`Error::NoRun`] if the
    /// run does not exist.
    pub async fn output(&self) -> Result<O> {
        let rows = read(self.client().pool(), &[self.id().get()], true).await?;
        let first = rows.first().ok_or(Error::NoRun(self.id()))?;
        let status: RunStatus = first.status.parse().map_err(sqlx::Error::from)?;
        if !status.is_ended() {
            return Err(Error::NotEnded {
                run: self.id(),
                status,
            });
        }
        Returned(rows).decode(self.id())
    }

    /// Waits until the run has ended, and returns its output.
    ///
    /// If a worker of this process ends the run, the output is passed on in memory, without a query.
    ///
    /// ```no_run
    /// # async fn example(client: pipeline::Client, video: pipeline::Pipeline<u64>) -> pipeline::Result<()> {
    /// let size = client.start(video).await?.result().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`wait`](Run::wait) and [`output`](Self::output).
    pub async fn result(&self) -> Result<O> {
        match self.wait().ended().await?.returned {
            Some(returned) => returned.decode(self.id()),
            None => self.output().await,
        }
    }
}

/// A step whose output is part of its run's output.
#[derive(Clone)]
pub(crate) struct OutputRow {
    pub(crate) run: i64,
    pub(crate) graph: i64,
    pub(crate) status: String,
    pub(super) shape: Option<String>,
    pub(super) no: Option<i32>,
    pub(super) kind: Option<String>,
    pub(super) step: Option<String>,
    pub(super) step_status: Option<String>,
    pub(super) output: Option<String>,
    pub(super) may_lack: Option<bool>,
    /// Whether the output or the graph is too large to be read together with those of other runs.
    pub(crate) is_large: bool,
}

/// Reads the outputs of runs: at least one row for each run that exists, in the order of the runs. Without `all`, the
/// rows omit large outputs.
pub(crate) async fn read(
    executor: impl PgExecutor<'_>,
    runs: &[i64],
    all: bool,
) -> Result<Vec<OutputRow>, sqlx::Error> {
    sqlx::query_file_as!(OutputRow, "src/sql/run_outputs.sql", runs, all)
        .fetch_all(executor)
        .await
}

/// The output rows of a run that has ended.
#[derive(Clone)]
pub(crate) struct Returned(pub(crate) Vec<OutputRow>);

impl std::fmt::Debug for Returned {
    /// Omits the data, which must not appear in logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Returned({} rows)", self.0.len())
    }
}

impl Returned {
    fn decode<T: DeserializeOwned>(self, run: RunId) -> Result<T> {
        let shape = self.0.first().and_then(|row| row.shape.as_deref());
        let shape = shape.map(serde_json::from_str::<Shape>);
        let shape = shape.transpose().map_err(sqlx::Error::decode)?;
        let rows: Vec<_> = self
            .0
            .into_iter()
            .filter(|row| row.step.is_some())
            .collect();
        let shape = shape.or_else(|| Shape::of(rows.len()));
        let sure = shape.iter().flat_map(Shape::sure);
        let mut outputs = Outputs::new(run);
        for (row, sure) in rows.into_iter().zip(sure) {
            let (Some(step), Some(status)) = (row.step, row.step_status) else {
                continue;
            };
            let status = status.parse().map_err(sqlx::Error::from)?;
            // An output may be absent if a step after it could run without it.
            if row.output.is_none() && (sure || row.may_lack != Some(true)) {
                return Err(no_output(run, step, status));
            }
            outputs.push(step, row.output);
        }
        outputs.decode(shape.as_ref())
    }
}

impl<O> Run<O> {
    /// Returns the output of a step that has succeeded.
    ///
    /// ```no_run
    /// # async fn example(run: pipeline::Run) -> pipeline::Result<()> {
    /// let size: u64 = run.output_of("measure").await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::NoOutput`] if the step has not succeeded; [`Error::Undecodable`] if the stored output is not a `T`;
    /// [`Error::NoStep`] if the run has no such step; [`Error::NoRun`] if the run does not exist.
    pub async fn output_of<T: DeserializeOwned>(&self, step: &str) -> Result<T> {
        let row = sqlx::query_file!("src/sql/step_output.sql", self.id().get(), step)
            .fetch_optional(self.client().pool())
            .await?
            .ok_or(Error::NoRun(self.id()))?;
        let Some(status) = row.status else {
            return Err(self.no_step(self.client().pool(), step).await);
        };
        let status = status.parse().map_err(sqlx::Error::from)?;
        let Some(output) = row.output else {
            return Err(no_output(self.id(), step.to_owned(), status));
        };
        let mut outputs = Outputs::new(self.id());
        outputs.push(step.to_owned(), Some(output));
        outputs.decode(Some(&Shape::One))
    }
}

fn no_output(run: RunId, step: String, status: StepStatus) -> Error {
    Error::NoOutput { run, step, status }
}

/// The outputs of steps that are decoded together.
struct Outputs {
    run: RunId,
    steps: Vec<String>,
    values: Vec<InputValue>,
}

impl Outputs {
    fn new(run: RunId) -> Self {
        Self {
            run,
            steps: Vec::new(),
            values: Vec::new(),
        }
    }

    fn push(&mut self, step: String, output: Option<String>) {
        self.steps.push(step);
        self.values
            .push(output.map_or(InputValue::Absent, InputValue::Value));
    }

    /// Decodes the outputs, arranged in this shape.
    fn decode<T: DeserializeOwned>(mut self, shape: Option<&Shape>) -> Result<T> {
        let mut values = std::mem::take(&mut self.values).into_iter();
        let given = match shape {
            None => InputValue::Value("null".to_owned()),
            Some(shape) => arrange(shape, &mut values),
        };
        given
            .decode()
            .map_err(|error| self.undecodable(shape, &error))
    }

    /// Returns the error for an output that cannot be decoded, with the step and the path in its output.
    fn undecodable(
        self,
        shape: Option<&Shape>,
        error: &serde_path_to_error::Error<serde_json::Error>,
    ) -> Error {
        let path = redact::path(error);
        let culprit = shape.and_then(|shape| find(shape, error.path().iter()));
        let (step, path) = match culprit.and_then(|(at, way)| Some((self.steps.get(at)?, way))) {
            Some((step, way)) => {
                let inside = path.strip_prefix(&way).unwrap_or(&path);
                let inside = inside.trim_start_matches('.');
                let inside = if inside.is_empty() { "." } else { inside };
                (step.clone(), inside.to_owned())
            }
            None => (self.steps.join("`, `"), path),
        };
        Error::Undecodable {
            run: self.run,
            step,
            path,
            reason: redact::reason(error.inner()),
        }
    }
}

/// Returns the position of the element that a path leads into, and the part of the path that leads to the element.
fn find<'a>(
    mut shape: &Shape,
    mut path: impl Iterator<Item = &'a Segment>,
) -> Option<(usize, String)> {
    let mut at = 0;
    let mut way = String::new();
    while !matches!(shape, Shape::One | Shape::Maybe) {
        let Some(Segment::Seq { index }) = path.next() else {
            return None;
        };
        way.push_str(&format!("[{index}]"));
        match shape {
            Shape::Tuple(inner) => {
                at += inner.iter().take(*index).map(Shape::count).sum::<usize>();
                shape = inner.get(*index)?;
            }
            _ => return Some((at + index, way)),
        }
    }
    Some((at, way))
}
