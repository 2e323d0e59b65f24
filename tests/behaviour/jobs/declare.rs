//! The declaration of a job, its context while it runs, and the effect of its errors.

use std::io;
use std::time::Duration;

use jobs::{Context, Job, JobError, JobStatus, NewJob, OnError, Perform};
use serde::{Deserialize, Serialize};
use tests::{Database, with_database};

use super::support::{Do, Log, Running, What, client, ended, until};
use crate::logged::Captured;

fn worker<J: jobs::Jobs>(db: &Database) -> Running {
    Running::start(db, |worker| {
        worker
            .register::<J>()
            .queue("default", 4)
            .poll(Duration::from_millis(20))
    })
}

/// Decides by the error's class, its own data and the attempt.
#[derive(Serialize, Deserialize, Job)]
#[job(max_attempts = 9, backoff = "fixed(1h)")]
struct Fetch {
    class: String,
    patience: u16,
}

impl Perform for Fetch {
    type Input = ();
    type Output = ();

    async fn perform(self, (): (), _: &Context) -> Result<(), JobError> {
        Err(JobError::new(self.class, "the other side did not want to"))
    }

    fn on_error(&self, error: &JobError, attempt: u16) -> OnError {
        match error.class() {
            "Gone" => OnError::Discard,
            _ if attempt > self.patience => OnError::Discard,
            "Busy" => OnError::After(Duration::from_millis(1)),
            _ => OnError::Retry,
        }
    }
}

/// Decides by the error itself, which has come a long way.
#[derive(Serialize, Deserialize, Job)]
#[job(max_attempts = 9, backoff = "fixed(1ms)")]
struct Open {
    is_there: bool,
}

#[derive(Debug)]
struct Unread(io::Error);

impl std::fmt::Display for Unread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("it cannot be read")
    }
}

impl std::error::Error for Unread {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

impl Perform for Open {
    type Input = ();
    type Output = ();

    async fn perform(self, (): (), cx: &Context) -> Result<(), JobError> {
        let kind = match self.is_there {
            true if cx.attempt() == 3 => return Ok(()),
            true => io::ErrorKind::WouldBlock,
            false => io::ErrorKind::NotFound,
        };
        Err(Unread(kind.into()))?
    }

    fn on_error(&self, error: &JobError, _: u16) -> OnError {
        assert!(error.downcast_ref::<Unread>().is_some());
        match error.downcast_ref::<io::Error>().map(io::Error::kind) {
            Some(io::ErrorKind::NotFound) => OnError::Discard,
            _ => OnError::Retry,
        }
    }
}

#[tokio::test]
async fn a_job_decides_by_the_error_itself_what_it_means() {
    with_database(async |db| {
        let worker = worker::<Open>(db);
        let client = client(db);
        let open = async |is_there| client.enqueue(Open { is_there }).await.unwrap().id;
        let busy = ended(db, open(true).await).await;
        assert_eq!((busy.status, busy.attempt), (JobStatus::Succeeded, 3));
        let missing = ended(db, open(false).await).await;
        assert_eq!((missing.status, missing.attempt), (JobStatus::Discarded, 1));
        worker.stop().await;
    })
    .await;
}

fn fetch(class: &str, patience: u16) -> Fetch {
    Fetch {
        class: class.to_owned(),
        patience,
    }
}

#[tokio::test]
async fn a_job_decides_by_class_and_attempt_what_its_error_means() {
    with_database(async |db| {
        let worker = worker::<Fetch>(db);
        let client = client(db);
        let gone = client.enqueue(fetch("Gone", 9)).await.unwrap();
        let busy = client.enqueue(fetch("Busy", 3)).await.unwrap();
        let other = client.enqueue(fetch("Other", 9)).await.unwrap();
        let gone = ended(db, gone.id).await;
        assert_eq!((gone.status, gone.attempt), (JobStatus::Discarded, 1));
        let busy = ended(db, busy.id).await;
        assert_eq!((busy.status, busy.attempt), (JobStatus::Discarded, 4));
        let stands = async || client.job(other.id).info().await.unwrap().unwrap();
        until(async || stands().await.status == JobStatus::Scheduled).await;
        let failed_at = client.job(other.id).attempts().await.unwrap()[0].ended_at;
        let wait = stands().await.run_at - failed_at;
        assert_eq!(wait.num_seconds(), 3_600, "its backoff");
        worker.stop().await;
    })
    .await;
}

#[tokio::test]
async fn after_is_no_way_around_the_number_of_attempts() {
    with_database(async |db| {
        let worker = worker::<Fetch>(db);
        let job = NewJob::new(&fetch("Busy", 100)).max_attempts(3);
        let job = client(db).enqueue(job).await.unwrap();
        let job = ended(db, job.id).await;
        assert_eq!((job.status, job.attempt), (JobStatus::Failed, 3));
        worker.stop().await;
    })
    .await;
}

/// Its own `on_error` would discard, but it says itself what is to come.
#[derive(Serialize, Deserialize, Job)]
#[job(max_attempts = 3)]
struct Sure;

impl Perform for Sure {
    type Input = ();
    type Output = ();

    async fn perform(self, (): (), cx: &Context) -> Result<(), JobError> {
        match cx.attempt() {
            1 => Err(JobError::from("in a moment").retry_after(Duration::from_millis(1))),
            _ => Ok(()),
        }
    }

    fn on_error(&self, _: &JobError, _: u16) -> OnError {
        OnError::Discard
    }
}

#[tokio::test]
async fn an_error_that_says_what_is_to_come_asks_nobody() {
    with_database(async |db| {
        let worker = worker::<Sure>(db);
        let job = client(db).enqueue(Sure).await.unwrap();
        let job = ended(db, job.id).await;
        assert_eq!((job.status, job.attempt), (JobStatus::Succeeded, 2));
        worker.stop().await;
    })
    .await;
}

#[tokio::test]
async fn retry_after_waits_as_long_as_it_says() {
    with_database(async |db| {
        let worker = worker::<Sure>(db);
        let client = client(db);
        let hour = Duration::from_secs(3_600);
        let job = client.enqueue(Do::new("a", What::RetryAfter(hour))).await;
        let job = job.unwrap().id;
        let stands = async || client.job(job).info().await.unwrap().unwrap();
        until(async || stands().await.status == JobStatus::Scheduled).await;
        let failed_at = client.job(job).attempts().await.unwrap()[0].ended_at;
        assert_eq!((stands().await.run_at - failed_at).num_seconds(), 3_600);
        db.move_clock(hour * 2).await;
        until(async || worker.log.lines() == ["a 1", "a 2"]).await;
        worker.stop().await;
    })
    .await;
}

/// Fails in the ways errors come about.
#[derive(Serialize, Deserialize, Job)]
#[job(max_attempts = 1)]
enum Break {
    Io,
    Text,
    Own,
    LongAndStrange,
}

impl Perform for Break {
    type Input = ();
    type Output = ();

    async fn perform(self, (): (), _: &Context) -> Result<(), JobError> {
        match self {
            Self::Io => Err(io::Error::other("disk on fire"))?,
            Self::Text => Err("just so")?,
            Self::Own => Err(JobError::new("Payment.Declined", "card 4242")),
            Self::LongAndStrange => Err(format!("\0{}", "ä".repeat(1 << 20)))?,
        }
    }
}

#[tokio::test]
async fn the_class_of_an_error_and_its_message_are_kept_apart() {
    with_database(async |db| {
        let worker = worker::<Break>(db);
        for (how, class, message) in [
            (Break::Io, "std::io::error::Error", "disk on fire"),
            (Break::Text, "Error", "just so"),
            (Break::Own, "Payment.Declined", "card 4242"),
        ] {
            let job = client(db).enqueue(how).await.unwrap().id;
            let ended = ended(db, job).await;
            assert_eq!(ended.error_class.as_deref(), Some(class));
            assert_eq!(ended.error_message.as_deref(), Some(message));
            let attempt = client(db).job(job).attempts().await.unwrap().remove(0);
            assert_eq!(attempt.error_class.as_deref(), Some(class));
            assert_eq!(attempt.error_message.as_deref(), Some(message));
        }
        let job = client(db).enqueue(Break::LongAndStrange).await.unwrap();
        let message = ended(db, job.id).await.error_message.unwrap();
        assert!(message.starts_with("\u{fffd}ä") && message.len() <= 8 << 10);
        worker.stop().await;
    })
    .await;
}

/// Writes down all that it can know.
#[derive(Serialize, Deserialize, Job)]
#[job(name = "curious", max_attempts = 4, timeout = "1h")]
struct Curious;

impl Perform for Curious {
    type Input = ();
    type Output = ();

    async fn perform(self, (): (), cx: &Context) -> Result<(), JobError> {
        let left = cx.time_left().ok_or("no timeout")?;
        let fits = left <= Duration::from_secs(3_600) && left > Duration::from_secs(3_000);
        cx.data::<Log>()?.write(format!(
            "job {} batch {:?} attempt {} of {} kind {} queue {} asked {} fits {fits} token {}",
            cx.id(),
            cx.batch().map(i64::from),
            cx.attempt(),
            cx.max_attempts(),
            cx.job_type(),
            cx.queue(),
            cx.is_cancelled(),
            cx.token() > 0,
        ));
        match cx.attempt() {
            1 => Err(JobError::from("again").retry_after(Duration::ZERO)),
            _ => Ok(()),
        }
    }
}

#[tokio::test]
async fn a_job_knows_who_it_is_and_how_often_it_was_tried() {
    with_database(async |db| {
        let batch = client(db).batch().open().await.unwrap();
        let job = batch.add([Curious]).await.unwrap()[0].id;
        let worker = worker::<Curious>(db);
        ended(db, job).await;
        let line = |attempt| {
            format!(
                "job {job} batch Some({}) attempt {attempt} of 4 kind curious queue default asked \
                 false fits true token true",
                batch.id()
            )
        };
        assert_eq!(worker.log.lines(), [line(1), line(2)]);
        worker.stop().await;
    })
    .await;
}

/// State that no worker here was given.
struct Mailer;

#[derive(Serialize, Deserialize, Job)]
#[job(max_attempts = 1)]
struct Send;

impl Perform for Send {
    type Input = ();
    type Output = ();

    async fn perform(self, (): (), cx: &Context) -> Result<(), JobError> {
        assert!(cx.time_left().is_none());
        cx.data::<Mailer>()?;
        Ok(())
    }
}

#[tokio::test]
async fn state_that_the_worker_was_not_given_is_named() {
    with_database(async |db| {
        let worker = worker::<Send>(db);
        let job = client(db).enqueue(Send).await.unwrap();
        let message = ended(db, job.id).await.error_message.unwrap();
        let of = std::any::type_name::<Mailer>();
        assert_eq!(
            message,
            format!("the worker holds no `{of}`: give it one with `Worker::data`")
        );
        worker.stop().await;
    })
    .await;
}

/// Returns so many characters, or one that cannot be stored.
#[derive(Serialize, Deserialize, Job)]
struct Print(usize);

impl Perform for Print {
    type Input = ();
    type Output = String;

    async fn perform(self, (): (), _: &Context) -> Result<String, JobError> {
        Ok(match self.0 {
            0 => "\0".to_owned(),
            count => "x".repeat(count),
        })
    }
}

#[tokio::test]
async fn an_output_that_cannot_be_stored_fails_the_job_and_says_why() {
    with_database(async |db| {
        let worker = worker::<Print>(db);
        let size = (1 << 20) - 2; // and two quotes
        let fits = client(db).enqueue(Print(size)).await.unwrap();
        assert_eq!(ended(db, fits.id).await.status, JobStatus::Succeeded);
        for (job, message) in [
            (
                Print(size + 1),
                "1048577 bytes of output for `print`, and 1048576 is the limit: \
                 store the data elsewhere and pass a reference to it",
            ),
            (
                Print(0),
                "the output of `print` cannot be stored: at `.` there is a NUL character, which \
                 Postgres cannot store: remove it, or encode it",
            ),
        ] {
            let job = client(db).enqueue(job).await.unwrap();
            let job = ended(db, job.id).await;
            assert_eq!((job.status, job.attempt), (JobStatus::Failed, 1));
            assert_eq!(job.error_class.as_deref(), Some("BadOutput"));
            assert_eq!(job.error_message.as_deref(), Some(message));
        }
        worker.stop().await;
    })
    .await;
}

#[derive(Serialize, Deserialize, Job)]
struct Whisper {
    secret: String,
}

impl Perform for Whisper {
    type Input = ();
    type Output = String;

    async fn perform(self, (): (), cx: &Context) -> Result<String, JobError> {
        tracing::info!("inside");
        match cx.attempt() {
            1 => Err(JobError::from("once more").retry_after(Duration::ZERO)),
            _ => Ok(self.secret),
        }
    }
}

/// On one thread: the test's own.
#[tokio::test]
async fn what_a_job_logs_carries_its_id_and_nothing_logs_its_data() {
    Captured::begin();
    with_database(async |db| {
        let worker = worker::<Whisper>(db);
        let secret = "swordfish".to_owned();
        let job = client(db).enqueue(Whisper { secret }).await.unwrap();
        ended(db, job.id).await;
        worker.stop().await;
        let log = Captured::text();
        for attempt in 1..=2 {
            let span = format!(
                "job{{job.id={} job.type=\"whisper\" queue=\"default\" attempt={attempt}}}",
                job.id
            );
            let inside = |line: &&str| line.contains(&span) && line.ends_with("inside");
            assert_eq!(log.lines().filter(inside).count(), 1, "{span} in\n{log}");
        }
        let secrets: Vec<&str> = log
            .lines()
            .filter(|line| line.contains("swordfish"))
            .collect();
        assert!(secrets.is_empty(), "{secrets:#?}");
    })
    .await;
}
