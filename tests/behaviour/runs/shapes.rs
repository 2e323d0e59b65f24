//! The twelve shapes of the example file, run to their end.

use pipeline::RunStatus;
use tests::with_database;

use super::support::Running;
use crate::graphs::topologies::shapes::{
    Add, Both, Break, Decide, Make, Mend, OrElse, Sum, all as all_shapes,
};

#[tokio::test(flavor = "multi_thread")]
async fn every_shape_runs_to_its_end() {
    with_database(async |db| {
        let it = Running::start_with(db, |worker| {
            worker.register::<(Make, Add, Sum, Both, OrElse, Break, Decide, Mend)>()
        });
        let mut returned = Vec::new();
        for (name, declare) in all_shapes() {
            let run = it.client.start(declare().unwrap()).await.unwrap();
            assert_eq!(run.wait().await.unwrap(), RunStatus::Succeeded, "{name}");
            returned.push((name, run.output().await.unwrap()));
        }
        // The first of two: either may be.
        let any = returned.remove(4);
        assert!(
            any == ("diamond_any", 12) || any == ("diamond_any", 13),
            "{any:?}"
        );
        assert_eq!(
            returned,
            [
                ("linear", 3),
                ("fan_out", 1),
                ("fan_in", 15),
                ("diamond_all", 5),
                ("deep_chain", 19),
                ("error_path", 7),
                ("conditional", 102),
                ("delay", 2),
                ("multi_level_join", 4),
                ("branch_with_an_empty_arm", 0),
                ("two_phases", 3),
            ]
        );
        it.stop().await;
    })
    .await;
}
