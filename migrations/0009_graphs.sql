-- Graphs: the shapes of pipelines, each stored once, whatever the number of runs. Rows here never
-- change.

create type pipeline.node_kind as enum
    ('job', 'branch', 'merge', 'barrier', 'each', 'child', 'timer', 'signal');
create type pipeline.strategy as enum ('halt', 'continue', 'ignore');
create type pipeline.takes as enum ('value', 'maybe', 'outcome', 'failure', 'order');

-- An edge, as the node that it leads away from stores it.
create type pipeline.out_edge as (
    no    integer,                                 -- the downstream node
    takes pipeline.takes
);

create table pipeline.graphs (
    id          bigint      primary key,
    fingerprint bytea       not null,              -- not unique: see store_graph_v1
    pipeline    text        not null,
    size        integer     not null,
    deadline_ms bigint,                            -- how long a run may take
    spec        json        not null,              -- as it was declared
    created_at  timestamptz not null
);
create index graphs_by_fingerprint on pipeline.graphs (fingerprint);

create table pipeline.nodes (
    graph    bigint             not null references pipeline.graphs on delete cascade,
    no       integer            not null,
    waits    integer            not null,          -- how many edges lead to it
    lease_ms integer,
    delay_ms bigint             not null default 0,
    version  integer,
    branch   integer,                              -- of a merge: the branch whose arms meet here
    priority smallint,
    attempts smallint,
    kind     pipeline.node_kind not null,
    strategy pipeline.strategy  not null,          -- resolved: its own, else its pipeline's
    is_any   boolean            not null,          -- one upstream is enough
    optional boolean            not null,          -- its failure does not count
    exempt   boolean            not null,          -- Halt does not skip it
    key      text               not null,
    job      text,                                 -- the job type's name
    queue    text collate "C",
    options  jsonb,                                -- backoff and timeout
    input    json,                                 -- the shape of its input
    arms     text[],                               -- of a branch: their names
    returns  integer[],                            -- of a merge: for each arm, the node whose value it is
    outs     pipeline.out_edge[],                  -- the edges that lead away from it; null: none
    primary key (graph, no),
    -- In this order it is of no use to whoever looks for a number.
    unique (key, graph),
    constraint jobs_have_options check
        (kind not in ('job', 'branch', 'each')
         or num_nulls(job, version, queue, priority, attempts, lease_ms) = 0)
);

create table pipeline.dependencies (
    graph bigint         not null references pipeline.graphs on delete cascade,
    up    integer        not null,
    down  integer        not null,
    pos   integer        not null,                 -- which of the edges that lead to `down`
    takes pipeline.takes not null,
    -- In this order it is of no use to whoever looks for what comes before.
    primary key (up, graph, down, pos) include (takes)
);
create unique index dependencies_of on pipeline.dependencies (graph, down, pos) include (up, takes);

-- Which nodes stand in which arm, also in one around theirs.
create table pipeline.arms (
    graph  bigint  not null references pipeline.graphs on delete cascade,
    branch integer not null,
    arm    integer not null,
    no     integer not null,
    primary key (graph, branch, arm, no)
);

-- Jobs that a run fires when it ends.
create table pipeline.callbacks (
    graph    bigint   not null references pipeline.graphs on delete cascade,
    pos      integer  not null,
    lease_ms integer  not null,
    version  integer  not null,
    priority smallint not null,
    attempts smallint not null,
    fires    text     not null check (fires in ('complete', 'success', 'failure')),
    job      text     not null,
    queue    text collate "C" not null,
    options  jsonb,
    primary key (graph, pos)
);

-- Stores a graph unless it is there. Returns its id.
--
-- With p_alone, the caller is in a transaction of this one statement: it waits for others that store the
-- same graph in such a transaction, so that there is one row. Else it waits for nobody: a transaction of
-- the user may stay open for long, and a graph that it has stored is seen by nobody else meanwhile. Others
-- then store the graph once more. Two rows of one graph do no harm: a run has the one that it was started
-- with.
create function pipeline.store_graph_v1(
    p_fingerprint bytea, p_pipeline text, p_deadline_ms bigint, p_spec json, p_nodes json,
    p_edges json, p_arms json, p_callbacks json, p_alone boolean
) returns bigint
language plpgsql as $$
declare
    v_graph bigint;
begin
    if p_alone then
        perform pg_advisory_xact_lock(
            ('x' || encode(substr(p_fingerprint, 1, 8), 'hex'))::bit(64)::bigint);
    end if;
    select id into v_graph from pipeline.graphs
    where fingerprint = p_fingerprint order by id limit 1;
    if found then
        return v_graph;
    end if;
    insert into pipeline.graphs (id, fingerprint, pipeline, size, deadline_ms, spec, created_at)
    values (nextval('pipeline.ids'), p_fingerprint, p_pipeline, json_array_length(p_nodes),
            p_deadline_ms, p_spec, pipeline.now())
    returning id into v_graph;
    insert into pipeline.nodes (graph, no, waits, lease_ms, delay_ms, version, branch, priority,
                                attempts, kind, strategy, is_any, optional, exempt, key, job, queue,
                                options, input, arms, returns, outs)
    select v_graph, n.no, n.waits, n.lease_ms, n.delay_ms, n.version, n.branch, n.priority,
           n.attempts, n.kind, n.strategy, n.is_any, n.optional, n.exempt, n.key, n.job, n.queue,
           n.options, n.input, n.arms, n.returns, o.outs
    from json_to_recordset(p_nodes) as n (
        no integer, waits integer, lease_ms integer, delay_ms bigint, version integer,
        branch integer, priority smallint, attempts smallint, kind pipeline.node_kind,
        strategy pipeline.strategy, is_any boolean, optional boolean, exempt boolean, key text,
        job text, queue text, options jsonb, input json, arms text[], returns integer[]
    )
    left join (
        select e.up, array_agg(row(e.down, e.takes)::pipeline.out_edge order by e.down, e.pos) as outs
        from json_to_recordset(p_edges) as e (up integer, down integer, pos integer, takes pipeline.takes)
        group by e.up
    ) as o on o.up = n.no;
    insert into pipeline.dependencies (graph, up, down, pos, takes)
    select v_graph, e.up, e.down, e.pos, e.takes
    from json_to_recordset(p_edges) as e (up integer, down integer, pos integer, takes pipeline.takes);
    insert into pipeline.arms (graph, branch, arm, no)
    select v_graph, a.branch, a.arm, a.no
    from json_to_recordset(p_arms) as a (branch integer, arm integer, no integer);
    insert into pipeline.callbacks (graph, pos, lease_ms, version, priority, attempts, fires, job,
                                    queue, options)
    select v_graph, c.pos, c.lease_ms, c.version, c.priority, c.attempts, c.fires, c.job, c.queue,
           c.options
    from json_to_recordset(p_callbacks) as c (
        pos integer, lease_ms integer, version integer, priority smallint, attempts smallint,
        fires text, job text, queue text, options jsonb
    );
    return v_graph;
end $$;
