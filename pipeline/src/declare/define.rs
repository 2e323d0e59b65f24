//! Declared pipelines, and named pipelines that declare themselves from their params.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use jobs::Jobs;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::builder::{ListedJobs, PipelineBuilder};
use super::output::PipelineOutput;
use crate::graph::spec::Shape;
use crate::graph::{DeclarationError, Graph, Invalid, Place, Problem, shown};

/// A declared pipeline: its graph and the params of its steps. `O` is the type of a run's output.
///
/// A pipeline can be cloned, and started any number of times.
pub struct Pipeline<O = ()> {
    graph: Arc<Graph>,
    params: Vec<Option<String>>,
    callback_params: Vec<String>,
    /// The params of a named pipeline.
    own_params: Option<String>,
    returns: PhantomData<fn() -> O>,
}

impl Pipeline {
    /// Declares a pipeline. The handles that the closure returns give the pipeline's output.
    ///
    /// # Errors
    ///
    /// [`Invalid`] holds every problem of the graph. Nothing has been written to the database.
    pub fn configure<R: PipelineOutput>(
        name: &str,
        declare: impl FnOnce(&PipelineBuilder) -> R,
    ) -> Result<Pipeline<R::Value>, Invalid> {
        Pipeline::declared(name, None, declare)
    }

    /// Builds a pipeline from a graph, with the params of its steps in the order of its spec. For tests: nothing
    /// checks that its jobs fit together.
    #[doc(hidden)]
    pub fn from_graph(graph: Graph, params: Vec<Option<String>>) -> Self {
        let callback_params = vec!["null".to_owned(); graph.spec().callbacks.len()];
        Self {
            graph: Arc::new(graph),
            params,
            callback_params,
            own_params: None,
            returns: PhantomData,
        }
    }
}

impl<O> Pipeline<O> {
    /// Declares a pipeline whose jobs must be listed.
    fn declared<R: PipelineOutput<Value = O>>(
        name: &str,
        jobs: Option<ListedJobs>,
        declare: impl FnOnce(&PipelineBuilder) -> R,
    ) -> Result<Self, Invalid> {
        let builder = PipelineBuilder::new(name, jobs);
        let output = declare(&builder).keys();
        let mut state = builder.0.lock();
        let mut spec = state.spec.clone();
        let follows = Shape::of(output.len()).unwrap_or(Shape::Tuple(Vec::new()));
        spec.output_shape = Some(R::shape()).filter(|shape| *shape != follows);
        spec.output = output;
        let mistakes = std::mem::take(&mut state.problems);
        let graph = match Graph::compile(spec) {
            Ok(graph) if mistakes.is_empty() => graph,
            compiled => {
                let found = compiled.err().map_or_else(Vec::new, Invalid::into_problems);
                let found = found
                    .into_iter()
                    .filter(|problem| !follows_from(problem, &mistakes));
                let found: Vec<Problem> = found.collect();
                let problems = mistakes.into_iter().map(Problem::from).chain(found);
                return Err(Invalid::new(name, problems.collect()));
            }
        };
        Ok(Self {
            graph: Arc::new(graph),
            params: std::mem::take(&mut state.params),
            callback_params: std::mem::take(&mut state.callback_params),
            own_params: None,
            returns: PhantomData,
        })
    }

    /// Returns the pipeline without the type of its output.
    pub(crate) fn erased(self) -> Pipeline {
        Pipeline {
            graph: self.graph,
            params: self.params,
            callback_params: self.callback_params,
            own_params: self.own_params,
            returns: PhantomData,
        }
    }

    /// Returns the name of the pipeline.
    pub fn name(&self) -> &str {
        &self.graph.spec().name
    }

    /// Returns the graph of the pipeline.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Returns the params of the steps as JSON, in the order of the graph's spec; barriers and merges have none.
    #[doc(hidden)]
    pub fn params(&self) -> &[Option<String>] {
        &self.params
    }

    /// Returns the params of a named pipeline as JSON.
    #[doc(hidden)]
    pub fn own_params(&self) -> Option<&str> {
        self.own_params.as_deref()
    }

    /// Returns the params of the callbacks as JSON.
    #[doc(hidden)]
    pub fn callback_params(&self) -> &[String] {
        &self.callback_params
    }
}

impl<O> Clone for Pipeline<O> {
    fn clone(&self) -> Self {
        Self {
            graph: Arc::clone(&self.graph),
            params: self.params.clone(),
            callback_params: self.callback_params.clone(),
            own_params: self.own_params.clone(),
            returns: PhantomData,
        }
    }
}

impl<O> fmt::Debug for Pipeline<O> {
    /// Shows no params, so that a log line holds none.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipeline")
            .field("name", &self.name())
            .field("steps", &self.graph.spec().steps.len())
            .finish()
    }
}

/// Returns whether a problem only repeats that a handle belongs to another pipeline.
fn follows_from(problem: &Problem, mistakes: &[DeclarationError]) -> bool {
    let Problem::UnknownKey {
        place: Place::Step(at),
        key: unknown,
        ..
    } = problem
    else {
        return false;
    };
    mistakes.iter().any(|mistake| {
        matches!(mistake, DeclarationError::ForeignHandle { step, key, .. }
            if shown(step) == *at && shown(key) == *unknown)
    })
}

/// The declaration of a named pipeline from its params.
///
/// ```
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/jobs.rs"));
/// #[derive(Serialize, Deserialize, Pipeline)]
/// struct Video {
///     id: i64,
/// }
///
/// impl Define for Video {
///     type Jobs = (Download, Transcode);
///     type Output = Step<Encoded>;
///
///     fn define(&self, p: &PipelineBuilder) -> Step<Encoded> {
///         p.step("download", Download).then("transcode", Transcode)
///     }
/// }
/// # fn main() {}
/// ```
pub trait Define {
    /// The jobs of the pipeline's steps and callbacks: a job, or a tuple of jobs and of such tuples.
    ///
    /// [`Worker::register`](crate::Worker::register) of the pipeline registers them all. A step whose job is not
    /// listed is an error of the declaration.
    type Jobs: Jobs;

    /// The handles that give the pipeline's output: a [`Step`](super::Step), a tuple of handles, or `()`.
    type Output: PipelineOutput;

    /// Declares the steps of the pipeline.
    fn define(&self, p: &PipelineBuilder) -> Self::Output;
}

/// A pipeline with a stable name, whose params are stored with each run.
///
/// Derive it with `#[derive(Pipeline)]` beside `Serialize` and `Deserialize`, and implement [`Define`]. The params
/// are what is started: `client.start(Video { id: 7 })`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a named pipeline",
    label = "not the params of a named pipeline",
    note = "derive `Pipeline` for `{Self}`, and implement `Define`"
)]
pub trait Named: Define + Serialize + DeserializeOwned {
    /// The stable name of the pipeline.
    const NAME: &'static str;

    /// Declares the pipeline with these params.
    ///
    /// # Errors
    ///
    /// [`Invalid`] holds every problem of the graph.
    fn pipeline(&self) -> Result<Pipeline<<Self::Output as PipelineOutput>::Value>, Invalid> {
        let jobs = ListedJobs {
            pipeline: std::any::type_name::<Self>(),
            contains: <Self::Jobs as Jobs>::contains,
        };
        let mut pipeline = Pipeline::declared(Self::NAME, Some(jobs), |p| self.define(p))?;
        pipeline.own_params = Some(jobs::encode::to_string(self).map_err(|error| {
            let reason = error.to_string();
            let problem = DeclarationError::ParamsNotEncodable { reason };
            Invalid::new(Self::NAME, vec![Problem::from(problem)])
        })?);
        Ok(pipeline)
    }

    /// Returns the JSON Schema of the params.
    fn params_schema() -> serde_json::Value {
        Self::schema().to_value()
    }

    #[doc(hidden)]
    fn schema() -> schemars::Schema;
}
