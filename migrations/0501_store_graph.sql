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
