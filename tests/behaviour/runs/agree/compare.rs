//! The comparison of Postgres's rows with the model.

use std::collections::BTreeMap;

use ::jobs::extension::{Claimed, Input as Real, InputValue};
use pipeline::graph::spec::{Join, StepKind, Strategy, Takes};
use serde_json::{Value as Json, json};
use tests::Database;
use tests::model::input::Input;
use tests::model::{Effect, RunId, StepStatus, Value, Why};

use super::case::Kept;
use super::game::Game;
use super::table::string;

#[derive(Debug, sqlx::FromRow)]
struct RunRow {
    status: String,
    halt_triggered: bool,
    live_steps: i32,
    events: Vec<String>,
}

#[derive(Debug, sqlx::FromRow)]
struct StepRow {
    run: i64,
    no: i32,
    status: String,
    arm: Option<i32>,
    reason: Option<String>,
    cause: Option<i32>,
    output: Option<Json>,
    error_class: Option<String>,
    error_message: Option<String>,
    token: Option<i64>,
    attempt: i16,
    job: Option<String>,
    job_token: Option<i64>,
}

const RUNS: &str = "
    select r.status::text, r.halt_triggered, r.live_steps,
           array(select coalesce(e.step || ' ', '') || e.status from pipeline.events e
                 where e.run = r.id order by e.no) as events
    from unnest($1::bigint[]) with ordinality as one (id, ord)
    join pipeline.runs r on r.id = one.id
    order by one.ord";
const STEPS: &str = "
    select s.run, s.no, s.status::text, s.arm, s.reason::text, s.cause, s.output, s.error_class,
           s.error_message, s.token, s.attempt, j.status::text as job, j.token as job_token
    from pipeline.steps s
    left join pipeline.jobs j on j.id = pipeline.step_id(s.run, s.no)
    where s.run = any ($1)";

impl Game<'_> {
    /// Every row is as the model says.
    pub(super) async fn compare(&self, db: &Database) -> Result<(), String> {
        let runs: Vec<RunRow> = sqlx::query_as(RUNS)
            .bind(&self.ids)
            .fetch_all(db.pool())
            .await
            .map_err(string)?;
        let steps: Vec<StepRow> = sqlx::query_as(STEPS)
            .bind(&self.ids)
            .fetch_all(db.pool())
            .await
            .map_err(string)?;
        for (run, row) in runs.iter().enumerate() {
            self.run(run, row)
                .map_err(|why| format!("run {run}: {why}\n{row:?}\n{}", self.steps_of(run)))?;
        }
        let expected = self.ids.len() * self.graph.len();
        same("the number of steps", steps.len(), expected)?;
        for row in steps {
            let run = self.ids.iter().position(|id| *id == row.run);
            let run = run.ok_or("a step of no run")?;
            self.step(run, &row).map_err(|why| {
                let key = self.key(row.no);
                format!(
                    "step {key} of run {run}: {why}\n{row:?}\n{}",
                    self.steps_of(run)
                )
            })?;
        }
        Ok(())
    }

    /// What the model says of each step, for a report.
    fn steps_of(&self, run: usize) -> String {
        let here = self.model.run(RunId(run));
        let steps = here.graph.nodes.iter().zip(&here.steps);
        let lines = steps.map(|(node, step)| {
            let no = self.graph.find(&node.key).map_or(0, |node| node.no());
            let why = step.why.as_ref().map(|why| format!(" {why:?}"));
            format!(
                "{no} {} {}{}",
                node.key,
                step.status,
                why.unwrap_or_default()
            )
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    fn key(&self, no: i32) -> &str {
        let node = u32::try_from(no).ok().and_then(|no| self.graph.node(no));
        node.map_or("?", |node| node.key())
    }

    fn run(&self, run: usize, row: &RunRow) -> Result<(), String> {
        let here = self.model.run(RunId(run));
        same("status", &row.status, &here.status.to_string())?;
        same("halt_triggered", row.halt_triggered, here.halt_triggered)?;
        let live = here.steps.iter().filter(|step| !step.status.ended());
        same(
            "live steps",
            usize::try_from(row.live_steps).ok(),
            Some(live.count()),
        )?;
        self.events(run, &row.events)
    }

    /// Every end once, and in an order that tells the truth.
    fn events(&self, run: usize, events: &[String]) -> Result<(), String> {
        let kept = self.case.runs[run].1;
        let mut expected: BTreeMap<String, usize> = BTreeMap::new();
        let mut note = |text: String| *expected.entry(text).or_default() += 1;
        let number = |key: &str| self.graph.find(key).map_or(0, |node| node.no());
        for effect in &self.effects {
            match effect {
                Effect::Run {
                    run: of, status, ..
                } if of.0 == run && kept >= Kept::Runs => {
                    note(status.to_string());
                }
                Effect::Ended {
                    run: of,
                    step,
                    status,
                    ..
                } if of.0 == run && kept >= Kept::Steps => {
                    note(format!("{} {status}", number(step)));
                }
                // What a run begins with is enqueued with it.
                Effect::Released { run: of, step } if of.0 == run && kept == Kept::All => {
                    let root = self.graph.find(step).is_some_and(|node| node.waits() == 0);
                    if !root {
                        note(format!("{} enqueued", number(step)));
                    }
                }
                _ => {}
            }
        }
        let mut found: BTreeMap<String, usize> = BTreeMap::new();
        for event in events {
            *found.entry(event.clone()).or_default() += 1;
        }
        same("events", &found, &expected)?;
        let position = |event: &str| events.iter().position(|other| other == event);
        if kept >= Kept::Runs {
            same("the first event", position("running"), Some(0))?;
            let over = self.model.status(RunId(run));
            if over.ended() {
                let last = events.len().checked_sub(1);
                same("the last event", position(&over.to_string()), last)?;
            }
        }
        Ok(())
    }

    fn step(&self, run: usize, row: &StepRow) -> Result<(), String> {
        let no = u32::try_from(row.no).map_err(string)?;
        let at = self.at_model(no);
        let here = self.model.run(RunId(run));
        let step = &here.steps[at];
        let kind = here.graph.kind(at);
        same("status", &row.status, &step.status.to_string())?;
        let arm = match (&step.value, kind) {
            (Some(Value::Arm(arm)), StepKind::Branch { arms, .. }) => {
                arms.iter().position(|other| other == arm)
            }
            _ => None,
        };
        same(
            "arm",
            row.arm.and_then(|arm| usize::try_from(arm).ok()),
            arm,
        )?;
        same("output", &row.output, &step.value.as_ref().map(as_json))?;
        let token = step.ended_by.map(|token| self.tokens[&(run, no, token)]);
        same("token", row.token, token)?;
        if let Some(token) = step.ended_by {
            same("attempt", i64::from(row.attempt), i64::from(token.0))?;
        }
        self.reason(run, at, row)?;
        let job = match step.status {
            StepStatus::Enqueued if step.taken => Some("running"),
            StepStatus::Enqueued => Some("ready"),
            _ => None,
        };
        same("job", row.job.as_deref(), job)?;
        let token = step.taken.then(|| self.tokens[&(run, no, step.token)]);
        same("the job's token", row.job_token, token)
    }

    /// Why it is so. Of several reasons that hold at once the model names one and Postgres may name
    /// another: upstreams that break an edge, branches around a step that chose otherwise, a failure
    /// that did not happen.
    fn reason(&self, run: usize, at: usize, row: &StepRow) -> Result<(), String> {
        let here = self.model.run(RunId(run));
        let step = &here.steps[at];
        let cause = row.cause.map(|cause| self.key(cause));
        let reason = row.reason.as_deref();
        let exactly = |wanted: &str, key: Option<&str>| {
            same("reason", reason, Some(wanted))?;
            same("cause", cause, key)
        };
        match &step.why {
            Some(Why::Broken(_)) => {
                same("reason", reason, Some("broken"))?;
                let breaks = |from: usize| match here.steps[from].status {
                    StepStatus::Skipped => true,
                    StepStatus::Failed => here.graph.nodes[from].strategy != Strategy::Ignore,
                    _ => false,
                };
                same(
                    "the cause breaks an edge",
                    self.is_upstream(run, at, cause, breaks),
                    true,
                )
            }
            Some(Why::NotChosen(_) | Why::NoFailure(_)) => match reason {
                Some("not_chosen") => same(
                    "the cause chose otherwise",
                    self.chose_otherwise(run, at, cause),
                    true,
                ),
                Some("no_failure") => {
                    let kept = |from: usize| here.steps[from].status != StepStatus::Failed;
                    same(
                        "the cause did not fail",
                        self.is_upstream(run, at, cause, kept),
                        true,
                    )
                }
                other => Err(format!("the reason is {other:?}, for {:?}", step.why)),
            },
            Some(Why::NoneSucceeded) => exactly("none_succeeded", None),
            Some(Why::NoneTaken) => exactly("none_taken", None),
            Some(Why::HaltedBy(key)) => exactly("halted_by", Some(key)),
            Some(Why::EndedBy(key)) => exactly("ended_by", Some(key)),
            Some(Why::NotAnArm(arms)) => {
                same("class", row.error_class.as_deref(), Some("NotAnArm"))?;
                let message = row.error_message.as_deref().unwrap_or_default();
                let named = arms.iter().all(|arm| message.contains(arm.as_str()));
                same("the message names the arms", named, true)
            }
            Some(why) => Err(format!("{why:?} is not for such graphs")),
            None if here.graph.join(at) == Join::Any && step.status != StepStatus::Pending => {
                let first = step.first.map(|first| &*here.graph.nodes[first].key);
                exactly("first", first)
            }
            None => same("reason", reason, None),
        }
    }

    fn is_upstream(
        &self,
        run: usize,
        at: usize,
        cause: Option<&str>,
        is_so: impl Fn(usize) -> bool,
    ) -> bool {
        let graph = &self.model.run(RunId(run)).graph;
        let cause = cause.and_then(|key| graph.number(key));
        let mut links = graph.nodes[at].links.iter();
        links.any(|link| Some(link.from) == cause && is_so(link.from))
    }

    fn chose_otherwise(&self, run: usize, at: usize, cause: Option<&str>) -> bool {
        let here = self.model.run(RunId(run));
        let cause = cause.and_then(|key| here.graph.number(key));
        let mut arms = here.graph.nodes[at].arms.iter();
        arms.any(|(branch, arm)| {
            let decided = &here.steps[*branch];
            let otherwise = match decided.status {
                StepStatus::Succeeded => decided.value != Some(Value::Arm(arm.clone())),
                status => status == StepStatus::SkippedByBranch,
            };
            otherwise && Some(*branch) == cause
        })
    }

    /// What a claimed step is given.
    pub(super) fn given(&self, run: RunId, key: &str, job: &Claimed) -> Result<(), String> {
        let context = |why: String| format!("{key} of {run}: {why}");
        same("params", &job.args, &format!("\"{key}\"")).map_err(context)?;
        let node = self.graph.find(key).ok_or("no such step")?;
        let takes = node.upstream().iter();
        let takes = takes.filter(|up| up.takes.is_input());
        let takes: Vec<(Takes, &str)> = takes
            .map(|up| (up.takes, self.graph.node(up.no).map_or("?", |up| up.key())))
            .collect();
        let wanted: Vec<InputValue> = self
            .model
            .input(run, key)
            .into_iter()
            .zip(&takes)
            .map(|(input, (takes, from))| element(input, *takes, from))
            .collect();
        let found = match &job.input {
            Real::None => Vec::new(),
            Real::Value(InputValue::Many(elements)) => elements.iter().map(without_words).collect(),
            Real::Value(element) => vec![without_words(element)],
            other => return Err(context(format!("it is given {other:?}"))),
        };
        same("input", found, wanted).map_err(context)
    }
}

fn element(input: Input, takes: Takes, from: &str) -> InputValue {
    let value = match (input, takes) {
        (Input::Absent, _) => return InputValue::Absent,
        (Input::Value(value), Takes::Maybe) => {
            return InputValue::Present(as_json(&value).to_string());
        }
        (Input::Value(value), Takes::Outcome) => json!({ "Ok": as_json(&value) }),
        (Input::Value(value), _) => as_json(&value),
        (Input::Failure, Takes::Outcome) => json!({ "Err": { "step": from } }),
        (Input::Failure, _) => json!({ "step": from }),
    };
    InputValue::Value(value.to_string())
}

/// A failure without what is said of it: the model knows no words.
fn without_words(given: &InputValue) -> InputValue {
    let InputValue::Value(text) = given else {
        return given.clone();
    };
    let mut value: Json = serde_json::from_str(text).unwrap_or(Json::Null);
    for failure in ["", "/Err"] {
        if let Some(Json::Object(failure)) = value.pointer_mut(failure) {
            failure.remove("class");
            failure.remove("message");
        }
    }
    InputValue::Value(value.to_string())
}

fn as_json(value: &Value) -> Json {
    match value {
        Value::Of(number) => json!(number),
        Value::Arm(arm) => json!(arm),
        Value::TimedOut => Json::Null,
    }
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: T, wanted: T) -> Result<(), String> {
    if found == wanted {
        return Ok(());
    }
    Err(format!(
        "{what}: Postgres has {found:?}, the model {wanted:?}"
    ))
}
