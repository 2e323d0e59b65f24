//! A run that is there.

use std::fmt;
use std::marker::PhantomData;

use super::Client;
use super::start::Returns;

/// A run that is there: a handle, cheap to clone. `O` is what the run returns.
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

    /// Whether this start made it; `false` where its key led to a run that was there.
    pub fn is_fresh(&self) -> bool {
        self.fresh
    }

    /// The runs that were chained to it when it was started, in the order they were named.
    pub fn chained(&self) -> Vec<Run> {
        let run = |id: &i64| Run::new(self.client.clone(), *id, self.fresh);
        self.chained.iter().map(run).collect()
    }

    pub(crate) fn with_chained(mut self, chained: Vec<i64>) -> Self {
        self.chained = chained;
        self
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }
}

impl<O> Clone for Run<O> {
    fn clone(&self) -> Self {
        Self::new(self.client.clone(), self.id, self.fresh).with_chained(self.chained.clone())
    }
}

impl<O> fmt::Debug for Run<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("id", &self.id).finish()
    }
}
