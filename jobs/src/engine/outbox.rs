//! The outbox: notifications that are sent after the transactions that cause them.

use std::collections::HashSet;

use parking_lot::Mutex;
use sqlx::PgConnection;
use tokio::sync::Notify;

/// A notification to other processes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Notification {
    /// The name of the channel.
    pub channel: &'static str,
    /// The payload of the notification.
    pub payload: String,
}

/// Notifications that have not been sent. Equal ones are sent once.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    waiting: Mutex<HashSet<Notification>>,
    filled: Notify,
}

impl Outbox {
    pub(crate) fn push(&self, notifications: impl IntoIterator<Item = Notification>) {
        let mut waiting = self.waiting.lock();
        let before = waiting.len();
        waiting.extend(notifications);
        if waiting.len() > before {
            drop(waiting);
            self.filled.notify_one();
        }
    }

    /// Completes when notifications may wait to be sent.
    pub(crate) async fn filled(&self) {
        self.filled.notified().await;
    }

    /// Sends all waiting notifications in a separate statement: a NOTIFY inside a transaction serialises the commit of
    /// that transaction with all other commits of the server. If the statement fails, polls find the work.
    pub(crate) async fn send(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        let (channels, payloads): (Vec<String>, Vec<String>) = self
            .waiting
            .lock()
            .drain()
            .map(|it| (it.channel.to_owned(), it.payload))
            .unzip();
        if payloads.is_empty() {
            return Ok(());
        }
        sqlx::query!(
            "select pg_notify(channel, payload) from unnest($1::text[], $2::text[]) as n (channel, payload)",
            &channels,
            &payloads
        )
        .execute(connection)
        .await?;
        Ok(())
    }
}
