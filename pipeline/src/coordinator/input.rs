//! The input of a step, assembled from the outputs and failures of its upstream steps.

use jobs::extension::{Claimed, Input, InputValue, Owner, redact};

use crate::db::ids::run_of;
use crate::db::shape::arrange;
use crate::declare::Failure;
use crate::graph::spec::Shape;

/// The limits for the inputs of steps, in bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InputLimits {
    /// The limit for the input of one step, including its params.
    pub(crate) step: i64,
    /// The limit for the sum of the large inputs that one transaction loads; other steps wait in the queue.
    pub(crate) together: i64,
}

impl Default for InputLimits {
    fn default() -> Self {
        Self {
            step: 16 << 20,
            together: 16 << 20,
        }
    }
}

/// The database's row for a step that is about to run.
#[derive(Default)]
pub(super) struct Row {
    pub(super) params: Option<String>,
    pub(super) options: Option<String>,
    pub(super) shape: Option<String>,
    pub(super) takes: Option<Vec<String>>,
    pub(super) outputs: Option<Vec<Option<String>>>,
    pub(super) failed: Option<Vec<Option<String>>>,
    pub(super) classes: Option<Vec<Option<String>>>,
    pub(super) messages: Option<Vec<Option<String>>>,
    pub(super) cancelled: Option<bool>,
    pub(super) key: Option<String>,
    pub(super) round: Option<i32>,
    /// The size of the input in bytes, if it was measured.
    pub(super) size: Option<i64>,
    /// Whether the input exceeds [`InputLimits::together`] now, so that the claim has to be undone.
    pub(super) put_off: Option<bool>,
}

/// Refuses the input of a step whose run was deleted.
pub(super) fn lost(job: &mut Claimed) {
    job.input = Input::Refused(
        "RunDeleted".to_owned(),
        format!(
            "job {} is a step of run {}, which somebody has deleted: start a new run",
            job.id,
            run_of(job.id)
        ),
    );
}

impl Row {
    /// Sets the job's data, options and input.
    pub(super) fn fill(mut self, job: &mut Claimed, limits: InputLimits) {
        job.args = self.params.take().unwrap_or_else(|| "null".to_owned());
        job.options = self.options.take();
        job.owner = self.key.take().map(|label| Owner {
            id: run_of(job.id),
            label,
            generation: self
                .round
                .and_then(|round| u32::try_from(round).ok())
                .unwrap_or(1),
        });
        job.input = self.input(limits);
    }

    fn input(self, limits: InputLimits) -> Input {
        if self.cancelled == Some(true) {
            return Input::Refused(
                "RunCancelled".to_owned(),
                "its run is being cancelled, and no attempt follows another: reopen the run to go on"
                    .to_owned(),
            );
        }
        if let Some(size) = self.size.filter(|size| *size > limits.step) {
            return Input::Refused(
                "InputTooLarge".to_owned(),
                format!(
                    "the step's params and what stands before it are {size} bytes, and {} is the \
                     limit: store the data elsewhere and pass references to it",
                    limits.step
                ),
            );
        }
        let shape = match self.shape.as_deref().map(serde_json::from_str::<Shape>) {
            None => None,
            Some(Ok(shape)) => Some(shape),
            Some(Err(error)) => {
                return Input::Refused(
                    "Undecodable".to_owned(),
                    format!(
                        "the stored shape of the step's input cannot be decoded: {}; a newer version \
                         may have stored it: run that version here",
                        redact::reason(&error)
                    ),
                );
            }
        };
        let mut elements = self.elements().into_iter();
        match shape {
            Some(shape) => Input::Value(arrange(&shape, &mut elements)),
            None if elements.len() == 0 => Input::None,
            None if elements.len() == 1 => elements.next().map_or(Input::None, Input::Value),
            None => Input::Value(InputValue::Many(elements.collect())),
        }
    }

    fn elements(self) -> Vec<InputValue> {
        let count = self.takes.as_ref().map_or(0, Vec::len);
        let column = |column: Option<Vec<Option<String>>>| {
            let mut column = column.unwrap_or_default();
            column.resize(count, None);
            column.into_iter()
        };
        let (mut outputs, mut failed) = (column(self.outputs), column(self.failed));
        let (mut classes, mut messages) = (column(self.classes), column(self.messages));
        let mut next = |takes: &str| {
            let output = outputs.next().flatten();
            let failure = failed.next().flatten().map(|step| Failure {
                step,
                class: classes.next().flatten().unwrap_or_default(),
                message: messages.next().flatten().unwrap_or_default(),
            });
            if failure.is_none() {
                classes.next();
                messages.next();
            }
            element(takes, output, failure)
        };
        self.takes
            .unwrap_or_default()
            .iter()
            .map(|takes| next(takes))
            .collect()
    }
}

fn element(takes: &str, output: Option<String>, failure: Option<Failure>) -> InputValue {
    let json = |failure: &Failure| serde_json::to_string(failure).unwrap_or_default();
    match (takes, failure, output) {
        ("outcome", Some(failure), _) => {
            InputValue::Value(format!(r#"{{"Err":{}}}"#, json(&failure)))
        }
        ("outcome", None, Some(output)) => InputValue::Value(format!(r#"{{"Ok":{output}}}"#)),
        ("failure", Some(failure), _) => InputValue::Value(json(&failure)),
        ("failure", None, _) => InputValue::Absent,
        ("maybe", _, Some(output)) => InputValue::Present(output),
        (_, _, Some(output)) => InputValue::Value(output),
        (_, _, None) => InputValue::Absent,
    }
}
