//! The program that tests start as another process: to have many of them, or to kill one.

#![allow(
    missing_docs,
    clippy::expect_used,
    clippy::panic,
    reason = "part of the tests"
)]

use std::sync::Arc;
use std::time::Duration;

use jobs::testing::Moment;
use jobs::{Context, Job, JobError, Perform, Worker, shutdown_signal};
use local_postgres::{Claim, Cluster, Durability, Server};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use tests::Errand;
use tests::steps::{self, Hold};

#[derive(Serialize, Deserialize, Job)]
struct Item {
    held: bool,
}

impl Perform for Item {
    type Input = ();
    type Output = ();

    async fn perform(self, (): (), _: &Context) -> Result<(), JobError> {
        if self.held {
            std::future::pending().await
        }
        Ok(())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        // Migrates the database, and prints the result.
        ["migrate", url] => {
            let pool = PgPool::connect(url).await.expect("the database answers");
            match jobs::migrate(&pool).await {
                Ok(()) => println!("migrated"),
                Err(error) => println!("{error}"),
            }
        }
        // Creates a database from the template, prints its name, and stays.
        ["scratch", prefix, template] => {
            let server = Arc::new(Server::find().expect("there is a server"));
            let prefix: &'static str = prefix.to_owned().leak();
            let claim = Claim::new(server, prefix).await.expect("a claim");
            let scratch = claim.create("killed", template).await.expect("a database");
            println!("{}", scratch.name);
            wait_for_end_of_input();
        }
        // Joins a temporary cluster, prints its socket folder and data, and stays.
        ["cluster", name, process] => {
            let process = process.parse().expect("a number");
            let cluster =
                Cluster::temporary(name, process, Durability::Scratch).expect("the cluster starts");
            println!(
                "{} {}",
                cluster.sockets().display(),
                cluster.data().display()
            );
            wait_for_end_of_input();
        }
        // Runs jobs of type `item`: some never end, as their data says. Prints a line when the worker runs,
        // and stays.
        ["hold", url] => {
            let pool = PgPool::connect(url).await.expect("the database answers");
            let worker = Worker::new(pool).register::<Item>().queue("items", 40);
            println!("running");
            worker
                .keep_succeeded(true)
                .run()
                .await
                .expect("the worker runs");
        }
        // Runs the jobs of a queue until the process is asked to stop.
        ["worker", url, name, queue, slots] => {
            let pool = PgPool::connect(url).await.expect("the database answers");
            let worker = Worker::new(pool.clone())
                .name(name)
                .register::<Errand>()
                .data(pool)
                .queue(queue, slots.parse().expect("a number"))
                .keep_succeeded(true)
                .grace(Duration::from_millis(100))
                .run_until(shutdown_signal());
            println!("{name}");
            worker.await.expect("the worker stops in good order");
        }
        // Runs steps until the process is asked to stop, or is held for ever at a moment.
        ["steps", url, slots, moment, time] => {
            let pool = PgPool::connect(url).await.expect("the database answers");
            let mut worker = steps::worker(&pool, slots.parse().expect("a number"));
            let moment = match moment {
                "before" => Some(Moment::BeforeCommit),
                "after" => Some(Moment::AfterCommit),
                _ => None,
            };
            if let Some(moment) = moment {
                worker = worker.probe(Hold::new(&pool, moment, time.parse().expect("a number")));
            }
            println!("running");
            worker
                .run_until(shutdown_signal())
                .await
                .expect("the worker stops in good order");
        }
        _ => panic!("unknown: {arguments:?}"),
    }
}

fn wait_for_end_of_input() {
    let _ = std::io::stdin().read_line(&mut String::new());
}
