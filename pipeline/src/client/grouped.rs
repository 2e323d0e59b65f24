//! Groups the starts that gather while another start of the same client is under way.
//!
//! A single start is sent at once. While it is under way, further starts wait, and the next statement takes all of them
//! that have the same graph: a process that starts many runs, each by a call of its own, pays for few commits. Each
//! caller gets its own run. If a group fails, each of its starts is sent again alone, with the same id and nonce, so
//! that one that fails because of its data does not fail the others, and none is started twice.
//!
//! Starts with a key are never part of a group: they may wait for another transaction.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::Client;
use super::hand_over::Offer;
use super::new_run::NewRun;
use super::send::resend_on_pool;
use super::start_plan::StartPlan;
use crate::{Error, Result};

/// The maximum time that a start waits for the start before it.
const MAX_WAIT: Duration = Duration::from_millis(10);
/// The maximum number of runs in a group.
const MAX_RUNS: usize = 500;
/// The maximum number of steps in a group.
const MAX_STEPS: usize = 10_000;

/// The starts of a client and its clones that wait to be sent.
#[derive(Debug, Default)]
pub(super) struct Starts {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Request>,
    /// The number of starts and groups that are under way.
    senders: usize,
}

#[derive(Debug)]
struct Request {
    run: NewRun,
    answer: oneshot::Sender<Answer>,
}

#[derive(Debug)]
enum Answer {
    /// The run with this id was started.
    Started(i64),
    /// The group could not be sent, because no connection was free.
    NoConnection,
    /// The group failed.
    Failed(Box<Failed>),
}

/// A start whose group failed. The start is sent again alone.
#[derive(Debug)]
struct Failed {
    run: NewRun,
    nonce: i64,
    /// The run id that was sent with the group, if an id had been taken.
    id: Option<i64>,
    /// The offers whose answers were lost. They are kept until the start is done, because only then is it certain
    /// whether their claims exist.
    _lost: Arc<Vec<Offer>>,
}

/// Returns whether this start may be sent together with other starts.
pub(super) fn is_groupable(plan: &StartPlan<'_>) -> bool {
    plan.count == 1
        && !plan.has_keys
        && plan
            .only_statement()
            .is_some_and(|group| !group.is_chained && group.graph.len() <= MAX_STEPS)
}

/// Returns the right to send a start at once, if no other start of the client is under way. Otherwise the start has to
/// [`wait`].
pub(super) fn try_send(client: &Client) -> Option<Sender> {
    let mut state = client.shared.starts.state.lock();
    let is_free = state.senders == 0;
    state.senders += usize::from(is_free);
    is_free.then(|| Sender(client.clone()))
}

/// Starts a run together with other waiting starts. Returns the id of the run.
pub(super) async fn wait(client: &Client, run: NewRun) -> Result<i64> {
    let starts = &client.shared.starts;
    let mut answer = starts.enter(client, run);
    let answer = loop {
        match tokio::time::timeout(MAX_WAIT, &mut answer).await {
            Ok(answer) => break answer,
            Err(_) => starts.send_waiting(client),
        }
    };
    match answer {
        Ok(Answer::Started(id)) => Ok(id),
        Ok(Answer::NoConnection) => Err(sqlx::Error::PoolTimedOut.into()),
        Ok(Answer::Failed(failed)) => resend(client, *failed).await,
        // The task was aborted with its runtime, or it panicked.
        Err(_) => Err(sqlx::Error::WorkerCrashed.into()),
    }
}

/// Sends a start of a failed group again alone, with the same nonce and id.
async fn resend(client: &Client, failed: Failed) -> Result<i64> {
    let Failed {
        run,
        nonce,
        id,
        _lost,
    } = failed;
    let stages = [vec![run]];
    let mut plan = StartPlan::of(&stages, &[], client.bytes())?;
    plan.nonces = vec![nonce];
    let mut ids = Vec::from_iter(id);
    let found = resend_on_pool(client, client.pool(), &plan, &mut ids, &mut Vec::new()).await?;
    let started = found.first().map(|run| run.id);
    started.ok_or(Error::Database(sqlx::Error::RowNotFound))
}

/// The right to send a start. Dropping the sender sends the starts that have gathered meanwhile.
pub(super) struct Sender(Client);

impl Drop for Sender {
    fn drop(&mut self) {
        let starts = &self.0.shared.starts;
        starts.state.lock().senders -= 1;
        starts.send_waiting(&self.0);
    }
}

impl Starts {
    /// Adds a start to the waiting ones. Returns the channel of its answer.
    fn enter(&self, client: &Client, run: NewRun) -> oneshot::Receiver<Answer> {
        let (tell, answer) = oneshot::channel();
        let mut state = self.state.lock();
        state.waiting.push_back(Request { run, answer: tell });
        let is_idle = state.senders == 0;
        drop(state);
        if is_idle {
            // The start that was under way has ended in the meantime.
            self.send_waiting(client);
        }
        answer
    }

    /// Sends the waiting starts in a task, so that a caller that stops waiting does not stop the starts of others.
    fn send_waiting(&self, client: &Client) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let mut state = self.state.lock();
        if state.waiting.is_empty() {
            return;
        }
        state.senders += 1;
        drop(state);
        let sender = Sender(client.clone());
        runtime.spawn(async move {
            let client = &sender.0;
            while let Some(group) = client.shared.starts.take(client.bytes().page) {
                send(client, group).await;
            }
        });
    }

    /// Takes the start that has waited longest, and other starts with the same graph.
    fn take(&self, page: usize) -> Option<Vec<Request>> {
        let mut state = self.state.lock();
        state.waiting.retain(|request| !request.answer.is_closed());
        let first = state.waiting.pop_front()?;
        let graph = first.run.pipeline.graph();
        let (fingerprint, steps) = (graph.fingerprint(), graph.len().max(1));
        let (mut room, mut bytes) = (MAX_RUNS.min(MAX_STEPS / steps), first.run.size());
        let (mut group, mut rest) = (vec![first], VecDeque::new());
        for request in state.waiting.drain(..) {
            let size = request.run.size();
            let fits = room > 1
                && bytes + size <= page
                && request.run.pipeline.graph().fingerprint() == fingerprint;
            if fits {
                room -= 1;
                bytes += size;
                group.push(request);
            } else {
                rest.push_back(request);
            }
        }
        state.waiting = rest;
        Some(group)
    }
}

/// Sends a group of starts, and answers each caller.
async fn send(client: &Client, group: Vec<Request>) {
    let (runs, answers): (Vec<NewRun>, Vec<_>) = group
        .into_iter()
        .map(|request| (request.run, request.answer))
        .unzip();
    let stages = [runs];
    let (mut ids, mut lost, mut nonces) = (Vec::new(), Vec::new(), Vec::new());
    let outcome = match StartPlan::of(&stages, &[], client.bytes()) {
        Ok(plan) => {
            nonces.clone_from(&plan.nonces);
            resend_on_pool(client, client.pool(), &plan, &mut ids, &mut lost).await
        }
        Err(error) => Err(error),
    };
    let [runs] = stages;
    match outcome {
        Ok(found) => {
            for (answer, run) in answers.into_iter().zip(found) {
                // The caller may have gone; its run has been started.
                let _ = answer.send(Answer::Started(run.id));
            }
        }
        Err(Error::Database(sqlx::Error::PoolTimedOut)) => {
            for answer in answers {
                let _ = answer.send(Answer::NoConnection);
            }
        }
        Err(error) => {
            tracing::debug!(%error, count = runs.len(), "group of starts failed; sending each start alone");
            let lost = Arc::new(lost);
            for (at, (run, answer)) in runs.into_iter().zip(answers).enumerate() {
                let failed = Failed {
                    run,
                    nonce: nonces.get(at).copied().unwrap_or_else(|| fastrand::i64(..)),
                    id: ids.get(at).copied(),
                    _lost: Arc::clone(&lost),
                };
                let _ = answer.send(Answer::Failed(Box::new(failed)));
            }
        }
    }
}
