//! A run, and what can be asked of it.

use std::fmt;
use std::marker::PhantomData;

use sqlx::PgExecutor;

use super::Client;
use super::start::Returns;
use crate::Error;

/// So many steps are named to somebody who asked for one that is not there.
const SHOWN: i32 = 20;

/// A run: a handle, cheap to clone. `O` is what the run returns.
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
    id: i64,
    fresh: bool,
    chained: Vec<i64>,
    returns: Returns<O>,
}

impl<O> Run<O> {
    pub(crate) fn new(client: Client, id: i64, fresh: bool) -> Self {
        Self {
            client,
            id,
            fresh,
            chained: Vec::new(),
            returns: PhantomData,
        }
    }

    /// Its id.
    pub fn id(&self) -> i64 {
        self.id
    }

    /// Whether this start made it; `false` where its key led to a run that was there, and where it
    /// was [looked up](Client::run).
    pub fn is_fresh(&self) -> bool {
        self.fresh
    }

    /// The runs that were chained to it when it was started, in the order they were named.
    pub fn chained(&self) -> Vec<Run> {
        let run = |id: &i64| Run::new(self.client.clone(), *id, self.fresh);
        self.chained.iter().map(run).collect()
    }

    /// The same run as one that returns a `T`: what [`output`](Run::output) then decodes. Whether it
    /// does, only that says.
    #[must_use]
    pub fn returning<T>(&self) -> Run<T> {
        Run::new(self.client.clone(), self.id, self.fresh).with_chained(self.chained.clone())
    }

    pub(crate) fn with_chained(mut self, chained: Vec<i64>) -> Self {
        self.chained = chained;
        self
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// What to say of a step that the run has not.
    pub(super) async fn no_step(&self, executor: impl PgExecutor<'_>, step: &str) -> Error {
        let found = sqlx::query_file!("src/sql/run_keys.sql", self.id, SHOWN)
            .fetch_optional(executor)
            .await;
        let found = match found {
            Ok(Some(found)) => found,
            Ok(None) => return Error::NoRun(self.id),
            Err(error) => return error.into(),
        };
        let mut known = format!("`{}`", found.keys.join("`, `"));
        if found.more > 0 {
            known.push_str(&format!(" and {} more", found.more));
        }
        Error::NoStep {
            run: self.id,
            pipeline: found.pipeline,
            step: jobs::extension::limits::shortened(step),
            known,
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
