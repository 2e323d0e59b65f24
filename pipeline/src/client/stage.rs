//! What a start takes, and the runs that it returns.

use super::new_run::{IntoRun, NewRun};
use super::{Client, Run};
use crate::Invalid;

/// The new runs of one stage of a chain, which start together.
#[doc(hidden)]
#[derive(Clone)]
pub struct Stage(Vec<Result<NewRun, Invalid>>);

impl Stage {
    fn of<R: IntoRun>(runs: impl IntoIterator<Item = R>) -> Self {
        let erased = |run: R| run.into_run().map(NewRun::erased);
        Self(runs.into_iter().map(erased).collect())
    }

    pub(super) fn into_runs(self) -> Result<Vec<NewRun>, Invalid> {
        self.0.into_iter().collect()
    }

    /// Changes each run of the stage.
    pub(super) fn change(&mut self, change: impl Fn(NewRun) -> NewRun) {
        let runs = std::mem::take(&mut self.0);
        self.0 = runs.into_iter().map(|run| run.map(&change)).collect();
    }
}

impl std::fmt::Debug for Stage {
    /// Shows the names of the pipelines, and omits everything that the application has set.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = self.0.iter().map(|run| match run {
            Ok(run) => run.pipeline.name(),
            Err(_) => "invalid",
        });
        f.debug_list().entries(names).finish()
    }
}

/// What [`Client::start`] and [`Run::then`] take: one pipeline, or a tuple, an array or a `Vec` of pipelines.
///
/// A pipeline is a [`Pipeline`](struct@crate::Pipeline), the params of a named one (`#[derive(Pipeline)]`), or a
/// [`NewRun`](crate::NewRun) with options of its own.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be started as a run",
    label = "neither a pipeline, nor a tuple, an array or a `Vec` of pipelines",
    note = "declare a pipeline with `Pipeline::configure(..)?`, or derive `Pipeline` for its params"
)]
pub trait IntoStage {
    /// The type of the started runs: `Run<O>`, a tuple of them, or `Vec<Run<O>>`.
    type Runs: StartedRuns;

    /// Returns the new runs of the stage.
    #[doc(hidden)]
    fn into_stage(self) -> Stage;
}

impl<R: IntoRun> IntoStage for R {
    type Runs = Run<R::Output>;

    fn into_stage(self) -> Stage {
        Stage::of([self])
    }
}

impl<R: IntoRun> IntoStage for Vec<R> {
    type Runs = Vec<Run<R::Output>>;

    fn into_stage(self) -> Stage {
        Stage::of(self)
    }
}

impl<R: IntoRun, const N: usize> IntoStage for [R; N] {
    type Runs = Vec<Run<R::Output>>;

    fn into_stage(self) -> Stage {
        Stage::of(self)
    }
}

/// The runs of a started stage, with their types.
#[doc(hidden)]
pub trait StartedRuns: Sized {
    /// Takes the runs in the order in which they were given to the start. Returns `None` if one is missing.
    fn take(runs: &mut Started<'_>) -> Option<Self>;
}

/// The ids of started runs, in the order of the start, and whether each run is new.
#[doc(hidden)]
#[derive(Debug)]
pub struct Started<'a> {
    client: &'a Client,
    runs: std::vec::IntoIter<(i64, bool)>,
}

impl<'a> Started<'a> {
    pub(super) fn new(client: &'a Client, runs: Vec<(i64, bool)>) -> Self {
        let runs = runs.into_iter();
        Self { client, runs }
    }

    fn next<O>(&mut self) -> Option<Run<O>> {
        let (id, is_new) = self.runs.next()?;
        Some(Run::new(self.client.clone(), id, is_new))
    }
}

impl<O> StartedRuns for Run<O> {
    fn take(runs: &mut Started<'_>) -> Option<Self> {
        runs.next()
    }
}

impl<O> StartedRuns for Vec<Run<O>> {
    fn take(runs: &mut Started<'_>) -> Option<Self> {
        let mut all = Vec::with_capacity(runs.runs.len());
        all.extend(std::iter::from_fn(|| runs.next()));
        Some(all)
    }
}

macro_rules! tuples {
    ($($name:ident $at:tt),*) => {
        #[diagnostic::do_not_recommend]
        impl<$($name: IntoRun),*> IntoStage for ($($name,)*) {
            type Runs = ($(Run<$name::Output>,)*);

            fn into_stage(self) -> Stage {
                Stage(vec![$(self.$at.into_run().map(NewRun::erased)),*])
            }
        }

        impl<$($name),*> StartedRuns for ($(Run<$name>,)*) {
            fn take(runs: &mut Started<'_>) -> Option<Self> {
                Some(($(runs.next::<$name>()?,)*))
            }
        }
    };
}

tuples!(A 0);
tuples!(A 0, B 1);
tuples!(A 0, B 1, C 2);
tuples!(A 0, B 1, C 2, D 3);
tuples!(A 0, B 1, C 2, D 3, E 4);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
tuples!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);
