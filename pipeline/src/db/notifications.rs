//! Notifications about runs: their channels and payloads.

use jobs::extension::Notification;
use sqlx::PgPool;

/// The channel that announces ended runs.
pub(crate) const ENDED_RUNS_CHANNEL: &str = "pipeline_runs";
/// The channel that announces requests and cancelled runs.
pub(crate) const REQUESTS_CHANNEL: &str = "pipeline_requests";
/// The number of run ids in one notification, whose payload is limited to less than 8,000 bytes.
const IDS_PER_NOTIFICATION: usize = 350;

/// Returns the notifications that announce ended runs.
pub(crate) fn runs_ended(runs: &[i64]) -> Vec<Notification> {
    let notification = |runs: &[i64]| {
        let ids: Vec<String> = runs.iter().map(i64::to_string).collect();
        Notification {
            channel: ENDED_RUNS_CHANNEL,
            payload: ids.join(","),
        }
    };
    runs.chunks(IDS_PER_NOTIFICATION)
        .map(notification)
        .collect()
}

/// Returns the notification that wakes the task that processes requests.
pub(crate) fn requests_added() -> Notification {
    Notification {
        channel: REQUESTS_CHANNEL,
        payload: String::new(),
    }
}

/// Announces jobs in these queues, and sends these notifications. Receivers also poll, so a failure is only logged.
pub(crate) async fn send(pool: &PgPool, queues: &[String], notifications: &[Notification]) {
    let channels: Vec<&str> = notifications.iter().map(|it| it.channel).collect();
    let payloads: Vec<&str> = notifications.iter().map(|it| it.payload.as_str()).collect();
    let sent = sqlx::query_file!(
        "src/sql/notify.sql",
        queues,
        &channels as &[&str],
        &payloads as &[&str]
    )
    .fetch_one(pool)
    .await;
    if let Err(error) = sent {
        tracing::debug!(%error, "notifications could not be sent; receivers will poll");
    }
}
