//! Whoever waits for a run of a system that offers no wait for it.
//!
//! The last step of a run tells its client in the process, before the step's own end is committed. That is a
//! little earlier than any of the systems could tell it.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use tokio::sync::oneshot;

use crate::Result;
use crate::performed::PERFORMED;

static WAITING: LazyLock<Mutex<HashMap<u64, oneshot::Sender<u64>>>> = LazyLock::new(Mutex::default);

fn waiting() -> std::sync::MutexGuard<'static, HashMap<u64, oneshot::Sender<u64>>> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Registers a client that waits for the run with this number; before the run is started.
pub(crate) fn expect(run: u64) -> oneshot::Receiver<u64> {
    let (sender, receiver) = oneshot::channel();
    waiting().insert(run, sender);
    receiver
}

/// Waits for the output of a run.
pub(crate) async fn output(run: oneshot::Receiver<u64>) -> Result<u64> {
    Ok(run.await?)
}

/// Called by the last step of a run.
pub(crate) fn ended(run: u64, output: u64) {
    PERFORMED.add(run);
    if let Some(client) = waiting().remove(&run) {
        let _ = client.send(output);
    }
}
