//! The inbox: claimed jobs on their way from the engine to apalis.

use std::collections::VecDeque;
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;

use crate::attempt::Envelope;

/// The claimed jobs that apalis has not taken. The engine can take these jobs back.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    waiting: Mutex<VecDeque<Envelope>>,
    waker: AtomicWaker,
}

impl Inbox {
    pub(crate) fn push(&self, envelopes: Vec<Envelope>) {
        if envelopes.is_empty() {
            return;
        }
        self.waiting.lock().extend(envelopes);
        self.waker.wake();
    }

    pub(crate) fn poll(&self, cx: &mut Context<'_>) -> Poll<Envelope> {
        if let Some(envelope) = self.waiting.lock().pop_front() {
            return Poll::Ready(envelope);
        }
        self.waker.register(cx.waker());
        // A job may have arrived before the waker was registered.
        match self.waiting.lock().pop_front() {
            Some(envelope) => Poll::Ready(envelope),
            None => Poll::Pending,
        }
    }

    /// Takes back every job that apalis has not taken. A dropped envelope hands its job back to the queue.
    pub(crate) fn drain(&self) -> Vec<Envelope> {
        self.waiting.lock().drain(..).collect()
    }
}
