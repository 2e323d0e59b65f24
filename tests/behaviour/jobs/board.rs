//! apalis-board's API over our backend, asked over HTTP: it shows our queues, jobs and workers.

use std::time::Duration;

use apalis_board_api::framework::{ApiBuilder, RegisterRoute as _};
use axum::Router;
use jobs::{JobsBackend, NewJob, Worker};
use serde_json::{Value, json};
use tests::{Database, with_database};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::support::{Do, Running, What, client, ended, until};

/// The API on a port of its own.
struct Board {
    address: std::net::SocketAddr,
    server: JoinHandle<std::io::Result<()>>,
}

impl Board {
    /// As an application mounts it: one backend a queue.
    async fn mount(db: &Database, queues: &[&str]) -> Self {
        let mut api = ApiBuilder::new(Router::new());
        for queue in queues {
            api = api.register(queue, backend(db, queue));
        }
        let app = Router::new().nest("/api/v1", api.build());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(async move { axum::serve(listener, app).await });
        Self { address, server }
    }

    async fn ask(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request = format!(
            "{method} /api/v1{path} HTTP/1.1\r\nhost: board\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap_or(Value::Null))
    }

    async fn get(&self, path: &str) -> Value {
        let (status, answer) = self.ask("GET", path, "").await;
        assert_eq!(status, 200, "{path}: {answer}");
        answer
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        self.server.abort();
    }
}

fn backend(db: &Database, queue: &str) -> JobsBackend {
    let worker = Worker::new(db.pool().clone()).queue(queue, 1);
    worker.into_backend().unwrap().1
}

/// One of everything: two wait, one runs, one each has succeeded, failed, was discarded.
async fn one_of_each(db: &Database) -> (Running, jobs::JobId) {
    let new = |name: &str, what| NewJob::new(&Do::new(name, what));
    let jobs = client(db)
        .enqueue_many([
            new("ready", What::Succeed).queue("idle"),
            new("later", What::Succeed).delay(Duration::from_secs(600)),
            new("running", What::UntilAsked),
            new("succeeded", What::Succeed),
            new("failed", What::Fail),
            new("discarded", What::Discard),
        ])
        .await
        .unwrap();
    let worker = Running::start(db, |worker| {
        worker.queue("default", 8).queue("media.*", 2).name("busy")
    });
    for job in &jobs[3..] {
        ended(db, job.id).await;
    }
    let begun = |line: &String| line.starts_with("running");
    until(async || worker.log.lines().iter().any(begun)).await;
    (worker, jobs[4].id)
}

/// The names of the jobs in a list of tasks.
fn names(tasks: &Value) -> Vec<String> {
    let name = |task: &Value| {
        let args: Value = serde_json::from_str(task["args"]["args"].as_str()?).ok()?;
        Some(args["name"].as_str()?.to_owned())
    };
    let tasks = tasks.as_array().unwrap();
    let mut names: Vec<String> = tasks.iter().map(|task| name(task).unwrap()).collect();
    names.sort();
    names
}

fn statistic(all: &Value, title: &str) -> String {
    let all = all.as_array().unwrap().iter();
    let mut found = all.filter(|one| one["title"] == title);
    found.next().unwrap()["value"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn the_board_lists_jobs_by_queue_and_status() {
    with_database(async |db| {
        let (worker, failed) = one_of_each(db).await;
        let board = Board::mount(db, &["default", "idle"]).await;
        let list = async |path: &str| names(&board.get(path).await);
        assert_eq!(list("/tasks").await.len(), 6);
        assert_eq!(list("/queues/idle/tasks").await, ["ready"]);
        assert_eq!(list("/queues/default/tasks").await.len(), 5);
        for (status, expected) in [
            ("Pending", &["later", "ready"][..]),
            ("Running", &["running"]),
            ("Done", &["succeeded"]),
            ("Failed", &["failed"]),
            ("Killed", &["discarded"]),
            ("Queued", &[]),
        ] {
            let path = format!("/tasks?status={status}&page=1");
            assert_eq!(list(&path).await, expected, "{status}");
        }
        let mut paged = Vec::new();
        for page in 1..=3 {
            let page = list(&format!("/tasks?page={page}&page_size=2")).await;
            assert_eq!(page.len(), 2);
            paged.extend(page);
        }
        paged.sort();
        assert_eq!(paged, list("/tasks").await);

        let task = board.get(&format!("/queues/default/tasks/{failed}")).await;
        assert_eq!(names(&json!([task])), ["failed"]);
        let (status, _) = board.ask("GET", "/queues/default/tasks/999999", "").await;
        assert_eq!(status, 404);
        worker.stop().await;
    })
    .await;
}

#[tokio::test]
async fn the_board_shows_queues_counts_and_workers() {
    with_database(async |db| {
        let (worker, _) = one_of_each(db).await;
        client(db).pause("paused").await.unwrap();
        let board = Board::mount(db, &["default", "idle"]).await;
        let queues = board.get("/queues").await;
        let queues = queues.as_array().unwrap();
        let names: Vec<&str> = queues.iter().map(|q| q["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["default", "idle", "paused"]);
        let workers: Vec<&Value> = queues.iter().map(|q| &q["workers"]).collect();
        assert_eq!(workers, [&json!(["busy"]), &json!([]), &json!([])]);

        let overview = board.get("/overview").await;
        let of_default = board.get("/queues/default/stats").await;
        for (title, all, default) in [
            ("PENDING_JOBS", "1", "0"),
            ("SCHEDULED_JOBS", "1", "1"),
            ("RUNNING_JOBS", "1", "1"),
            ("DONE_JOBS", "1", "1"),
            ("FAILED_JOBS", "1", "1"),
            ("DISCARDED_JOBS", "1", "1"),
        ] {
            assert_eq!(statistic(&overview, title), all, "{title}");
            assert_eq!(statistic(&of_default, title), default, "{title} of default");
        }

        let all = board.get("/workers").await;
        assert_eq!(all[0]["id"], "busy");
        assert_eq!(all.as_array().unwrap().len(), 1);
        assert_eq!(board.get("/queues/default/workers").await, all);
        assert_eq!(board.get("/queues/idle/workers").await, json!([]));
        worker.stop().await;
        assert_eq!(board.get("/workers").await, json!([]), "none is left");
        assert_eq!(board.get("/queues").await[0]["workers"], json!([]));
    })
    .await;
}

#[tokio::test]
async fn the_board_can_look_but_not_enqueue() {
    with_database(async |db| {
        let board = Board::mount(db, &["default"]).await;
        let job = client(db)
            .enqueue(Do::new("a", What::Succeed))
            .await
            .unwrap();
        let path = format!("/queues/default/tasks/{}", job.id);
        let envelope = board.get(&path).await["args"].to_string();
        let (status, answer) = board.ask("PUT", "/queues/default/tasks", &envelope).await;
        assert_eq!(status, 500, "{answer}");
        assert!(answer.to_string().contains("jobs::Client"), "{answer}");
        assert_eq!(board.get("/tasks").await.as_array().unwrap().len(), 1);
    })
    .await;
}
