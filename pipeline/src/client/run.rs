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
    returns: Returns<O>,
}

impl<O> Run<O> {
    pub(crate) fn new(client: Client, id: i64, fresh: bool) -> Self {
        Self {
            client,
            id,
            fresh,
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

    #[allow(dead_code)]
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }
}

impl<O> Clone for Run<O> {
    fn clone(&self) -> Self {
        Self::new(self.client.clone(), self.id, self.fresh)
    }
}

impl<O> fmt::Debug for Run<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run").field("id", &self.id).finish()
    }
}
