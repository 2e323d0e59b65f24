//! The twelve shapes of `examples/topologies.rs`, each run to its end: every status, every output.

use pipeline::{Client, Worker};
use tests::with_database;

use super::working::{Working, run_ended, steps};
use crate::graphs::topologies::shapes::{
    self, Add, Both, Break, Decide, Declare, Make, Mend, OrElse, Sum,
};

/// What a step comes to: what it returned, or how else it ended.
const FAILED: &str = "failed";
const NOT_CHOSEN: &str = "skipped_by_branch";
/// It succeeded and returned nothing.
const RESOLVED: &str = "succeeded";

async fn comes_to(declare: Declare, expected: &[(&str, &str)]) {
    with_database(async |db| {
        // One slot: of several that can start, the first in the graph does.
        let worker = Worker::new(db.pool().clone())
            .register::<(Make, Add, Sum, Both, OrElse, Break, Decide, Mend)>()
            .queue("*", 1);
        let worker = Working::start(worker);
        let client = Client::new(db.pool().clone());
        let run = client.start(declare().unwrap()).await.unwrap().id();
        assert_eq!(run_ended(db, run).await, "succeeded");
        let steps = steps(db, run).await;
        let found: Vec<(&str, &str)> = steps
            .iter()
            .map(|(key, status, output)| match (status.as_str(), output) {
                ("succeeded", Some(output)) => (key.as_str(), output.as_str()),
                (status, None) => (key.as_str(), status),
                (status, Some(output)) => panic!("{key} is {status} and returned {output}"),
            })
            .collect();
        assert_eq!(found, expected);
        worker.stop().await;
    })
    .await;
}

macro_rules! shapes {
    ($($name:ident: $($key:literal $comes_to:expr),*;)*) => {
        $(#[tokio::test]
        async fn $name() {
            comes_to(shapes::$name, &[$(($key, $comes_to)),*]).await;
        })*

        #[test]
        fn each_shape_has_a_test() {
            let all = shapes::all().map(|(name, _)| name);
            assert_eq!(all, [$(stringify!($name)),*]);
        }
    };
}

shapes! {
    linear: "a" "1", "b" "2", "c" "3";
    fan_out: "source" "1", "worker_1" "2", "worker_2" "3", "worker_3" "4", "worker_4" "5",
        "worker_5" "6";
    fan_in: "source_1" "1", "source_2" "2", "source_3" "3", "source_4" "4", "source_5" "5",
        "sum" "15";
    diamond_all: "source" "1", "left" "2", "right" "3", "join" "5";
    diamond_any: "source" "1", "left" "2", "right" "3", "first" "12";
    deep_chain: "step_0" "0", "step_1" "1", "step_2" "2", "step_3" "3", "step_4" "4", "step_5" "5",
        "step_6" "6", "step_7" "7", "step_8" "8", "step_9" "9", "step_10" "10", "step_11" "11",
        "step_12" "12", "step_13" "13", "step_14" "14", "step_15" "15", "step_16" "16",
        "step_17" "17", "step_18" "18", "step_19" "19";
    error_path: "source" "1", "risky" FAILED, "mend" "42", "go_on" "7";
    conditional: "number" "4", "decide" "\"Even\"", "halve" "2", "raise" NOT_CHOSEN,
        "merge:decide" "2", "after" "102";
    delay: "first" "1", "later" "2";
    multi_level_join: "a" "1", "b" "1", "c" "1", "d" "1", "left" "2", "right" "2", "top" "4";
    branch_with_an_empty_arm: "number" "3", "decide" "\"Odd\"", "halve" NOT_CHOSEN,
        "merge:decide" RESOLVED, "after" "0";
    two_phases: "a" "1", "b" "2", "barrier:1" RESOLVED, "c" "3", "d" "3";
}
