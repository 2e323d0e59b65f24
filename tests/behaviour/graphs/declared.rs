//! The graph that a declaration builds.

use std::time::Duration;

use jobs::{Backoff, Context, Job, JobError, Perform};
use pipeline::graph::spec::{
    CallbackOn, Edge, GraphSpec, Join, Shape, StepKind, StepSpec, Strategy, Takes,
};
use pipeline::{
    Branch, Continue, Define, Failure, Halt, Ignore, Invalid, Named, Pipeline, PipelineBuilder,
    RunEnded, Step,
};
use serde::{Deserialize, Serialize};

macro_rules! jobs {
    ($($name:ident: $input:ty => $output:ty;)*) => {
        $(#[derive(Debug, Clone, Serialize, Deserialize, Job)]
        struct $name;

        impl Perform for $name {
            type Input = $input;
            type Output = $output;
            async fn perform(self, _: $input, _: &Context) -> Result<$output, JobError> {
                Err("never run".into())
            }
        })*
    };
}

jobs! {
    Make: () => i64;
    Add: i64 => i64;
    Both: (i64, i64) => i64;
    Either: (i64, Option<i64>) => i64;
    Judge: (i64, Result<i64, Failure>) => i64;
    JudgeAgain: (Option<i64>, Result<i64, Failure>) => i64;
    OrElse: Option<i64> => i64;
    Mend: Failure => i64;
    Tell: RunEnded => ();
    Decide: i64 => Way;
    Alone: (i64,) => i64;
    Sum: Vec<i64> => i64;
    Rest: (i64, Vec<i64>) => i64;
    Pair: ((i64, i64), Option<i64>) => i64;
    DecideAll: Vec<i64> => Way;
}

/// Params, so that they can be looked for.
#[derive(Debug, Serialize, Deserialize, Job)]
#[job(
    queue = "media",
    priority = 3,
    max_attempts = 7,
    backoff = "fixed(5s)",
    timeout = "1m"
)]
struct Load {
    secret: String,
}

impl Perform for Load {
    type Input = ();
    type Output = i64;
    async fn perform(self, (): (), _: &Context) -> Result<i64, JobError> {
        Ok(1)
    }
}

#[derive(Debug, Serialize, Deserialize, Branch)]
enum Way {
    Left,
    Right,
}

fn spec<O>(declared: &Result<Pipeline<O>, Invalid>) -> &GraphSpec {
    match declared {
        Ok(pipeline) => pipeline.graph().spec(),
        Err(invalid) => panic!("{invalid}"),
    }
}

fn step<'a>(spec: &'a GraphSpec, key: &str) -> &'a StepSpec {
    spec.steps.iter().find(|step| step.key == key).unwrap()
}

fn keys(spec: &GraphSpec) -> Vec<&str> {
    spec.steps.iter().map(|step| step.key.as_str()).collect()
}

/// `key` for a value, `key?` for one that may be absent, `key!` for an outcome, `key~` for a
/// failure, `(key)` for order alone, `(key.)` for order and any end.
fn after(spec: &GraphSpec, key: &str) -> Vec<String> {
    let show = |edge: &Edge| match edge.takes {
        Takes::Value => edge.step.clone(),
        Takes::Maybe => format!("{}?", edge.step),
        Takes::Outcome => format!("{}!", edge.step),
        Takes::Failure => format!("{}~", edge.step),
        Takes::Order => format!("({})", edge.step),
        Takes::Ended => format!("({}.)", edge.step),
    };
    step(spec, key).after.iter().map(show).collect()
}

fn problems<O>(declared: Result<Pipeline<O>, Invalid>) -> Vec<String> {
    match declared {
        Ok(pipeline) => panic!("{pipeline:?} was taken"),
        Err(invalid) => invalid.problems().iter().map(ToString::to_string).collect(),
    }
}

/// Scenarios: U001
#[test]
fn a_barrier_gathers_its_phase_and_gates_the_next() {
    let declared = Pipeline::configure("u001", |p| {
        let a = p.step("a", Make);
        a.then("b", Add);
        a.then("c", Add);
        p.barrier();
        p.step("d", Make).then("e", Add);
    });
    let spec = spec(&declared);
    assert_eq!(keys(spec), ["a", "b", "c", "barrier:1", "d", "e"]);
    assert_eq!(after(spec, "barrier:1"), ["(a)", "(b)", "(c)"]);
    assert_eq!(after(spec, "d"), ["(barrier:1)"]);
    assert_eq!(after(spec, "e"), ["d"]);
}

/// Scenarios: U002
#[test]
fn a_second_barrier_gathers_only_its_own_phase() {
    let declared = Pipeline::configure("u002", |p| {
        p.step("a", Make);
        p.barrier();
        p.step("b", Make);
        p.step("c", Make);
        p.barrier();
        p.step("d", Make);
    });
    let spec = spec(&declared);
    assert_eq!(after(spec, "barrier:2"), ["(b)", "(c)"]);
    assert_eq!(after(spec, "d"), ["(barrier:2)"]);
}

/// Scenarios: U003
#[test]
fn a_step_keeps_its_earlier_upstream_beside_the_barrier() {
    let declared = Pipeline::configure("u003", |p| {
        let a = p.step("a", Make);
        p.barrier();
        a.then("b", Add);
    });
    assert_eq!(after(spec(&declared), "b"), ["a", "(barrier:1)"]);
}

/// Scenarios: U006
#[test]
fn a_barrier_first_last_or_twice_is_refused() {
    let first = problems(Pipeline::configure("first", |p| {
        p.barrier();
        p.step("a", Make);
    }));
    let last = problems(Pipeline::configure("last", |p| {
        p.step("a", Make);
        p.barrier();
    }));
    let twice = problems(Pipeline::configure("twice", |p| {
        p.step("a", Make);
        p.barrier();
        p.barrier();
        p.step("b", Make);
    }));
    assert!(first.len() == 1 && last.len() == 1 && twice.len() == 1);
    assert!(
        first != last && last != twice && first != twice,
        "{first:?} {last:?} {twice:?}"
    );
}

/// Scenarios: U008
#[test]
fn a_barrier_inside_an_arm_is_refused() {
    let found = problems(Pipeline::configure("u008", |p| {
        let a = p.step("a", Make);
        a.branch(
            "decide",
            Decide,
            WayArms {
                left: || {
                    a.then("b", Add);
                    p.barrier();
                    a.then("c", Add);
                },
                right: || {},
            },
        );
    }));
    assert!(
        found.iter().any(|problem| problem.contains("barrier:1")),
        "{found:?}"
    );
}

/// Scenarios: U010
#[test]
fn a_barrier_after_a_branch_waits_for_every_arm() {
    let declared = Pipeline::configure("u010", |p| {
        let a = p.step("a", Make);
        a.branch(
            "decide",
            Decide,
            WayArms {
                left: || a.then("b", Add),
                right: || a.then("c", Add),
            },
        );
        p.barrier();
        p.step("d", Make);
    });
    let found = after(spec(&declared), "barrier:1");
    for key in ["(b)", "(c)", "(decide)", "(merge:decide)"] {
        assert!(found.iter().any(|edge| edge == key), "{key} in {found:?}");
    }
}

/// Scenarios: U013
#[test]
fn after_a_barrier_only_the_deciding_step_is_gated() {
    let declared = Pipeline::configure("u013", |p| {
        let a = p.step("a", Make);
        p.barrier();
        a.branch(
            "decide",
            Decide,
            WayArms {
                left: || a.then("b", Add),
                right: || {},
            },
        );
    });
    let spec = spec(&declared);
    assert_eq!(after(spec, "decide"), ["a", "(barrier:1)"]);
    assert_eq!(
        after(spec, "b"),
        ["a", "(decide)"],
        "its branch holds it back"
    );
}

/// Scenarios: U029, U030
#[test]
fn settings_have_defaults_and_can_be_set() {
    let plain = Pipeline::configure("plain", |p| {
        p.step("a", Make);
    });
    let plain = spec(&plain);
    assert_eq!(plain.strategy, Strategy::Halt);
    assert!(plain.description.is_none() && plain.callbacks.is_empty() && plain.tags.is_empty());

    let full = Pipeline::configure("full", |p| {
        p.failure_strategy(Continue);
        p.display_name("Everything");
        p.description("all that can be said");
        p.tag("video");
        p.deadline(Duration::from_secs(60));
        p.step("a", Make);
        p.on_complete(Tell);
        p.on_success(Tell);
        p.on_failure(Make);
    });
    let full = spec(&full);
    assert_eq!(full.strategy, Strategy::Continue);
    assert_eq!(full.display_name.as_deref(), Some("Everything"));
    assert_eq!(full.description.as_deref(), Some("all that can be said"));
    assert_eq!(
        (full.tags.as_slice(), full.deadline_ms),
        (&["video".to_owned()][..], Some(60_000))
    );
    let callbacks: Vec<_> = full
        .callbacks
        .iter()
        .map(|one| (one.on, one.job.as_str()))
        .collect();
    let expected = [
        CallbackOn::Complete,
        CallbackOn::Success,
        CallbackOn::Failure,
    ];
    assert_eq!(
        callbacks,
        expected
            .into_iter()
            .zip(["tell", "tell", "make"])
            .collect::<Vec<_>>()
    );
}

/// Scenarios: U034
#[test]
fn steps_are_recorded_in_order_with_all_their_options_and_never_their_params() {
    let declared = Pipeline::configure("u034", |p| {
        let secret = "hunter2".to_owned();
        let a = p
            .step("a", Load { secret })
            .queue("other")
            .priority(9)
            .max_attempts(2)
            .timeout(Duration::from_secs(9))
            .lease(Duration::from_secs(8))
            .backoff(Backoff::fixed(Duration::from_secs(1)))
            .delay(Duration::from_secs(4));
        a.then("b", Add);
    });
    let spec = spec(&declared);
    assert_eq!(keys(spec), ["a", "b"]);
    let options = step(spec, "a").options.as_ref().unwrap();
    assert_eq!(
        (
            options.queue.as_str(),
            options.priority,
            options.max_attempts
        ),
        ("other", 9, 2)
    );
    assert_eq!(
        (options.timeout_ms, options.lease_ms, options.delay_ms),
        (Some(9_000), 8_000, 4_000)
    );
    assert_eq!(options.backoff, Backoff::fixed(Duration::from_secs(1)));
    let of_type = Pipeline::configure("type", |p| {
        p.step(
            "a",
            Load {
                secret: String::new(),
            },
        );
    });
    let options = step(self::spec(&of_type), "a").options.clone().unwrap();
    assert_eq!(
        (
            options.queue.as_str(),
            options.priority,
            options.max_attempts
        ),
        ("media", 3, 7)
    );
    assert_eq!(options.timeout_ms, Some(60_000));

    let pipeline = declared.as_ref().unwrap();
    assert!(!serde_json::to_string(spec).unwrap().contains("hunter2"));
    assert!(!format!("{pipeline:?}").contains("hunter2"));
    assert_eq!(
        pipeline.params()[0].as_deref(),
        Some(r#"{"secret":"hunter2"}"#)
    );
}

/// Scenarios: U035
#[test]
fn every_mistake_of_a_declaration_is_told_at_once() {
    let found = problems(Pipeline::configure("not a name", |p| {
        p.step("twice", Make);
        p.step("twice", Make);
        p.step("bad key", Make);
    }));
    for part in ["not a name", "twice", "bad key"] {
        assert!(
            found.iter().any(|problem| problem.contains(part)),
            "{part}: {found:?}"
        );
    }
    let empty = problems(Pipeline::configure("empty", |_| {}));
    assert!(empty[0].contains("no steps"), "{empty:?}");
}

/// Scenarios: U040
#[test]
fn the_video_pipeline_of_the_readme() {
    let declared = Pipeline::configure("video", |p| {
        let source = p.step("download", Make);
        let encoded = source.then("transcode", Add);
        let thumbnail = source.then("thumbnail", Add).optional();
        let published = p.after((&encoded, &thumbnail)).step("publish", Either);
        p.following(&published).step("cleanup", Make);
        published
    });
    let spec = spec(&declared);
    assert_eq!(
        keys(spec),
        ["download", "transcode", "thumbnail", "publish", "cleanup"]
    );
    assert_eq!(after(spec, "publish"), ["transcode", "thumbnail?"]);
    assert_eq!(after(spec, "cleanup"), ["(publish)"]);
    assert_eq!(spec.output, ["publish"]);
    assert!(step(spec, "thumbnail").optional);
}

/// Scenarios: U042, U043
#[test]
fn branches_have_arms_come_together_and_follow_one_another() {
    let declared = Pipeline::configure("u042", |p| {
        let a = p.step("a", Make);
        let first = a.branch(
            "one",
            Decide,
            WayArms {
                left: || {
                    let b = a.then("b", Add);
                    b.then("c", Add)
                },
                right: || a.then("d", Add),
            },
        );
        let second = first.branch(
            "two",
            Decide,
            WayArms {
                left: || {},
                right: || {},
            },
        );
        p.following(&second).step("e", Make);
        // An arm inside an arm.
        first.branch(
            "outer",
            Decide,
            WayArms {
                left: || {
                    first.branch(
                        "inner",
                        Decide,
                        WayArms {
                            left: || first.then("f", Add),
                            right: || {},
                        },
                    );
                },
                right: || {},
            },
        );
    });
    let spec = spec(&declared);
    let arms = |key: &str| match &step(spec, key).kind {
        StepKind::Branch { arms, .. } => arms.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(arms("one"), ["Left", "Right"]);
    assert_eq!(after(spec, "b"), ["a", "(one)"]);
    assert_eq!(after(spec, "c"), ["b"]);
    assert_eq!(after(spec, "merge:one"), ["(one)", "(b)", "c?", "d?"]);
    assert_eq!(
        after(spec, "two"),
        ["merge:one"],
        "the second comes after the first's end alone"
    );
    assert_eq!(after(spec, "merge:two"), ["(two)"], "all arms are empty");
    assert_eq!(after(spec, "e"), ["(merge:two)"]);
    let arm = |key: &str| step(spec, key).arm.clone().map(|arm| (arm.branch, arm.arm));
    assert_eq!(arm("b"), Some(("one".into(), "Left".into())));
    assert_eq!(arm("f"), Some(("inner".into(), "Left".into())));
    assert_eq!(arm("inner"), Some(("outer".into(), "Left".into())));
    assert_eq!(arm("e"), None);
}

/// Scenarios: U044, U050
#[test]
fn a_step_has_its_own_strategy_or_none() {
    let declared = Pipeline::configure("u044", |p| {
        let none = p.step("none", Make);
        none.then("halt", Add).failure_strategy(Halt);
        none.then("continue", Add).failure_strategy(Continue);
        let ignored = none.then("ignore", Add).failure_strategy(Ignore);
        p.after((&none, &ignored)).step("maybe", Either);
        p.after((&none, &ignored)).step("outcome", Judge);
        p.after_failure(&ignored).step("mend", Mend);
    });
    let spec = spec(&declared);
    let own = ["none", "halt", "continue", "ignore"].map(|key| step(spec, key).strategy);
    let expected = [
        None,
        Some(Strategy::Halt),
        Some(Strategy::Continue),
        Some(Strategy::Ignore),
    ];
    assert_eq!(own, expected);
    assert_eq!(after(spec, "maybe"), ["none", "ignore?"]);
    assert_eq!(after(spec, "outcome"), ["none", "ignore!"]);
    assert_eq!(after(spec, "mend"), ["ignore~"]);
}

/// Scenarios: U046
#[test]
fn an_upstream_named_twice_is_one_edge() {
    let declared = Pipeline::configure("u046", |p| {
        let a = p.step("a", Make);
        p.following((&a, &a)).step("b", Make);
    });
    assert_eq!(after(spec(&declared), "b"), ["(a)"]);
}

/// Each shape of an input: what is stored of it, and what a worker is told.
#[test]
fn the_shape_of_an_input_is_stored_where_it_does_not_follow_from_the_edges() {
    use Shape::{List, One, Tuple};
    let declared = Pipeline::configure("shapes", |p| {
        let (a, b) = (p.step("a", Make), p.step("b", Make));
        let maybe = p.step("maybe", Make).optional();
        let (none, one, two) = (vec![], vec![a.clone()], [a.clone(), b.clone()]);
        p.following(&a).step("order", Make);
        a.then("then", Add);
        p.after(&a).following(&b).step("one", Add);
        p.after((&a, &b)).following(&maybe).step("tuple", Both);
        p.after_any([&a, &b]).step("any", Add);
        p.after_failure(&a).step("failure", Mend);
        p.after_failure(&a).step("failure_unread", Make);
        p.after((&a,)).step("tuple_of_one", Alone);
        p.after(&none).step("list_of_none", Sum);
        p.after(&one).step("list_of_one", Sum);
        p.after(&two).following(&maybe).step("list", Sum);
        p.after(&two[..]).step("slice", Sum);
        p.after((&a, &two)).step("tuple_with_list", Rest);
        p.after((&a, &none)).step("tuple_with_none", Rest);
        p.after(((&a, &b), &maybe)).step("nested", Pair);
        let (left, right) = (|| {}, || {});
        p.after(&one)
            .branch("decide", DecideAll, WayArms { left, right });
    });
    let spec = spec(&declared);
    let graph = declared.as_ref().unwrap().graph();
    let shape = |key: &str| graph.find(key).unwrap().shape();

    let pair = Tuple(vec![One, One]);
    let follows = [
        ("a", None),
        ("order", None),
        ("then", Some(One)),
        ("one", Some(One)),
        ("tuple", Some(pair.clone())),
        ("any", Some(One)),
        ("failure", Some(One)),
        ("failure_unread", Some(One)),
        ("merge:decide", None),
    ];
    for (key, resolved) in follows {
        assert_eq!(
            (&step(spec, key).input, shape(key)),
            (&None, resolved),
            "{key}"
        );
    }
    let stored = [
        ("tuple_of_one", Tuple(vec![One])),
        ("list_of_none", List(0)),
        ("list_of_one", List(1)),
        ("list", List(2)),
        ("slice", List(2)),
        ("tuple_with_list", Tuple(vec![One, List(2)])),
        ("tuple_with_none", Tuple(vec![One, List(0)])),
        ("nested", Tuple(vec![pair, One])),
        ("decide", List(1)),
    ];
    for (key, input) in stored {
        assert_eq!(step(spec, key).input.as_ref(), Some(&input), "{key}");
        assert_eq!(shape(key), Some(input), "{key}");
    }
    assert_eq!(after(spec, "nested"), ["a", "b", "maybe?"]);
    assert_eq!(after(spec, "list_of_none"), Vec::<String>::new());
}

#[test]
fn a_list_of_none_is_held_back_by_its_phase() {
    let declared = Pipeline::configure("none", |p| {
        p.step("a", Make);
        p.barrier();
        p.after(&[]).step("sum", Sum);
    });
    assert_eq!(after(spec(&declared), "sum"), ["(barrier:1)"]);
    assert_eq!(step(spec(&declared), "sum").input, Some(Shape::List(0)));
}

#[test]
fn a_handle_given_twice_gives_two_values() {
    let declared = Pipeline::configure("twice", |p| {
        let a = p.step("a", Make);
        let ignored = p.step("ignored", Make).failure_strategy(Ignore);
        p.after((&a, &a)).following(&a).step("both", Both);
        p.after(&[a.clone(), a.clone(), a.clone()]).step("sum", Sum);
        p.after((&ignored, &ignored)).step("judge", JudgeAgain);
        p.after_any([&a, &a]).step("any", Add);
    });
    let spec = spec(&declared);
    assert_eq!(after(spec, "both"), ["a", "a", "(a)"]);
    assert_eq!(after(spec, "sum"), ["a", "a", "a"]);
    assert_eq!(after(spec, "judge"), ["ignored?", "ignored!"]);
    assert_eq!(after(spec, "any"), ["a"], "there the first is the only one");
    let graph = declared.as_ref().unwrap().graph();
    let both = graph.find("both").unwrap();
    assert_eq!((both.shape(), both.upstream().len()), (Shape::of(2), 2));
    assert_eq!(both.waits(), 1, "it waits for one step");
    assert_eq!(graph.find("sum").unwrap().shape(), Some(Shape::List(3)));
}

#[test]
fn the_first_that_comes_is_a_join_of_its_own() {
    let declared = Pipeline::configure("any", |p| {
        let (a, b) = (p.step("a", Make), p.step("b", Make));
        p.after_any([&a, &b]).step("c", Add);
    });
    let spec = spec(&declared);
    assert_eq!(step(spec, "c").join, Join::Any);
    assert_eq!(after(spec, "c"), ["a", "b"]);
}

/// Else the one before the barrier would let it start before its phase does.
#[test]
fn the_first_that_comes_is_of_one_phase() {
    let found = problems(Pipeline::configure("any", |p| {
        let a = p.step("a", Make);
        p.barrier();
        let b = p.step("b", Make);
        p.after_any([&a, &b]).step("c", Add);
    }));
    assert!(
        found.len() == 1 && found[0].contains("`c`") && found[0].contains("`a`"),
        "{found:?}"
    );
}

#[test]
fn an_error_path_may_stand_behind_a_barrier() {
    let declared = Pipeline::configure("error_path", |p| {
        let a = p.step("a", Make);
        p.barrier();
        let sorry = p.after_failure(&a).step("sorry", Make);
        p.following(&sorry).step("log", Make);
        p.step("b", Make);
    });
    let spec = spec(&declared);
    assert_eq!(after(spec, "sorry"), ["a~", "(barrier:1.)"]);
    assert_eq!(after(spec, "log"), ["(sorry)"]);
    assert_eq!(after(spec, "b"), ["(barrier:1)"]);
}

/// A handle that was carried out of its arm looks sure, and is not.
#[test]
fn the_first_of_steps_in_an_arm_may_be_absent() {
    let found = problems(Pipeline::configure("any", |p| {
        let mut carried: Option<Step<i64>> = None;
        let first = p.step("first", Make);
        first.branch(
            "decide",
            Decide,
            WayArms {
                left: || carried = Some(first.then("a", Add)),
                right: || {},
            },
        );
        let any = p.after_any(carried.as_ref()).step("c", Add);
        any.then("d", Add);
    }));
    assert!(
        found.len() == 1 && found[0].contains("the value of `c` as always present"),
        "{found:?}"
    );
}

#[test]
fn a_handle_of_another_pipeline_is_refused() {
    let mut stolen: Option<Step<i64>> = None;
    let _ = Pipeline::configure("theirs", |p| stolen = Some(p.step("a", Make)));
    let stolen = stolen.unwrap();
    let found = problems(Pipeline::configure("ours", |p| {
        let b = p.step("b", Make);
        p.after((&b, &stolen)).step("c", Both);
    }));
    assert!(
        found.len() == 1 && found[0].contains("`c`") && found[0].contains("`theirs`"),
        "{found:?}"
    );
}

#[test]
fn under_a_pipeline_wide_ignore_a_sure_value_must_be_sure() {
    let found = problems(Pipeline::configure("ignoring", |p| {
        p.failure_strategy(Ignore);
        let a = p.step("a", Make);
        a.then("b", Add);
    }));
    assert!(
        found[0].contains("`a`") && found[0].contains("`b`"),
        "{found:?}"
    );
}

#[test]
fn a_handle_can_be_held_over_an_await_and_sent_to_another_thread() {
    fn sendable<T: Send + Sync + 'static>(_: &T) {}
    let declared = Pipeline::configure("send", |p| {
        let a = p.step("a", Make);
        sendable(&a);
        sendable(&a.clone().optional());
        a
    });
    sendable(&declared);
}

/// The params of a named pipeline.
#[derive(Serialize, Deserialize, Pipeline)]
#[pipeline(name = "video.processing")]
struct Video {
    id: i64,
    presets: Vec<String>,
}

impl Define for Video {
    type Jobs = (Make, Add);
    type Output = Step<i64>;
    fn define(&self, p: &PipelineBuilder) -> Self::Output {
        let source = p.step("source", Make);
        for preset in &self.presets {
            source.then(&format!("to_{preset}"), Add);
        }
        source.then("last", Add)
    }
}

/// Scenarios: U041
#[test]
fn a_named_pipeline_is_declared_from_its_params() {
    let presets = vec!["hd".to_owned(), "sd".to_owned()];
    let declared = Video { id: 7, presets }.pipeline();
    assert_eq!(Video::NAME, "video.processing");
    assert_eq!(keys(spec(&declared)), ["source", "to_hd", "to_sd", "last"]);
    let schema = Video::params_schema();
    assert_eq!(schema["properties"]["id"]["type"], "integer");
    assert_eq!(schema["required"], serde_json::json!(["id", "presets"]));
    let _: Pipeline<i64> = declared.unwrap();
}

/// Declares a step and a callback whose jobs it does not list.
#[derive(Serialize, Deserialize, Pipeline)]
struct Unlisted {}

impl Define for Unlisted {
    type Jobs = (Make, (Both, Video));
    type Output = ();
    fn define(&self, p: &PipelineBuilder) {
        let a = p.step("a", Make);
        a.then("listed_by_video", Add);
        a.then("decide", Decide);
        p.on_failure(Tell);
    }
}

#[test]
fn a_job_that_a_named_pipeline_does_not_list_is_refused_with_its_step() {
    let found = problems(Unlisted {}.pipeline());
    assert_eq!(found.len(), 2, "{found:?}");
    for (problem, place, job, job_type) in [
        (&found[0], "step `decide`", "`decide`", "::Decide`"),
        (&found[1], "callback 1", "`tell`", "::Tell`"),
    ] {
        assert!(problem.starts_with(place), "{problem}");
        for part in [job, job_type, "::Unlisted`", "`type Jobs`"] {
            assert!(problem.contains(part), "{part}: {problem}");
        }
    }
}

/// Params with serde's defaults and doc comments, which their schema has.
#[derive(Debug, Default, Serialize, Deserialize, Pipeline)]
#[serde(default, rename_all = "camelCase")]
struct Lenient {
    /// The number of copies.
    copy_count: u32,
}

impl Define for Lenient {
    type Jobs = Make;
    type Output = Step<i64>;
    fn define(&self, p: &PipelineBuilder) -> Self::Output {
        p.step("a", Make)
    }
}

#[test]
fn the_schema_of_params_follows_their_serde_attributes() {
    let schema = Lenient::params_schema();
    assert_eq!(schema["title"], "Lenient");
    let count = &schema["properties"]["copyCount"];
    assert_eq!(count["type"], "integer", "{schema}");
    assert_eq!(count["default"], 0);
    assert_eq!(count["description"], "The number of copies.");
    assert_eq!(schema["required"], serde_json::Value::Null);
}

/// Params that hold a float.
#[derive(Debug, Clone, Serialize, Deserialize, Job)]
struct Scale {
    factors: Vec<f64>,
}

impl Perform for Scale {
    type Input = ();
    type Output = i64;
    async fn perform(self, (): (), _: &Context) -> Result<i64, JobError> {
        Ok(1)
    }
}

#[test]
fn params_that_json_cannot_hold_are_refused_with_their_path() {
    let factors = vec![1.0, f64::NAN];
    let found = problems(Pipeline::configure("nan", |p| {
        p.step("scale", Scale { factors });
    }));
    assert_eq!(found.len(), 1, "{found:?}");
    for part in ["step `scale`", "NaN or infinite", "`factors[1]`"] {
        assert!(found[0].contains(part), "{part}: {}", found[0]);
    }
}

#[test]
fn handles_are_taken_by_value_as_by_reference() {
    let declared = Pipeline::configure("by_value", |p| {
        let (a, b) = (p.step("a", Make), p.step("b", Make));
        let optional = p.step("optional", Make).optional();
        let (c, d) = (a.clone(), b.clone());
        p.after((a.clone(), b.clone())).step("both", Both);
        p.after((a.clone(), optional)).step("either", Either);
        p.after([a.clone(), b.clone()]).step("array", Sum);
        p.after(vec![a.clone(), b.clone()]).step("list", Sum);
        p.following((a.clone(), vec![b.clone()]))
            .step("order", Make);
        p.after_failure(a.clone()).step("failure", Mend);
        p.after_any([a, b]).step("any", Add);
        p.after(c).following(d).step("one", Add);
    });
    let spec = spec(&declared);
    assert_eq!(after(spec, "both"), ["a", "b"]);
    assert_eq!(after(spec, "either"), ["a", "optional?"]);
    assert_eq!(after(spec, "array"), ["a", "b"]);
    assert_eq!(after(spec, "list"), ["a", "b"]);
    assert_eq!(after(spec, "order"), ["(a)", "(b)"]);
    assert_eq!(after(spec, "failure"), ["a~"]);
    assert_eq!(after(spec, "any"), ["a", "b"]);
    assert_eq!(after(spec, "one"), ["a", "(b)"]);
}

#[test]
fn options_strategy_and_failure_of_a_branch_are_those_of_its_deciding_step() {
    let declared = Pipeline::configure("branch", |p| {
        let a = p.step("a", Make);
        let arms = WayArms {
            left: || a.then("left", Add),
            right: || a.then("right", Add),
        };
        let all = a
            .branch("all", Decide, arms)
            .max_attempts(9)
            .queue("deciding")
            .failure_strategy(Continue);
        let arms = WayArms {
            left: || a.then("some_left", Add),
            right: || {},
        };
        let some = a
            .branch("some", Decide, arms)
            .delay(Duration::from_secs(1))
            .failure_strategy(Halt);
        p.after_failure(&all).step("mend_all", Mend);
        p.after_failure(&some).step("mend_some", Mend);
        p.after((&all, &some)).step("next", Either);
    });
    let spec = spec(&declared);
    let options = step(spec, "all").options.as_ref().unwrap();
    assert_eq!(
        (options.max_attempts, options.queue.as_str()),
        (9, "deciding")
    );
    assert_eq!(step(spec, "all").strategy, Some(Strategy::Continue));
    assert_eq!(step(spec, "some").options.as_ref().unwrap().delay_ms, 1_000);
    assert_eq!(step(spec, "some").strategy, Some(Strategy::Halt));
    for merge in ["merge:all", "merge:some"] {
        assert_eq!(step(spec, merge).options, None);
        assert_eq!(step(spec, merge).strategy, None);
    }
    assert_eq!(after(spec, "mend_all"), ["all~"]);
    assert_eq!(after(spec, "mend_some"), ["some~"]);
    assert_eq!(after(spec, "next"), ["merge:all", "merge:some?"]);
}

#[test]
fn messages_and_drawings_name_the_branch_and_not_its_merge() {
    let (left, right) = (|| {}, || {});
    let optional = problems(Pipeline::configure("optional", |p| {
        let a = p.step("a", Make);
        a.branch("way", Decide, WayArms { left, right }).optional();
    }));
    let ignored = problems(Pipeline::configure("ignored", |p| {
        let a = p.step("a", Make);
        a.branch("way", Decide, WayArms { left, right })
            .failure_strategy(Ignore);
    }));
    let twice = problems(Pipeline::configure("twice", |p| {
        let a = p.step("a", Make);
        a.branch("way", Decide, WayArms { left, right });
        a.branch("way", Decide, WayArms { left, right });
    }));
    let mut stolen: Option<Step<()>> = None;
    let valid = Pipeline::configure("valid", |p| {
        let a = p.step("a", Make);
        stolen = Some(a.branch("way", Decide, WayArms { left, right }));
    });
    let stolen = stolen.unwrap();
    let foreign = problems(Pipeline::configure("foreign", |p| {
        p.following(&stolen).step("b", Make);
    }));
    for found in [optional, ignored, twice, foreign] {
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("`way`"), "{found:?}");
        assert!(!found[0].contains("merge"), "{found:?}");
    }
    let graph = valid.unwrap();
    for drawing in [graph.graph().to_mermaid(), graph.graph().to_dot()] {
        assert!(drawing.contains("end of way"), "{drawing}");
        assert!(!drawing.contains("merge"), "{drawing}");
    }
}

#[test]
fn what_may_be_absent_can_be_taken_as_such() {
    let declared = Pipeline::configure("absent", |p| {
        let a = p.step("a", Make);
        let halved = a.branch(
            "decide",
            Decide,
            WayArms {
                left: || a.then("b", Add),
                right: || {},
            },
        );
        halved.then("c", OrElse)
    });
    assert_eq!(after(spec(&declared), "c"), ["merge:decide?"]);
}
