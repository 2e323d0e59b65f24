-- Starts runs of one graph: inserts the runs, their steps, and the jobs of their first steps.
--
-- A call is atomic without a transaction around it: where the answer says that nothing was started, nothing was
-- written. Run ids and the graph's id come from the client's memory. After a failover or a restore, the database
-- may have given them to other rows; the nonce and the fingerprint detect that.

-- A run to start.
create type pipeline.new_run as (
    id          bigint,
    nonce       bigint,     -- drawn at random: tells a start that is sent again from a run of somebody else
    rerun_of    bigint,
    history     smallint,
    key         text,
    params_hash bytea,      -- of the params that the key stands for
    actor       text,
    params      json,
    callbacks   json,
    tags        text[]
);

-- A step of a run to start.
create type pipeline.new_step as (
    run    bigint,
    token  bigint,          -- of the first attempt, if the step is offered to a worker of the calling process
    no     integer,
    waits  integer,
    params json
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
create function pipeline.start_v1(
    p_graph bigint, p_fingerprint bytea, p_chained boolean, p_runs pipeline.new_run[],
    p_steps pipeline.new_step[], p_worker bigint, p_database text,
    out result pipeline.start_result, out ids bigint[], out outcomes pipeline.start_outcome[],
    out handed_over boolean
)
language plpgsql
set enable_seqscan to off set enable_bitmapscan to off set jit to off
set plan_cache_mode to force_generic_plan
as $$
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
        insert into pipeline.runs (id, nonce, graph, created_at, started_at, deadline_at, rerun_of, live,
                                   events, status, history, pipeline, actor, params, callbacks, tags)
        select r.id, r.nonce, p_graph, v_now, case when not p_chained then v_now end,
               case when not p_chained then v_now + v_graph.deadline_ms * interval '1 ms' end,
               r.rerun_of, v_graph.size, (r.history > 0)::integer,
               case when p_chained then 'pending' else 'running' end::pipeline.run_status, r.history,
               v_graph.pipeline, r.actor, r.params, pipeline.checked_callbacks(r.callbacks), r.tags
        from unnest(p_runs) as r
        where r.key is null
        on conflict (id) do nothing
        returning runs.id
    )
    select coalesce(array_agg(fresh.id), '{}') into v_new from fresh;

    if cardinality(v_new) < cardinality(p_runs) then
        select s.result, s.ids, s.outcomes into result, ids, outcomes
        from pipeline.start_others_v1(p_graph, v_graph.pipeline, v_graph.deadline_ms, v_graph.size,
                                      p_chained, p_runs, v_new) as s;
        if result <> 'started' or 'new' <> all (outcomes) then
            return;
        end if;
        -- The steps of the other runs exist.
        select array_agg(i.id) filter (where i.outcome = 'new') into v_new
        from unnest(ids, outcomes) as i (id, outcome);
        select array_agg((s.run, s.token, s.no, s.waits, s.params)::pipeline.new_step order by s.ord)
        into v_steps
        from unnest(p_steps) with ordinality as s (run, token, no, waits, params, ord)
        where outcomes[(s.ord - 1) / v_graph.size + 1] = 'new';
    end if;

    insert into pipeline.events (run, no, at, status)
    select r.id, 1, v_now, r.status::text
    from unnest(v_new) as n (id)
    cross join lateral (
        select r.id, r.status from pipeline.runs r where r.id = n.id and r.history > 0 offset 0
    ) as r;

    handed_over := pipeline.insert_steps_v1(p_graph, p_chained, v_steps, p_worker, p_database);
end $$;

-- Starts the runs that have a key, after start_v1 has inserted the others. Returns the id and the outcome of
-- each run. Deletes the runs of this call again if the result is not 'started'.
create function pipeline.start_others_v1(
    p_graph bigint, p_pipeline text, p_deadline_ms bigint, p_size integer, p_chained boolean,
    p_runs pipeline.new_run[], p_new bigint[],
    out result pipeline.start_result, out ids bigint[], out outcomes pipeline.start_outcome[]
)
language plpgsql
as $$
#variable_conflict use_column
declare
    v_now timestamptz := pipeline.now();
    v_new bigint[] := p_new;    -- the ids of the inserted runs
    v_taken boolean;
    v_keyed record;
    v_there record;
    v_outcome pipeline.start_outcome;
    v_tries integer;
begin
    -- Usually all runs without a key are new, or none of them: then no id is searched in the list.
    select array_agg(r.id order by r.ord),
           array_agg(case when r.key is not null then null
                          when r.all_new or r.id = any (v_new) then 'new'
                          else 'sent' end::pipeline.start_outcome order by r.ord),
           bool_or(r.key is null and not r.all_new and r.id <> all (v_new) and not exists (
               select from pipeline.runs t where t.id = r.id and t.nonce = r.nonce
           ))
    into ids, outcomes, v_taken
    from (
        select r.id, r.nonce, r.key, r.ord,
               count(*) filter (where r.key is null) over () = cardinality(v_new) as all_new
        from unnest(p_runs) with ordinality
             as r (id, nonce, rerun_of, history, key, params_hash, actor, params, callbacks, tags, ord)
    ) as r;
    if v_taken then
        delete from pipeline.runs r where r.id = any (v_new);
        select 'ids_taken' into result, ids, outcomes;
        return;
    end if;

    -- Sorted by key: two transactions that start runs with the same keys lock them in the same order and
    -- cannot deadlock. Keys compare by their bytes, as the client does when it sorts runs into pages.
    for v_keyed in
        select r.*
        from unnest(p_runs) with ordinality
             as r (id, nonce, rerun_of, history, key, params_hash, actor, params, callbacks, tags, ord)
        where r.key is not null
        order by r.key collate "C", r.ord
    loop
        v_tries := 0;
        v_outcome := null;
        while v_outcome is null loop
            insert into pipeline.runs (id, nonce, graph, created_at, started_at, deadline_at, rerun_of,
                                       live, events, status, history, pipeline, actor, params, callbacks,
                                       tags, idempotency_key, params_hash)
            values (v_keyed.id, v_keyed.nonce, p_graph, v_now, case when not p_chained then v_now end,
                    case when not p_chained then v_now + p_deadline_ms * interval '1 ms' end,
                    v_keyed.rerun_of, p_size, (v_keyed.history > 0)::integer,
                    case when p_chained then 'pending' else 'running' end::pipeline.run_status,
                    v_keyed.history, p_pipeline, v_keyed.actor, v_keyed.params,
                    pipeline.checked_callbacks(v_keyed.callbacks), v_keyed.tags, v_keyed.key,
                    v_keyed.params_hash)
            on conflict do nothing;
            if found then
                v_new := v_new || v_keyed.id;
                v_outcome := 'new';
                exit;
            end if;
            select r.id, r.nonce, r.params_hash into v_there from pipeline.runs r
            where r.pipeline = p_pipeline and r.idempotency_key = v_keyed.key;
            if found then
                ids[v_keyed.ord] := v_there.id;
                v_outcome := case when v_there.nonce = v_keyed.nonce then 'sent'
                                  when v_there.params_hash = v_keyed.params_hash then 'same'
                                  else 'other' end;
                exit;
            end if;
            if exists (select from pipeline.runs r where r.id = v_keyed.id) then
                delete from pipeline.runs r where r.id = any (v_new);
                select 'ids_taken' into result, ids, outcomes;
                return;
            end if;
            -- The other run was deleted between the statements: the key, or the id, is free again.
            v_tries := v_tries + 1;
            if v_tries = 100 then
                raise serialization_failure using message = format(
                    'a key of pipeline %s was taken and given back 100 times meanwhile', p_pipeline);
            end if;
        end loop;
        outcomes[v_keyed.ord] := v_outcome;
    end loop;
    result := 'started';
    if 'other' = any (outcomes) then
        delete from pipeline.runs r where r.id = any (v_new);
        result := 'key_conflict';
    end if;
end $$;

-- Inserts steps of runs that were inserted in this transaction, and the jobs of the first steps. Returns whether
-- the steps with a token were handed over: see start_v1.
create function pipeline.insert_steps_v1(
    p_graph bigint, p_chained boolean, p_steps pipeline.new_step[], p_worker bigint, p_database text
) returns boolean
language plpgsql
set enable_seqscan to off set enable_bitmapscan to off set jit to off
set plan_cache_mode to force_generic_plan
as $$
declare
    v_now timestamptz := pipeline.now();
    v_here boolean := false;
begin
    if p_chained then
        insert into pipeline.steps (run, no, waits, status, params)
        select s.run, s.no, s.waits, 'pending', s.params from unnest(p_steps) as s;
        return false;
    end if;
    insert into pipeline.steps (run, no, waits, status, enqueued_at, params)
    select s.run, s.no, s.waits,
           case when s.waits = 0 then 'enqueued' else 'pending' end::pipeline.step_status,
           case when s.waits = 0 then v_now end, s.params
    from unnest(p_steps) as s;

    if p_worker is not null and p_database = pipeline.database_v1() then
        v_here := not exists (
            select from pipeline.queues q
            join pipeline.nodes n on n.graph = p_graph and n.waits = 0 and n.queue = q.name
            where q.paused_at is not null
        );
    end if;
    insert into pipeline.jobs (id, status, token, attempt, worker, claimed_at, lease_until, run_at,
                               created_at, kind, queue, priority, attempts, lease_ms, args)
    select pipeline.step_id(s.run, s.no),
           case when claim.here then 'running' when n.delay_ms > 0 then 'later' else 'ready'
           end::pipeline.job_status,
           case when claim.here then s.token end,
           claim.here::integer,
           case when claim.here then p_worker end,
           case when claim.here then v_now end,
           case when claim.here then v_now + n.lease_ms * interval '1 ms' end,
           v_now + n.delay_ms * interval '1 ms', v_now, n.job, n.queue, n.priority, n.attempts,
           n.lease_ms, 'null'
    from unnest(p_steps) as s
    cross join lateral (select v_here and s.token is not null as here) as claim
    cross join lateral (
        select n.job, n.queue, n.priority, n.attempts, n.lease_ms, n.delay_ms from pipeline.nodes n
        where n.graph = p_graph and n.no = s.no offset 0
    ) as n
    where s.waits = 0;
    if not found then
        return false;
    end if;

    if not v_here or exists (select from unnest(p_steps) as s where s.waits = 0 and s.token is null) then
        perform pipeline.announce_v1(
            array(select n.queue from pipeline.nodes n where n.graph = p_graph and n.waits = 0), v_now
        );
    end if;
    return v_here;
end $$;

-- Returns the params of callbacks unchanged, or raises an error. When the run ends, fire_v1 reads single elements
-- of this array, which fails for some valid json values. Clients check the callbacks; this check refuses a run
-- that could never end.
create function pipeline.checked_callbacks(p_callbacks json) returns json
language sql immutable as $$
    select case when p_callbacks is null or jsonb_typeof(p_callbacks::jsonb) is not null then p_callbacks end
$$;

-- Starts a new run with the graph and the params of run p_run. Returns start_v1's result and outcome; no row if
-- p_run does not exist.
create function pipeline.rerun_v1(p_run bigint, p_id bigint, p_nonce bigint)
returns table (id bigint, result pipeline.start_result)
language plpgsql
set enable_seqscan to off set enable_bitmapscan to off set jit to off
set plan_cache_mode to force_generic_plan
as $$
#variable_conflict use_column
declare
    v_now timestamptz := pipeline.now();
    v_graph bigint;
    v_outcomes pipeline.start_outcome[];
begin
    select r.graph, p_id, s.result, s.outcomes into v_graph, id, result, v_outcomes
    from pipeline.runs r
    join pipeline.graphs g on g.id = r.graph
    cross join lateral pipeline.start_v1(
        g.id, g.fingerprint, false,
        array[(p_id, p_nonce, r.id, r.history, null, null, r.actor, r.params, r.callbacks, r.tags)
              ::pipeline.new_run],
        '{}', null, null
    ) as s
    where r.id = p_run;
    if not found then
        return;
    end if;
    if result = 'started' and v_outcomes is null then
        -- Copied row by row, because the params of all steps together may be too large for one array.
        insert into pipeline.steps (run, no, waits, status, enqueued_at, params)
        select p_id, s.no, n.waits,
               case when n.waits = 0 then 'enqueued' else 'pending' end::pipeline.step_status,
               case when n.waits = 0 then v_now end, s.params
        from pipeline.steps s
        join pipeline.nodes n on n.graph = v_graph and n.no = s.no
        where s.run = p_run;
        insert into pipeline.jobs (id, status, run_at, created_at, kind, queue, priority, attempts,
                                   lease_ms, args)
        select pipeline.step_id(p_id, n.no),
               case when n.delay_ms > 0 then 'later' else 'ready' end::pipeline.job_status,
               v_now + n.delay_ms * interval '1 ms', v_now, n.job, n.queue, n.priority, n.attempts,
               n.lease_ms, 'null'
        from pipeline.nodes n
        where n.graph = v_graph and n.waits = 0;
        perform pipeline.announce_v1(
            array(select n.queue from pipeline.nodes n where n.graph = v_graph and n.waits = 0), v_now
        );
    end if;
    return next;
end $$;
