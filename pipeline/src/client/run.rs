//! The handle to a run.

use std::fmt;
use std::marker::PhantomData;

use sqlx::PgExecutor;

use super::Client;
use super::start::Returns;
use crate::{Error, RunId};

/// The maximum number of steps that an error names.
const MAX_NAMED_STEPS: i32 = 20;

/// A handle to a run, cheap to clone. `O` is the type of the run's output.
///
/// ```no_run
/// # use pipeline::{Client, Invalid, Pipeline};
/// # async fn example(client: Client, video: Pipeline<u64>) -> pipeline::Result<()> {
/// let run = client.start(video).await?;
/// run.wait().await?;
/// println!("{} bytes", run.output().await?);
///
/// // In another process, or another day:
/// let run = client.run(run.id());
/// println!("{}", run.status().await?);
/// println!("{} bytes", run.returning::<u64>().output().await?);
/// # Ok(())
/// # }
/// ```
pub struct Run<O = ()> {
    client: Client,
    id: RunId,
    is_new: bool,
    returns: Returns<O>,
}

impl<O> Run<O> {
    pub(crate) fn new(client: Client, id: impl Into<RunId>, is_new: bool) -> Self {
        Self {
            client,
            id: id.into(),
            is_new,
            returns: PhantomData,
        }
    }

    /// Returns the run's id.
    pub fn id(&self) -> RunId {
        self.id
    }

    /// Returns whether the call that returned this handle started the run: `false` if its key belonged to an
    /// existing run, and if the run was [looked up](Client::run).
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Returns a handle to this run whose output has the type `T`. Whether the stored output decodes as a `T` is
    /// checked by [`output`](Run::output).
    #[must_use]
    pub fn returning<T>(&self) -> Run<T> {
        Run::new(self.client.clone(), self.id, self.is_new)
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the error for a step that the run does not have.
    pub(super) async fn no_step(&self, executor: impl PgExecutor<'_>, step: &str) -> Error {
        let found = sqlx::query_file!("src/sql/run_keys.sql", self.id.get(), MAX_NAMED_STEPS)
            .fetch_optional(executor)
            .await;
        let found = match found {
            Ok(Some(found)) => found,
            Ok(None) => return Error::NoRun(self.id),
            Err(error) => return error.into(),
        };
        Error::NoStep {
            run: self.id,
            pipeline: found.pipeline,
            step: jobs::extension::limits::shortened(step),
            known: found.keys,
            more: usize::try_from(found.more).unwrap_or(0),
        }
    }
}

impl<O> Clone for Run<O> {
    fn clone(&self) -> Self {
        self.returning()
    }
}

impl<O> fmt::Debug for Run<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("id", &self.id).finish()
    }
}
