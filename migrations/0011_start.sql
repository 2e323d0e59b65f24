-- Starts runs of one graph: the runs, their steps and the jobs of the first ones appear together.
-- p_steps holds the params of all steps of all runs, end to end; p_pending says which of them wait in
-- a chain, whose edges the caller inserts. Returns for each run its id and `found`: null where it is new, true where its key leads to a run with the same params, false where
-- that run has others. Returns nothing at all where the graph is not there.
create function pipeline.start_v1(
    p_graph bigint, p_ids bigint[], p_history smallint[], p_params json[], p_callbacks json[],
    p_hashes bytea[], p_keys text[], p_actors text[], p_tags json[], p_rerun_of bigint[],
    p_pending boolean[], p_steps json[]
) returns table (ord bigint, id bigint, found boolean)
language plpgsql
set enable_seqscan to off set enable_bitmapscan to off set jit to off
set plan_cache_mode to force_generic_plan
as $$
#variable_conflict use_column
declare
    v_now timestamptz := pipeline.now();
    v_graph pipeline.graphs;
    v_new bigint[];
    v_is_new boolean[];         -- of each run
    v_keyed record;
    v_there record;
begin
    select * into v_graph from pipeline.graphs g where g.id = p_graph;
    if not found then
        return;
    end if;

    with fresh as (
        insert into pipeline.runs (id, graph, created_at, started_at, deadline_at, rerun_of, live,
                                   events, status, history, pipeline, actor, params, callbacks, tags)
        select r.id, p_graph, v_now, case when not r.pending then v_now end,
               case when not r.pending then v_now + v_graph.deadline_ms * interval '1 ms' end,
               r.rerun_of, v_graph.size, (r.history > 0)::integer,
               case when r.pending then 'pending' else 'running' end::pipeline.run_status, r.history,
               v_graph.pipeline, r.actor, r.params, r.callbacks,
               (select array_agg(tag) from json_array_elements_text(r.tags) as tag)
        from unnest(p_ids, p_history, p_params, p_callbacks, p_keys, p_actors, p_tags, p_rerun_of,
                    p_pending)
             as r (id, history, params, callbacks, key, actor, tags, rerun_of, pending)
        where r.key is null
        -- One that is there was sent before, and the answer was lost.
        on conflict (id) do nothing
        returning runs.id
    )
    select coalesce(array_agg(fresh.id), '{}') into v_new from fresh;
    -- All, or none where they were sent before: then nobody goes through the list.
    select array_agg(r.key is null and (v_new <> '{}')
                     and (cardinality(v_new) = r.unkeyed or r.id = any (v_new)) order by r.ord)
    into v_is_new
    from (
        select r.*, count(*) filter (where r.key is null) over () as unkeyed
        from unnest(p_ids, p_keys) with ordinality as r (id, key, ord)
    ) as r;
    return query
    select r.ord, r.id, null::boolean
    from unnest(p_ids, p_keys) with ordinality as r (id, key, ord) where r.key is null;

    -- In the order of their keys: two that start the same ones wait for each other in one direction.
    for v_keyed in
        select r.*
        from unnest(p_ids, p_history, p_params, p_callbacks, p_hashes, p_keys, p_actors, p_tags,
                    p_rerun_of, p_pending) with ordinality
             as r (id, history, params, callbacks, hash, key, actor, tags, rerun_of, pending, ord)
        where r.key is not null
        order by r.key, r.ord
    loop
        loop
            insert into pipeline.runs (id, graph, created_at, started_at, deadline_at, rerun_of, live,
                                       events, status, history, pipeline, actor, params, callbacks,
                                       tags, idempotency_key, params_hash)
            values (v_keyed.id, p_graph, v_now, case when not v_keyed.pending then v_now end,
                    case when not v_keyed.pending
                         then v_now + v_graph.deadline_ms * interval '1 ms' end,
                    v_keyed.rerun_of, v_graph.size, (v_keyed.history > 0)::integer,
                    case when v_keyed.pending then 'pending' else 'running' end::pipeline.run_status,
                    v_keyed.history, v_graph.pipeline,
                    v_keyed.actor, v_keyed.params, v_keyed.callbacks,
                    (select array_agg(tag) from json_array_elements_text(v_keyed.tags) as tag),
                    v_keyed.key, v_keyed.hash)
            on conflict do nothing;
            if found then
                v_is_new[v_keyed.ord] := true;
                return query values (v_keyed.ord, v_keyed.id, null::boolean);
                exit;
            end if;
            select r.id, r.params_hash into v_there from pipeline.runs r
            where r.pipeline = v_graph.pipeline and r.idempotency_key = v_keyed.key;
            if found then
                return query values (
                    v_keyed.ord, v_there.id,
                    case when v_there.id <> v_keyed.id then v_there.params_hash = v_keyed.hash end
                );
                exit;
            end if;
            -- It was deleted between the two statements: its key is free again.
        end loop;
    end loop;
    if true <> all (v_is_new) then
        return;
    end if;

    insert into pipeline.steps (run, no, waits, status, enqueued_at, params)
    select s.run, s.no, n.waits,
           case when n.waits = 0 and not s.pending then 'enqueued' else 'pending'
           end::pipeline.step_status,
           case when n.waits = 0 and not s.pending then v_now end, s.params
    from (
        select p_ids[r.at] as run, p_pending[r.at] as pending, r.no, e.params
        from unnest(p_steps) with ordinality as e (params, at)
        cross join lateral (
            select ((e.at - 1) / v_graph.size + 1)::integer as at,
                   ((e.at - 1) % v_graph.size)::integer as no
        ) as r
        where v_is_new[r.at]
    ) as s
    cross join lateral (
        select n.waits from pipeline.nodes n where n.graph = p_graph and n.no = s.no offset 0
    ) as n;

    insert into pipeline.events (run, no, at, status)
    select r.id, 1, v_now, case when r.pending then 'pending' else 'running' end
    from unnest(p_ids, p_history, p_pending, v_is_new) as r (id, history, pending, is_new)
    where r.history > 0 and r.is_new;

    insert into pipeline.jobs (id, status, run_at, created_at, kind, queue, priority, attempts,
                               lease_ms, args)
    select pipeline.step_id(r.id, n.no),
           case when n.delay_ms > 0 then 'later' else 'ready' end::pipeline.job_status,
           v_now + n.delay_ms * interval '1 ms', v_now, n.job, n.queue, n.priority, n.attempts,
           n.lease_ms, 'null'
    from unnest(p_ids, p_pending, v_is_new) as r (id, pending, is_new)
    join pipeline.nodes n on n.graph = p_graph and n.waits = 0
    where r.is_new and not r.pending;
    if not found then
        return;
    end if;

    perform pipeline.announce_v1(
        array(select n.queue from pipeline.nodes n where n.graph = p_graph and n.waits = 0), v_now
    );
end $$;
