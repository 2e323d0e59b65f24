-- Graphs: the shapes of pipelines. A graph is stored once for all of its runs, and its rows never change.

create type pipeline.node_kind as enum
    ('job', 'branch', 'merge', 'barrier', 'each', 'child', 'timer', 'signal');
create type pipeline.strategy as enum ('halt', 'continue', 'ignore');
create type pipeline.takes as enum (
    'value', 'maybe', 'outcome', 'failure',
    'order',
    'ended'     -- as `order`, and every end satisfies the edge: from a barrier to an error path behind it
);

-- An edge, as its upstream node stores it.
create type pipeline.out_edge as (
    no    integer, -- the downstream node
    takes pipeline.takes
);

create table pipeline.graphs (
    id          bigint      primary key,
    fingerprint bytea       not null, -- not unique: see store_graph_v1
    pipeline    text        not null,
    size        integer     not null,
    deadline_ms bigint,               -- how long a run may take
    spec        json        not null, -- as it was declared
    created_at  timestamptz not null
);
create index graphs_by_fingerprint on pipeline.graphs (fingerprint);

create table pipeline.nodes (
    graph        bigint             not null references pipeline.graphs on delete cascade,
    no           integer            not null,
    in_edges     integer            not null, -- how many edges lead to it
    lease_ms     integer,
    delay_ms     bigint             not null default 0,
    version      integer,
    branch       integer,                     -- of a merge: the branch whose arms meet here
    priority     smallint,
    max_attempts smallint,
    kind         pipeline.node_kind not null,
    strategy     pipeline.strategy  not null, -- resolved: its own, else its pipeline's
    is_any       boolean            not null, -- one upstream is enough
    is_optional  boolean            not null, -- its failure does not count
    is_exempt    boolean            not null, -- Halt does not skip it
    key          text               not null,
    job_type     text,                        -- the job type's name
    queue        text collate "C",
    options      jsonb,                       -- backoff and timeout
    input        json,                        -- the shape of its input
    arms         text[],                      -- of a branch: their names
    returns      integer[],                   -- of a merge: for each arm, the node whose value it is
    out_edges    pipeline.out_edge[],         -- the edges that lead away from it; null: none
    primary key (graph, no),
    -- This column order does not serve lookups by number.
    unique (key, graph),
    constraint jobs_have_options check
        (kind not in ('job', 'branch', 'each')
         or num_nulls(job_type, version, queue, priority, max_attempts, lease_ms) = 0)
);

create table pipeline.dependencies (
    graph      bigint         not null references pipeline.graphs on delete cascade,
    upstream   integer        not null,
    downstream integer        not null,
    position   integer        not null, -- which of the edges that lead to `downstream`
    takes      pipeline.takes not null,
    -- This column order does not serve lookups by the downstream node.
    primary key (upstream, graph, downstream, position) include (takes)
);
create unique index dependencies_of on pipeline.dependencies (graph, downstream, position) include (upstream, takes);

-- The nodes of each arm, including the nodes of nested arms.
create table pipeline.arms (
    graph  bigint  not null references pipeline.graphs on delete cascade,
    branch integer not null,
    arm    integer not null,
    no     integer not null,
    primary key (graph, branch, arm, no)
);

-- Callbacks: jobs that are enqueued when a run ends.
create table pipeline.callbacks (
    graph        bigint           not null references pipeline.graphs on delete cascade,
    position     integer          not null,
    lease_ms     integer          not null,
    version      integer          not null,
    priority     smallint         not null,
    max_attempts smallint         not null,
    fires        text             not null check (fires in ('complete', 'success', 'failure')),
    job_type     text             not null,
    queue        text collate "C" not null,
    options      jsonb,
    primary key (graph, position)
);
