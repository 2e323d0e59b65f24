//! Stores graphs in the database.

use serde::Serialize;
use sqlx::PgConnection;

use crate::graph::spec::{CallbackOn, Shape, StepKind, StepOptions, Strategy, Takes};
use crate::graph::{Graph, Node};

#[derive(Serialize)]
struct NodeRow<'g> {
    no: u32,
    in_edges: usize,
    lease_ms: Option<u64>,
    delay_ms: u64,
    version: Option<u32>,
    branch: Option<u32>,
    priority: Option<i16>,
    max_attempts: Option<u16>,
    kind: &'static str,
    strategy: Strategy,
    is_any: bool,
    is_optional: bool,
    is_exempt: bool,
    key: &'g str,
    job_type: Option<&'g str>,
    queue: Option<&'g str>,
    options: Option<OptionsRow>,
    input: Option<&'g Shape>,
    arms: Option<&'g [String]>,
    returns: Option<Vec<Option<u32>>>,
}

/// The options of a job, in the format that workers read from the queue.
#[derive(Serialize)]
struct OptionsRow {
    backoff: jobs::Backoff,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<u64>,
    /// The version of the job's data, unless it is 1: workers that know only an older version do not run
    /// the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<u32>,
    /// Whether the pipeline commits asynchronously: see
    /// [`PipelineBuilder::asynchronous_commit`](crate::PipelineBuilder::asynchronous_commit).
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    asynchronous_commit: bool,
}

impl OptionsRow {
    fn of(options: &StepOptions, version: Option<u32>) -> Self {
        Self {
            backoff: options.backoff,
            timeout_ms: options.timeout_ms,
            version: version.filter(|version| *version > 1),
            asynchronous_commit: false,
        }
    }
}

#[derive(Serialize)]
struct EdgeRow {
    upstream: u32,
    downstream: u32,
    position: usize,
    takes: Takes,
}

#[derive(Serialize)]
struct ArmRow {
    branch: u32,
    arm: u32,
    no: u32,
}

#[derive(Serialize)]
struct CallbackRow<'g> {
    position: usize,
    lease_ms: u64,
    version: u32,
    priority: i16,
    max_attempts: u16,
    fires: CallbackOn,
    job_type: &'g str,
    queue: &'g str,
    options: OptionsRow,
}

/// Returns the name of a kind of node in the database.
pub(crate) fn kind_name(kind: &StepKind) -> &'static str {
    match kind {
        StepKind::Job { .. } => "job",
        StepKind::Branch { .. } => "branch",
        StepKind::Merge { .. } => "merge",
        StepKind::Barrier => "barrier",
        StepKind::Each { .. } => "each",
        StepKind::Child { .. } => "child",
        StepKind::Timer { .. } => "timer",
        StepKind::Signal { .. } => "signal",
    }
}

/// The time at which a stored graph becomes visible to other transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Visibility {
    /// After the statement: the connection is in no transaction. Transactions that store an equal graph at the
    /// same time wait for each other, so that the graph is stored once.
    AtOnce,
    /// When the connection's transaction commits. The statement does not wait for other transactions.
    AtCommit,
}

/// Stores a graph unless the database has it, and returns its id.
pub(crate) async fn store(
    connection: &mut PgConnection,
    graph: &Graph,
    visibility: Visibility,
) -> Result<i64, sqlx::Error> {
    let nodes: Vec<NodeRow<'_>> = graph.nodes().map(|node| row(graph, node)).collect();
    let mut edges = Vec::new();
    let mut arms = Vec::new();
    for node in graph.nodes() {
        for (position, up) in node.upstream().iter().enumerate() {
            edges.push(EdgeRow {
                upstream: up.no,
                downstream: node.no(),
                position,
                takes: up.takes,
            });
        }
        for arm in node.arms() {
            arms.push(ArmRow {
                branch: arm.branch,
                arm: arm.index,
                no: node.no(),
            });
        }
    }
    let callbacks: Vec<CallbackRow<'_>> = graph
        .spec()
        .callbacks
        .iter()
        .enumerate()
        .map(|(position, callback)| CallbackRow {
            position,
            lease_ms: callback.options.lease_ms,
            version: callback.version,
            priority: callback.options.priority,
            max_attempts: callback.options.max_attempts,
            fires: callback.on,
            job_type: &callback.job,
            queue: &callback.options.queue,
            options: OptionsRow::of(&callback.options, Some(callback.version)),
        })
        .collect();
    let deadline = graph
        .spec()
        .deadline_ms
        .map(|ms| i64::try_from(ms).unwrap_or(i64::MAX));
    let fingerprint = graph.fingerprint();
    sqlx::query_file_scalar!(
        "src/sql/store_graph.sql",
        fingerprint.as_bytes(),
        graph.name(),
        deadline,
        graph.to_json(),
        json(&nodes),
        json(&edges),
        json(&arms),
        json(&callbacks),
        visibility == Visibility::AtOnce,
    )
    .fetch_one(connection)
    .await
}

/// Serializes rows as JSON. This cannot fail: the rows hold only numbers, names and lists of them.
fn json(rows: &impl Serialize) -> String {
    serde_json::to_string(rows).unwrap_or_default()
}

/// Returns the options of a step's job, in the format that workers read from the queue.
pub(crate) fn options_json(graph: &Graph, node: Node<'_>) -> Option<String> {
    Some(json(&step_options(graph, node)?))
}

fn step_options(graph: &Graph, node: Node<'_>) -> Option<OptionsRow> {
    let version = node.job().map(|(_, version)| version);
    Some(OptionsRow {
        asynchronous_commit: graph.spec().asynchronous_commit,
        ..OptionsRow::of(node.options()?, version)
    })
}

fn row<'g>(graph: &'g Graph, node: Node<'g>) -> NodeRow<'g> {
    let options = node.options();
    let (job_type, version) = node.job().unzip();
    let (branch, returns) = match node.kind() {
        StepKind::Merge { branch, values } => {
            let branch = graph.find(branch);
            let arms = branch.map_or(&[][..], |branch| match branch.kind() {
                StepKind::Branch { arms, .. } => arms,
                _ => &[],
            });
            let returned = |arm: &String| {
                let (_, key) = values.iter().find(|(name, _)| name == arm)?;
                graph.find(key).map(Node::no)
            };
            (
                branch.map(Node::no),
                Some(arms.iter().map(returned).collect()),
            )
        }
        _ => (None, None),
    };
    let arms = match node.kind() {
        StepKind::Branch { arms, .. } => Some(arms.as_slice()),
        _ => None,
    };
    NodeRow {
        no: node.no(),
        in_edges: node.upstream().len(),
        lease_ms: options.map(|options| options.lease_ms),
        delay_ms: options.map_or(0, |options| options.delay_ms),
        version,
        branch,
        priority: options.map(|options| options.priority),
        max_attempts: options.map(|options| options.max_attempts),
        kind: kind_name(node.kind()),
        strategy: node.strategy(),
        is_any: node.join() == crate::graph::spec::Join::Any,
        is_optional: node.is_optional(),
        is_exempt: node.is_exempt_from_halt(),
        key: node.key(),
        job_type,
        queue: options.map(|options| options.queue.as_str()),
        options: step_options(graph, node),
        input: node.step().input.as_ref(),
        arms,
        returns,
    }
}
