-- Starts runs of one graph: inserts the runs, their steps, and the jobs of the first steps in one transaction.
--
-- p_steps holds the params of the steps of all runs, one run after the other. Steps that are missing at the
-- end are inserted with start_steps_v1 in the same transaction. p_pending says which runs wait in a chain; the
-- caller inserts the edges of the chain. Returns the id of each run and an outcome:
--   new    this call started the run
--   sent   an earlier call with the same nonce, whose answer was lost, started the run
--   same   a run with this key and the same params exists
--   other  a run with this key and other params exists
--   taken  another run has the id: no run was written; the caller takes other ids
-- Returns no rows if no graph has this id and this fingerprint.
--
-- The run ids and the graph's id come from the client's memory. After a failover or a restore, the database may
-- have given them to other rows; the nonce and the fingerprint detect that.
create function pipeline.start_v1(
    p_graph bigint, p_fingerprint bytea, p_ids bigint[], p_nonces bigint[], p_history smallint[],
    p_params json[], p_callbacks json[], p_hashes bytea[], p_keys text[], p_actors text[], p_tags json[],
    p_rerun_of bigint[], p_pending boolean[], p_steps json[]
) returns table (ord bigint, id bigint, outcome text)
language plpgsql
set enable_seqscan to off set enable_bitmapscan to off set jit to off
set plan_cache_mode to force_generic_plan
as $$
#variable_conflict use_column
declare
    v_now timestamptz := pipeline.now();
    v_graph pipeline.graphs;
    v_new bigint[];             -- the ids of the inserted runs
    v_is_new boolean[];         -- for each run, whether it was inserted
    v_unkeyed bigint;
    v_keyed record;
    v_there record;
    v_tries integer;
begin
    select * into v_graph from pipeline.graphs g
    where g.id = p_graph and g.fingerprint = p_fingerprint;
    if not found then
        return;
    end if;
    -- When the run ends, fire_v1 reads single elements of these arrays, which fails for some valid json values.
    -- Clients check the callbacks; this check refuses a run that could never end.
    perform from unnest(p_callbacks) as c (params)
    where c.params is not null and jsonb_typeof(c.params::jsonb) <> 'array';

    with fresh as (
        insert into pipeline.runs (id, nonce, graph, created_at, started_at, deadline_at, rerun_of, live,
                                   events, status, history, pipeline, actor, params, callbacks, tags)
        select r.id, r.nonce, p_graph, v_now, case when not r.pending then v_now end,
               case when not r.pending then v_now + v_graph.deadline_ms * interval '1 ms' end,
               r.rerun_of, v_graph.size, (r.history > 0)::integer,
               case when r.pending then 'pending' else 'running' end::pipeline.run_status, r.history,
               v_graph.pipeline, r.actor, r.params, r.callbacks,
               (select array_agg(tag) from json_array_elements_text(r.tags) as tag)
        from unnest(p_ids, p_nonces, p_history, p_params, p_callbacks, p_keys, p_actors, p_tags,
                    p_rerun_of, p_pending)
             as r (id, nonce, history, params, callbacks, key, actor, tags, rerun_of, pending)
        where r.key is null
        on conflict (id) do nothing
        returning runs.id
    )
    select coalesce(array_agg(fresh.id), '{}') into v_new from fresh;
    select count(*) into v_unkeyed from unnest(p_keys) as r (key) where r.key is null;
    if cardinality(v_new) < v_unkeyed then
        return query
        select r.ord, r.id, 'taken'
        from unnest(p_ids, p_nonces, p_keys) with ordinality as r (id, nonce, key, ord)
        where r.key is null
          and not exists (select from pipeline.runs t where t.id = r.id and t.nonce = r.nonce);
        if found then
            delete from pipeline.runs r where r.id = any (v_new);
            return;
        end if;
    end if;
    -- Usually all runs without a key are new, or none of them: then no id is searched in the list.
    select array_agg(r.key is null and (v_new <> '{}')
                     and (cardinality(v_new) = v_unkeyed or r.id = any (v_new)) order by r.ord)
    into v_is_new
    from unnest(p_ids, p_keys) with ordinality as r (id, key, ord);
    return query
    select r.ord, r.id, case when r.is_new then 'new' else 'sent' end
    from unnest(p_ids, p_keys, v_is_new) with ordinality as r (id, key, is_new, ord)
    where r.key is null;

    -- Sorted by key: two transactions that start runs with the same keys lock them in the same order and
    -- cannot deadlock. Keys compare by their bytes, as the client does when it sorts runs into pages.
    for v_keyed in
        select r.*
        from unnest(p_ids, p_nonces, p_history, p_params, p_callbacks, p_hashes, p_keys, p_actors,
                    p_tags, p_rerun_of, p_pending) with ordinality
             as r (id, nonce, history, params, callbacks, hash, key, actor, tags, rerun_of, pending, ord)
        where r.key is not null
        order by r.key collate "C", r.ord
    loop
        v_tries := 0;
        loop
            insert into pipeline.runs (id, nonce, graph, created_at, started_at, deadline_at, rerun_of,
                                       live, events, status, history, pipeline, actor, params, callbacks,
                                       tags, idempotency_key, params_hash)
            values (v_keyed.id, v_keyed.nonce, p_graph, v_now, case when not v_keyed.pending then v_now end,
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
                v_new := v_new || v_keyed.id;
                v_is_new[v_keyed.ord] := true;
                return query values (v_keyed.ord, v_keyed.id, 'new');
                exit;
            end if;
            select r.id, r.nonce, r.params_hash into v_there from pipeline.runs r
            where r.pipeline = v_graph.pipeline and r.idempotency_key = v_keyed.key;
            if found then
                return query values (
                    v_keyed.ord, v_there.id,
                    case when v_there.nonce = v_keyed.nonce then 'sent'
                         when v_there.params_hash = v_keyed.hash then 'same'
                         else 'other' end
                );
                exit;
            end if;
            if exists (select from pipeline.runs r where r.id = v_keyed.id) then
                delete from pipeline.runs r where r.id = any (v_new);
                return query values (v_keyed.ord, v_keyed.id, 'taken');
                return;
            end if;
            -- The other run was deleted between the statements: the key, or the id, is free again.
            v_tries := v_tries + 1;
            if v_tries = 100 then
                raise serialization_failure using message = format(
                    'a key of pipeline %s was taken and given back 100 times meanwhile',
                    v_graph.pipeline);
            end if;
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

-- Inserts further steps, from number p_from on, of a run that start_v1 has inserted in this transaction.
create function pipeline.start_steps_v1(p_run bigint, p_from integer, p_steps json[]) returns void
language plpgsql
set enable_seqscan to off set enable_bitmapscan to off set jit to off
set plan_cache_mode to force_generic_plan
as $$
begin
    insert into pipeline.steps (run, no, waits, status, enqueued_at, params)
    select p_run, s.no, n.waits,
           case when n.waits = 0 and s.started_at is not null then 'enqueued' else 'pending'
           end::pipeline.step_status,
           case when n.waits = 0 then s.started_at end, s.params
    from (
        select r.graph, r.started_at, p_from + (e.at - 1)::integer as no, e.params
        from unnest(p_steps) with ordinality as e (params, at)
        cross join pipeline.runs r
        where r.id = p_run
    ) as s
    cross join lateral (
        select n.waits from pipeline.nodes n where n.graph = s.graph and n.no = s.no offset 0
    ) as n;
end $$;

-- Starts a new run with the graph and the params of run p_run. Returns the new run's id and an outcome, as
-- start_v1 does; no row if p_run does not exist.
create function pipeline.rerun_v1(p_run bigint, p_id bigint, p_nonce bigint)
returns table (id bigint, outcome text)
language plpgsql
set enable_seqscan to off set enable_bitmapscan to off set jit to off
set plan_cache_mode to force_generic_plan
as $$
#variable_conflict use_column
begin
    select s.id, s.outcome into id, outcome
    from pipeline.runs r
    join pipeline.graphs g on g.id = r.graph
    cross join lateral pipeline.start_v1(
        g.id, g.fingerprint, array[p_id], array[p_nonce], array[r.history], array[r.params],
        array[r.callbacks], array[null::bytea], array[null::text], array[r.actor],
        array[to_json(r.tags)], array[r.id], array[false], '{}'
    ) as s
    where r.id = p_run;
    if not found then
        return;
    end if;
    if outcome = 'new' then
        -- Copied row by row, because the params of all steps together may be too large for one array.
        insert into pipeline.steps (run, no, waits, status, enqueued_at, params)
        select p_id, s.no, n.waits,
               case when n.waits = 0 then 'enqueued' else 'pending' end::pipeline.step_status,
               case when n.waits = 0 then r.started_at end, s.params
        from pipeline.runs r
        join pipeline.steps s on s.run = p_run
        join pipeline.nodes n on n.graph = r.graph and n.no = s.no
        where r.id = p_id;
    end if;
    return next;
end $$;
