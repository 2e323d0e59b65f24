//! The declared pipeline.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::output::PipelineOutput;
use super::plan::Plan;
use crate::graph::spec::Shape;
use crate::graph::{DeclarationError, Graph, Invalid, Problem};

/// A declared pipeline: its graph, and the params of its steps. `O` is what a run of it returns.
///
/// It can be cloned, and started as often as you like.
pub struct Pipeline<O = ()> {
    graph: Arc<Graph>,
    params: Vec<Option<String>>,
    callback_params: Vec<String>,
    /// Those of a named pipeline.
    own_params: Option<String>,
    returns: PhantomData<fn() -> O>,
}

impl Pipeline {
    /// Declares a pipeline. What the closure returns is the pipeline's own output.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with the graph, at once, before anything is written.
    pub fn configure<R: PipelineOutput>(
        name: &str,
        declare: impl FnOnce(&Plan) -> R,
    ) -> Result<Pipeline<R::Value>, Invalid> {
        let plan = Plan::new(name);
        let output = declare(&plan).keys();
        let mut state = plan.0.lock();
        let mut spec = state.spec.clone();
        let follows = Shape::of(output.len()).unwrap_or(Shape::Tuple(Vec::new()));
        spec.output_shape = Some(R::shape()).filter(|shape| *shape != follows);
        spec.output = output;
        let slips = std::mem::take(&mut state.problems);
        let graph = match Graph::compile(spec) {
            Ok(graph) if slips.is_empty() => graph,
            judged => {
                let mut problems: Vec<Problem> = slips.into_iter().map(Problem::from).collect();
                problems.extend(judged.err().into_iter().flat_map(Invalid::into_problems));
                return Err(Invalid::new(name, problems));
            }
        };
        Ok(Pipeline {
            graph: Arc::new(graph),
            params: std::mem::take(&mut state.params),
            callback_params: std::mem::take(&mut state.callback_params),
            own_params: None,
            returns: PhantomData,
        })
    }

    /// A pipeline of a graph that was not declared here, with the params of its steps in the order of
    /// its spec. For tests: nothing says that its jobs fit together.
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
    /// The same pipeline, whatever it returns.
    pub(crate) fn erased(self) -> Pipeline {
        Pipeline {
            graph: self.graph,
            params: self.params,
            callback_params: self.callback_params,
            own_params: self.own_params,
            returns: PhantomData,
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.graph.spec().name
    }

    /// Its graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The params of its steps, as JSON, in the order they were declared (that of the graph's
    /// [`spec`](Graph::spec)); those that are no job have none.
    pub fn params(&self) -> &[Option<String>] {
        &self.params
    }

    /// The params of the pipeline itself, as JSON, where it is a named one.
    pub fn own_params(&self) -> Option<&str> {
        self.own_params.as_deref()
    }

    /// The params of its callbacks, as JSON.
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
    /// Without the params: a log line is no place for them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipeline")
            .field("name", &self.name())
            .field("steps", &self.graph.spec().steps.len())
            .finish()
    }
}

/// How a pipeline is declared from its params.
pub trait Define {
    /// The handles it returns.
    type Output: PipelineOutput;

    /// Declares it.
    fn define(&self, p: &Plan) -> Self::Output;
}

/// A pipeline with a stable name: params that are stored with each run, and what they declare. It can be
/// started as it is: `client.start(Video { id: 7 })`.
///
/// Derive it with `#[derive(Pipeline)]`, beside `Serialize`, `Deserialize` and `JsonSchema`.
pub trait Named: Define + Serialize + DeserializeOwned + JsonSchema {
    /// The stable name.
    const NAME: &'static str;

    /// Declares the pipeline with these params.
    ///
    /// # Errors
    ///
    /// Everything that is wrong with the graph, at once.
    fn pipeline(&self) -> Result<Pipeline<<Self::Output as PipelineOutput>::Value>, Invalid> {
        let mut pipeline = Pipeline::configure(Self::NAME, |p| self.define(p))?;
        pipeline.own_params = Some(serde_json::to_string(self).map_err(|error| {
            Invalid::new(
                Self::NAME,
                vec![Problem::from(DeclarationError::ParamsNotEncodable {
                    reason: error.to_string(),
                })],
            )
        })?);
        Ok(pipeline)
    }

    /// What the params look like, as JSON Schema.
    fn params_schema() -> serde_json::Value {
        schemars::schema_for!(Self).to_value()
    }
}
