//! All stored JSON has one rule, checked before anything is written: what is accepted can be finished.

use jobs::extension::limits;
use parking_lot::Mutex;
use pipeline::jobs::{Context, Job, JobError, Perform};
use pipeline::{Define, Error, Pipeline, PipelineBuilder, RunEnded, RunStatus, StepStatus};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::sync::Arc;
use tests::with_database;

use super::start::{client, rows};
use super::support::{Running, act};

fn raw(json: &str) -> Box<RawValue> {
    RawValue::from_string(json.to_owned()).unwrap()
}

/// Hands on what others wrote, and returns it.
#[derive(Debug, Serialize, Deserialize, Job)]
#[job(max_attempts = 3, backoff = "fixed(1ms)")]
struct Forward {
    payload: Box<RawValue>,
}

impl Perform for Forward {
    type Input = ();
    type Output = Box<RawValue>;

    async fn perform(self, (): (), _: &Context) -> Result<Box<RawValue>, JobError> {
        Ok(self.payload)
    }
}

/// Returns this text, whatever it is.
#[derive(Debug, Serialize, Deserialize, Job)]
#[job(max_attempts = 3, backoff = "fixed(1ms)")]
struct Return(String);

impl Perform for Return {
    type Input = ();
    type Output = Box<RawValue>;

    async fn perform(self, (): (), _: &Context) -> Result<Box<RawValue>, JobError> {
        Ok(RawValue::from_string(self.0)?)
    }
}

/// A callback that keeps what it is given.
#[derive(Debug, Serialize, Deserialize, Job)]
#[job(max_attempts = 1)]
struct Keep {
    payload: Box<RawValue>,
}

#[derive(Debug, Clone, Default)]
struct Kept(Arc<Mutex<Vec<String>>>);

impl Perform for Keep {
    type Input = RunEnded;
    type Output = ();

    async fn perform(self, _: RunEnded, cx: &Context) -> Result<(), JobError> {
        cx.data::<Kept>()?
            .0
            .lock()
            .push(self.payload.get().to_owned());
        Ok(())
    }
}

fn nested(levels: usize) -> String {
    format!("{}{}", "[".repeat(levels), "]".repeat(levels))
}

/// JSON that serde takes and that breaks the rule, and what is said of it.
fn broken() -> Vec<(String, &'static str)> {
    vec![
        (r#""\ud83d""#.to_owned(), "one half of a surrogate pair"),
        (
            r#"["\ude00\ud83d"]"#.to_owned(),
            "one half of a surrogate pair",
        ),
        (r#"{"\udc00":1}"#.to_owned(), "one half of a surrogate pair"),
        (r#""a\u0000b""#.to_owned(), "a NUL character"),
        ("1e999999".to_owned(), "a number beyond ±1.8e308"),
        ("-1e400".to_owned(), "a number beyond ±1.8e308"),
        (
            "1e-20000".to_owned(),
            "more than 16383 digits after the decimal point",
        ),
        ("0e999999999999".to_owned(), "a number beyond ±1.8e308"),
        (nested(100), "more than 100 levels of arrays and objects"),
        (nested(5_000), "more than 100 levels of arrays and objects"),
    ]
}

/// JSON that looks odd and keeps the rule.
fn kept() -> Vec<String> {
    vec![
        r#""\ud83d\ude00 \\ud83d \\u0000 \/""#.to_owned(),
        r#"{"a":1,"a":2," ":[],"é\"":{}}"#.to_owned(),
        format!("[{},{}]", i128::MIN, i128::MAX),
        "[1e308,-1.7976931348623157E+308,1e-16383,0e-100,0E5,1.50]".to_owned(),
        nested(99),
    ]
}

#[tokio::test]
async fn what_keeps_the_rule_postgres_and_serde_can_read() {
    with_database(async |db| {
        for json in kept() {
            assert_eq!(limits::json(&json), Ok(()), "{json}");
            sqlx::query("select $1::text::jsonb")
                .bind(&json)
                .execute(db.pool())
                .await
                .unwrap();
            serde_json::from_str::<serde_json::Value>(&json).unwrap();
        }
        for (json, _) in broken() {
            limits::json(&format!("[{json}]")).unwrap_err();
        }
    })
    .await;
}

#[tokio::test]
async fn json_that_breaks_the_rule_is_refused_at_the_start() {
    with_database(async |db| {
        let client = client(db);
        for (json, said) in broken() {
            let payload = || raw(&json);
            let step = Pipeline::configure("step", |p| {
                p.step("a", act("x"));
                p.step("b", Forward { payload: payload() });
            });
            let error = client.start(step.unwrap()).await.unwrap_err();
            let begin = "the params of `b` cannot be stored: at `payload";
            let text = error.to_string();
            assert!(text.starts_with(begin) && text.contains(said), "{text}");
            assert!(matches!(error, Error::NotStorable { .. }));

            let callback = Pipeline::configure("callback", |p| {
                p.on_complete(Keep { payload: payload() });
                p.step("a", act("x"))
            });
            let mut tx = db.pool().begin().await.unwrap();
            let error = client
                .start_in(&mut tx, callback.unwrap())
                .await
                .unwrap_err();
            tx.commit().await.unwrap();
            let begin = "the callback's params of `callback` cannot be stored: at `payload";
            let text = error.to_string();
            assert!(text.starts_with(begin) && text.contains(said), "{text}");

            let error = client
                .enqueue(Forward { payload: payload() })
                .await
                .unwrap_err();
            let begin = "the arguments of `forward` cannot be stored: at `payload";
            let text = error.to_string();
            assert!(text.starts_with(begin) && text.contains(said), "{text}");
            assert_eq!(rows(db).await, 0);
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn json_that_keeps_the_rule_comes_through_as_it_was_given() {
    with_database(async |db| {
        let heard = Kept::default();
        let it = Running::start_with(db, |worker| {
            worker.register::<(Forward, Keep)>().data(heard.clone())
        });
        for json in kept() {
            let pipeline = Pipeline::configure("odd", |p| {
                p.on_success(Keep {
                    payload: raw(&json),
                });
                p.step(
                    "a",
                    Forward {
                        payload: raw(&json),
                    },
                )
            });
            let run = it.client.start(pipeline.unwrap()).await.unwrap();
            assert_eq!(run.wait().await.unwrap(), RunStatus::Succeeded, "{json}");
            let output: String =
                sqlx::query_scalar("select output::text from pipeline.steps where run = $1")
                    .bind(run.id())
                    .fetch_one(db.pool())
                    .await
                    .unwrap();
            assert_eq!(output, json);
            super::support::eventually("the callback ran", async || {
                heard.0.lock().pop().map(|kept| assert_eq!(kept, json))
            })
            .await;
        }
        it.stop().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_output_that_breaks_the_rule_ends_the_attempt() {
    with_database(async |db| {
        let it = Running::start_with(db, |worker| worker.register::<Return>());
        for (json, said) in broken() {
            let json = format!("[{json}]");
            let pipeline = Pipeline::configure("out", |p| p.step("a", Return(json)));
            let run = it.client.start(pipeline.unwrap()).await.unwrap();
            assert_eq!(run.wait().await.unwrap(), RunStatus::Halted);
            let state = run.state().await.unwrap();
            let step = &state.steps[0];
            assert_eq!(step.attempt, 1);
            let error = format!("{step:?}");
            assert!(
                error.contains("BadOutput") && error.contains(said),
                "{error}"
            );
        }
        it.stop().await;
    })
    .await;
}

/// The safety net: another version of the client may not know the rule.
#[tokio::test]
async fn the_server_refuses_callbacks_that_it_could_not_enqueue() {
    with_database(async |db| {
        let client = client(db);
        let fine = Pipeline::configure("fine", |p| {
            p.on_complete(Keep { payload: raw("1") });
            p.step("a", act("x"))
        });
        client.start(fine.unwrap()).await.unwrap();
        let start = sqlx::query(
            r#"select * from pipeline.graphs g cross join lateral pipeline.start_runs_v1(
                   g.id, g.fingerprint, false,
                   array[(1000, 1, null, 'steps', null, null, null, null, '[{"payload":"\ud83d"}]', null)
                         ::pipeline.new_run],
                   array[(1000, null, 0, 0, '"x"')::pipeline.new_step], null, null)"#,
        );
        let error = start.execute(db.pool()).await.unwrap_err();
        let code = error.as_database_error().and_then(|error| error.code());
        assert_eq!(code.as_deref(), Some("22P02"), "{error}");
    })
    .await;
}

#[tokio::test]
async fn callbacks_are_bounded_together() {
    with_database(async |db| {
        let payload = || raw(&format!("\"{}\"", "x".repeat(600_000)));
        let pipeline = Pipeline::configure("loud", |p| {
            p.on_complete(Keep { payload: payload() });
            p.on_failure(Keep { payload: payload() });
            p.step("a", act("x"))
        });
        let error = client(db).start(pipeline.unwrap()).await.unwrap_err();
        let said = "1200028 bytes of callbacks' params together for `loud`, and";
        assert!(error.to_string().starts_with(said), "{error}");
    })
    .await;
}

#[tokio::test]
async fn a_key_tells_params_apart_that_a_64_bit_number_would_not() {
    with_database(async |db| {
        let client = client(db);
        let with = |json: &str| {
            let payload = raw(json);
            Pipeline::configure("wide", |p| p.step("a", Forward { payload })).unwrap()
        };
        let deep = |inner: &str| format!("{}{inner}{}", "[".repeat(99), "]".repeat(99));
        for (no, (one, other)) in [
            (
                "340282366920938463463374607431768211455",
                "340282366920938463463374607431768211454",
            ),
            (&deep("1"), &deep("2")),
        ]
        .into_iter()
        .enumerate()
        {
            let key = format!("k{no}");
            let run = client.start(with(one)).key(&key).await.unwrap();
            let same = client
                .start(with(&format!(" {one} ")))
                .key(&key)
                .await
                .unwrap();
            assert_eq!((same.id(), same.is_new()), (run.id(), false));
            let error = client.start(with(other)).key(&key).await.unwrap_err();
            assert!(matches!(error, Error::KeyConflict { .. }), "{error}");
        }
    })
    .await;
}

/// Returns floats, of which one is NaN.
#[derive(Debug, Serialize, Deserialize, Job)]
#[job(max_attempts = 3, backoff = "fixed(1ms)")]
struct Measure;

#[derive(Debug, Serialize, Deserialize)]
struct Measured {
    values: Vec<Option<f64>>,
}

impl Perform for Measure {
    type Input = ();
    type Output = Measured;

    async fn perform(self, (): (), _: &Context) -> Result<Measured, JobError> {
        let values = vec![Some(1.0), None, Some(f64::NAN)];
        Ok(Measured { values })
    }
}

/// Takes what `Measure` returns.
#[derive(Debug, Serialize, Deserialize, Job)]
struct Evaluate;

impl Perform for Evaluate {
    type Input = Measured;
    type Output = ();

    async fn perform(self, _: Measured, _: &Context) -> Result<(), JobError> {
        Ok(())
    }
}

/// A named pipeline, whose jobs a worker registers with it.
#[derive(Debug, Serialize, Deserialize, Pipeline)]
struct Survey {}

impl Define for Survey {
    type Jobs = (Measure, Evaluate);
    type Output = ();

    fn define(&self, p: &PipelineBuilder) {
        p.step("measure", Measure).then("evaluate", Evaluate);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_that_returns_nan_fails_itself_and_the_message_has_the_path() {
    with_database(async |db| {
        let it = Running::start_with(db, |worker| worker.register::<(Return, Survey)>());
        let run = it.client.start(Survey {}).await.unwrap();
        assert_eq!(run.wait().await.unwrap(), RunStatus::Halted);
        let state = run.state().await.unwrap();
        let measure = format!("{:?}", state.steps[0]);
        for part in ["BadOutput", "NaN or infinite", "`values[2]`"] {
            assert!(measure.contains(part), "{part}: {measure}");
        }
        assert_eq!(state.steps[1].status, StepStatus::Skipped);
        it.stop().await;
    })
    .await;
}
