//! Runs to start, with their options.

use jobs::extension::limits;
use sha2::{Digest as _, Sha256};

use super::canonical;
use crate::db::graphs::kind_name;
use crate::declare::{Named, Pipeline, PipelineOutput};
use crate::graph::spec::StepKind;
use crate::graph::{MAX_TAG_CHARS, MAX_TAGS};
use crate::{Error, Invalid, Result};

/// The maximum length of an actor, in bytes.
const MAX_ACTOR_BYTES: usize = 256;

/// The level that decides which [events](crate::Run::events) of a run are stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, sqlx::Type)]
#[sqlx(
    type_name = "pipeline.event_level",
    rename_all = "lowercase",
    no_pg_array
)]
#[non_exhaustive]
pub enum EventLevel {
    /// Stores no events.
    None,
    /// Stores the start and the end of the run.
    Runs,
    /// Stores the events of `Runs` and the end of each step.
    #[default]
    Steps,
    /// Stores the events of `Steps` and the enqueueing of each step.
    All,
}

/// A run to start, with options of its own. [`Client::start`](crate::Client::start) takes a `NewRun` in place of a
/// pipeline.
#[derive(Debug)]
pub struct NewRun<O = ()> {
    pub(super) pipeline: Pipeline<O>,
    pub(super) key: Option<String>,
    pub(super) actor: Option<String>,
    pub(super) tags: Vec<String>,
    pub(super) event_level: EventLevel,
}

impl<O> NewRun<O> {
    /// Creates a run of this pipeline with the default options.
    pub fn new(pipeline: Pipeline<O>) -> Self {
        Self {
            tags: pipeline.graph().spec().tags.clone(),
            pipeline,
            key: None,
            actor: None,
            event_level: EventLevel::default(),
        }
    }

    /// Sets the key of the run, which is unique among the runs of its pipeline.
    ///
    /// As long as the run is kept, starting the pipeline again with the same key and params returns the existing run,
    /// and starting it with other params returns [`Error::KeyConflict`]. The key also applies to the runs that are
    /// chained in the same start.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Sets the actor on whose behalf the run runs.
    #[must_use]
    pub fn actor(mut self, actor: impl Into<String>) -> Self {
        self.actor = Some(actor.into());
        self
    }

    /// Adds a tag to the run, besides the tags of its pipeline.
    #[must_use]
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.tags.push(tag.into());
        self
    }

    /// Sets which events of the run are stored. The default is [`EventLevel::Steps`].
    #[must_use]
    pub fn event_level(mut self, level: EventLevel) -> Self {
        self.event_level = level;
        self
    }

    /// Returns this run without the type of its output.
    pub(crate) fn erased(self) -> NewRun {
        NewRun {
            pipeline: self.pipeline.erased(),
            key: self.key,
            actor: self.actor,
            tags: self.tags,
            event_level: self.event_level,
        }
    }

    /// Checks the kinds of the steps and the limits of the params and options, before anything is written.
    pub(super) fn check(&self) -> Result<()> {
        let name = || self.pipeline.name().to_owned();
        for node in self.pipeline.graph().nodes() {
            match node.kind() {
                StepKind::Job { .. }
                | StepKind::Branch { .. }
                | StepKind::Merge { .. }
                | StepKind::Barrier => {}
                kind => {
                    return Err(Error::NotRunnable {
                        pipeline: name(),
                        step: node.key().to_owned(),
                        kind: kind_name(kind),
                    });
                }
            }
        }
        let specs = &self.pipeline.graph().spec().steps;
        for (spec, params) in specs.iter().zip(self.pipeline.params()) {
            if let Some(params) = params {
                data(&spec.key, "params", params)?;
            }
        }
        let mut together = 0;
        for params in self.pipeline.callback_params() {
            data(self.pipeline.name(), "callback's params", params)?;
            together += params.len();
        }
        // One row holds the params of all callbacks until the run ends.
        if together > limits::MAX_DATA_BYTES {
            return Err(Error::TooLarge {
                of: name(),
                what: "callbacks' params together",
                size: together,
                limit: limits::MAX_DATA_BYTES,
            });
        }
        if let Some(params) = self.pipeline.own_params() {
            data(self.pipeline.name(), "params", params)?;
        }
        let word = |what, word: &str, size, limit, unit| {
            if word.is_empty() {
                return Err(Error::Empty {
                    pipeline: name(),
                    what,
                });
            }
            if size > limit {
                return Err(Error::TooLong {
                    pipeline: name(),
                    what,
                    value: limits::shortened(word),
                    size,
                    limit,
                    unit,
                });
            }
            if word.contains('\0') {
                return Err(Error::HasNul { of: name(), what });
            }
            Ok(())
        };
        if let Some(key) = &self.key {
            word("key", key, key.len(), limits::MAX_KEY_BYTES, "bytes")?;
        }
        if let Some(actor) = &self.actor {
            word("actor", actor, actor.len(), MAX_ACTOR_BYTES, "bytes")?;
        }
        if self.tags.len() > MAX_TAGS {
            return Err(Error::TooManyTags {
                pipeline: name(),
                count: self.tags.len(),
                limit: MAX_TAGS,
            });
        }
        // The limit is that of a pipeline's tags, because they become tags of its runs.
        self.tags
            .iter()
            .try_for_each(|tag| word("tag", tag, tag.chars().count(), MAX_TAG_CHARS, "characters"))
    }

    /// Returns the approximate size of the run in a statement, in bytes.
    pub(super) fn size(&self) -> usize {
        let pipeline = &self.pipeline;
        let callbacks: usize = pipeline.callback_params().iter().map(String::len).sum();
        // Nodes that were not declared have no params.
        let undeclared = pipeline
            .graph()
            .len()
            .saturating_sub(pipeline.params().len());
        let steps: usize = pipeline
            .params()
            .iter()
            .map(|step| step_size(&step.as_deref()))
            .sum();
        let texts: usize = [&self.key, &self.actor]
            .into_iter()
            .flatten()
            .map(String::len)
            .sum();
        let tags: usize = self.tags.iter().map(String::len).sum();
        256 + texts
            + tags
            + callbacks
            + pipeline.own_params().map_or(0, str::len)
            + steps
            + undeclared * step_size(&None)
    }

    /// Returns the hash of the params by which runs with the same key are compared.
    ///
    /// The hash covers the pipeline's own params if the pipeline has some, and otherwise the params of its steps and
    /// callbacks. The order of the keys of an object does not matter. The params must have been checked.
    pub(super) fn params_hash(&self) -> Vec<u8> {
        let mut hash = Sha256::new();
        let mut add = |json: Option<&str>| {
            let mut text = String::new();
            if let Some(json) = json {
                canonical::write(json, &mut text);
            }
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text);
        };
        match self.pipeline.own_params() {
            Some(params) => add(Some(params)),
            None => {
                let steps = self.pipeline.graph().spec().steps.iter();
                for (step, params) in steps.zip(self.pipeline.params()) {
                    add(Some(&format!("{:?}", step.key)));
                    add(params.as_deref());
                }
                for params in self.pipeline.callback_params() {
                    add(Some(params));
                }
            }
        }
        hash.finalize().to_vec()
    }
}

impl<O> Clone for NewRun<O> {
    fn clone(&self) -> Self {
        Self {
            pipeline: self.pipeline.clone(),
            key: self.key.clone(),
            actor: self.actor.clone(),
            tags: self.tags.clone(),
            event_level: self.event_level,
        }
    }
}

/// Returns the approximate size of a step in a statement, in bytes.
pub(super) fn step_size(params: &Option<&str>) -> usize {
    8 + params.map_or(0, str::len)
}

/// Checks the size of a JSON text, and that Postgres can store the text.
fn data(of: &str, what: &'static str, json: &str) -> Result<()> {
    if json.len() > limits::MAX_DATA_BYTES {
        return Err(Error::TooLarge {
            of: of.to_owned(),
            what,
            size: json.len(),
            limit: limits::MAX_DATA_BYTES,
        });
    }
    limits::json(json).map_err(|found| Error::NotStorable {
        of: of.to_owned(),
        what,
        place: found.place,
        problem: found.problem,
    })
}

/// A single run that can be started: a pipeline, the params of a named pipeline, or a [`NewRun`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a pipeline that can be started",
    label = "neither a `Pipeline` nor the params of a named one",
    note = "declare one with `Pipeline::configure(..)?`, or derive `Pipeline` for its params"
)]
pub trait IntoRun {
    /// The output of the run.
    type Output;

    /// Returns the run with its options.
    ///
    /// # Errors
    ///
    /// [`Invalid`] with all problems of the pipeline's graph.
    fn into_run(self) -> Result<NewRun<Self::Output>, Invalid>;
}

impl<O> IntoRun for NewRun<O> {
    type Output = O;

    fn into_run(self) -> Result<Self, Invalid> {
        Ok(self)
    }
}

impl<O> IntoRun for Pipeline<O> {
    type Output = O;

    fn into_run(self) -> Result<NewRun<O>, Invalid> {
        Ok(NewRun::new(self))
    }
}

impl<P: Named> IntoRun for P {
    type Output = <P::Output as PipelineOutput>::Value;

    fn into_run(self) -> Result<NewRun<Self::Output>, Invalid> {
        Ok(NewRun::new(self.pipeline()?))
    }
}
