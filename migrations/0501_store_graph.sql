-- Stores a graph unless it exists. Returns its id.
--
-- With p_alone, this statement is the whole transaction of the caller. It waits for other such transactions that store
-- the same graph, so that the graph has one row. Otherwise the function does not wait: a transaction of the user may
-- stay open for long, and other transactions do not see the graph that it has stored. They store the graph again. Two
-- rows of one graph do no harm: a run keeps the row that it was started with.
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
    insert into pipeline.nodes (graph, no, in_edges, lease_ms, delay_ms, version, branch, priority,
                                max_attempts, kind, strategy, is_any, is_optional, is_exempt, key, job_type, queue,
                                options, input, arms, returns, out_edges)
    select v_graph, n.no, n.in_edges, n.lease_ms, n.delay_ms, n.version, n.branch, n.priority,
           n.max_attempts, n.kind, n.strategy, n.is_any, n.is_optional, n.is_exempt, n.key, n.job_type, n.queue,
           n.options, n.input, n.arms, n.returns, o.out_edges
    from json_to_recordset(p_nodes) as n (
        no integer, in_edges integer, lease_ms integer, delay_ms bigint, version integer,
        branch integer, priority smallint, max_attempts smallint, kind pipeline.node_kind,
        strategy pipeline.strategy, is_any boolean, is_optional boolean, is_exempt boolean, key text,
        job_type text, queue text, options jsonb, input json, arms text[], returns integer[]
    )
    left join (
        select e.upstream,
               array_agg(row(e.downstream, e.takes)::pipeline.out_edge order by e.downstream, e.position) as out_edges
        from json_to_recordset(p_edges)
             as e (upstream integer, downstream integer, position integer, takes pipeline.takes)
        group by e.upstream
    ) as o on o.upstream = n.no;
    insert into pipeline.dependencies (graph, upstream, downstream, position, takes)
    select v_graph, e.upstream, e.downstream, e.position, e.takes
    from json_to_recordset(p_edges) as e (upstream integer, downstream integer, position integer, takes pipeline.takes);
    insert into pipeline.arms (graph, branch, arm, no)
    select v_graph, a.branch, a.arm, a.no
    from json_to_recordset(p_arms) as a (branch integer, arm integer, no integer);
    insert into pipeline.callbacks (graph, position, lease_ms, version, priority, max_attempts, fires, job_type,
                                    queue, options)
    select v_graph, c.position, c.lease_ms, c.version, c.priority, c.max_attempts, c.fires, c.job_type, c.queue,
           c.options
    from json_to_recordset(p_callbacks) as c (
        position integer, lease_ms integer, version integer, priority smallint, max_attempts smallint,
        fires text, job_type text, queue text, options jsonb
    );
    return v_graph;
end $$;
