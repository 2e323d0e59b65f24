-- Starts runs of one graph: inserts the runs, their steps, and the jobs of their first steps.
--
-- A call is atomic without a transaction around it: where the answer says that nothing was started, nothing was
-- written. Run ids and the graph's id come from the client's memory. After a failover or a restore, the database
-- may have given them to other rows; the nonce and the fingerprint detect that.

-- A run to start.
create type pipeline.new_run as (
    id          bigint,
    nonce       bigint, -- drawn at random: tells a start that is sent again from a run of somebody else
    rerun_of    bigint,
    event_level pipeline.event_level,
    key         text,
    params_hash bytea,  -- of the params that the key stands for
    actor       text,
    params      json,
    callbacks   json,
    tags        text[]
);

-- A step of a run to start.
create type pipeline.new_step as (
    run        bigint,
    token      bigint, -- of the first attempt, if the step is offered to a worker of the calling process
    no         integer,
    open_edges integer,
    params     json
);

create type pipeline.start_result as enum (
    'started',              -- every run exists now
    'no_graph',             -- nothing was written: no graph has this id and this fingerprint
    'ids_taken',            -- nothing was written: another run has one of the ids; the client takes other ids
    'key_conflict'          -- nothing was written: a key belongs to a run with other params
);

create type pipeline.start_outcome as enum (
    'new',                  -- this call started the run
    'sent',                 -- an earlier call with the same nonce, whose answer was lost, started the run
    'same',                 -- a run with this key and the same params exists
    'other'                 -- a run with this key and other params exists
);

-- Starts runs of one graph.
--
-- p_steps holds the steps of all runs, in the order of the runs. Steps that are missing at the end are inserted
-- by insert_steps_v1 in the same transaction. With p_chained, the runs wait in a chain whose edges the caller
-- inserts in the same transaction.
--
-- Steps with a token are handed over to worker p_worker: their jobs are claimed for it and never ready, provided
-- that p_database is this database and that no queue of a first step is paused. `handed_over` says whether.
--
-- `ids` and `outcomes` have an element for each run; both are null if all runs are new.
create function pipeline.start_runs_v1(
    p_graph bigint, p_fingerprint bytea, p_chained boolean, p_runs pipeline.new_run[],
    p_steps pipeline.new_step[], p_worker bigint, p_database text,
    out result pipeline.start_result, out ids bigint[], out outcomes pipeline.start_outcome[],
    out handed_over boolean
)
language plpgsql as $$
#variable_conflict use_column
declare
    v_now timestamptz := pipeline.now();
    v_graph record;
    v_new bigint[];             -- the ids of the inserted runs
    v_steps pipeline.new_step[] := p_steps;
begin
    handed_over := false;
    select g.size, g.pipeline, g.deadline_ms into v_graph from pipeline.graphs g
    where g.id = p_graph and g.fingerprint = p_fingerprint;
    if not found then
        result := 'no_graph';
        return;
    end if;
    result := 'started';

    with fresh as (
        insert into pipeline.runs (id, nonce, graph, created_at, started_at, deadline_at, rerun_of, live_steps,
                                   events, status, event_level, pipeline, actor, params, callbacks, tags)
        select r.id, r.nonce, p_graph, v_now, case when not p_chained then v_now end,
               case when not p_chained then v_now + v_graph.deadline_ms * interval '1 ms' end,
               r.rerun_of, v_graph.size, (r.event_level <> 'none')::integer,
               case when p_chained then 'pending' else 'running' end::pipeline.run_status, r.event_level,
               v_graph.pipeline, r.actor, r.params, pipeline.checked_callbacks(r.callbacks), r.tags
        from unnest(p_runs) as r
        where r.key is null
        on conflict (id) do nothing
        returning runs.id
    )
    select coalesce(array_agg(fresh.id), '{}') into v_new from fresh;

    if cardinality(v_new) < cardinality(p_runs) then
        select s.result, s.ids, s.outcomes into result, ids, outcomes
        from pipeline.start_keyed_runs_v1(p_graph, v_graph.pipeline, v_graph.deadline_ms, v_graph.size,
                                      p_chained, p_runs, v_new) as s;
        if result <> 'started' or 'new' <> all (outcomes) then
            return;
        end if;
        -- The steps of the other runs exist.
        select array_agg(i.id) filter (where i.outcome = 'new') into v_new
        from unnest(ids, outcomes) as i (id, outcome);
        select array_agg((s.run, s.token, s.no, s.open_edges, s.params)::pipeline.new_step order by s.ord)
        into v_steps
        from unnest(p_steps) with ordinality as s (run, token, no, open_edges, params, ord)
        where outcomes[(s.ord - 1) / v_graph.size + 1] = 'new';
    end if;

    insert into pipeline.events (run, no, at, status)
    select r.id, 1, v_now, r.status::text
    from unnest(v_new) as n (id)
    cross join lateral (
        select r.id, r.status from pipeline.runs r where r.id = n.id and r.event_level <> 'none' offset 0
    ) as r;

    handed_over := pipeline.insert_steps_v1(p_graph, p_chained, v_steps, p_worker, p_database);
end $$;
