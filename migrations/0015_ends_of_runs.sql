-- Returns the given runs as if steps had ended, so that finish_v1 checks whether they are over.
create function pipeline.unchanged_runs(p_runs bigint[]) returns pipeline.ended_step[]
language sql stable as $$
    select array_agg(row(r.id, null, null, null, null, null, null, null, null, null, null)::pipeline.ended_step)
    from unnest(p_runs) as r (id)
$$;

-- Returns steps that were skipped or cancelled with their whole run, for finish_v1.
create function pipeline.ended_with_run(p_run bigint, p_no integer, p_status pipeline.step_status, p_attempt smallint)
returns pipeline.ended_step
language sql immutable as $$
    select row(p_run, p_no, null, p_status, false, false, false, p_attempt, null, null, null)::pipeline.ended_step
$$;

-- Finishes the transaction in which steps have ended: enqueues the steps that can start, counts the ended steps, and
-- for runs that have ended enqueues the callbacks and settles the chained runs. With p_is_chain_locked, this
-- transaction has already locked all pending runs that are reachable through chains. Otherwise this function locks
-- them, without waiting; if another transaction holds one of them, PB001 is raised (settle_chains_v1).
create function pipeline.finish_v1(
    p_ended pipeline.ended_step[], p_released pipeline.released_step[], p_worker bigint,
    p_offers pipeline.slot_offer[], p_kinds text[], p_is_chain_locked boolean,
    out queues text[], out started pipeline.started_step[], out over pipeline.ended_run[]
)
language plpgsql as $$
declare
    v_enqueued record;
    v_over pipeline.ended_run[];
    v_ids bigint[];
    v_chain record;
    v_begun record;
    v_is_locked boolean := p_is_chain_locked;
begin
    if p_released is not null then
        v_enqueued := pipeline.enqueue_steps_v1(p_released, p_worker, p_offers, p_kinds);
        queues := v_enqueued.queues;
        started := v_enqueued.started;
    end if;
    if p_ended is null and p_released is null then
        return;
    end if;
    v_over := pipeline.count_ended_v1(p_ended, p_released);
    over := v_over;
    while v_over is not null loop
        v_ids := array(select o.id from unnest(v_over) as o);
        queues := queues || pipeline.fire_v1(v_ids);
        exit when not exists (select from pipeline.chains c where c.up = any (v_ids));
        -- Level by level: a skipped run decides the runs that are chained to it.
        v_chain := pipeline.settle_chains_v1(v_ids, v_is_locked);
        v_is_locked := true;
        v_over := null;
        if v_chain.skipped is not null then
            v_over := pipeline.count_ended_v1(v_chain.skipped, null);
            over := over || v_over;
        end if;
        if v_chain.ready is not null then
            v_begun := pipeline.begin_v1(v_chain.ready, true);
            queues := queues || v_begun.queues;
            over := over || v_begun.over;
        end if;
    end loop;
end $$;

-- Rule 16: enqueues the callbacks of runs that have ended, once in each round. Returns the queues of the
-- callbacks.
create function pipeline.fire_v1(p_runs bigint[]) returns text[]
language plpgsql as $$
declare
    v_now timestamptz := pipeline.now();
    v_queues text[];
begin
    with ended as (
        update pipeline.runs r set callbacks_dispatched_at = v_now
        where r.id = any (p_runs) and r.callbacks is not null and r.callbacks_dispatched_at is null
        returning r.*
    ), due as (
        select nextval('pipeline.ids') as id, r.id as run, r.round, c.pos, c.job, c.queue, c.priority,
               c.attempts, c.lease_ms, c.options, r.callbacks -> c.pos as args,
               jsonb_build_object(
                   'run', r.id, 'pipeline', r.pipeline, 'status', r.status, 'round', r.round,
                   'deadline_exceeded', r.drain is not distinct from 'deadline',
                   'failed', pipeline.steps_with_errors_v1(r.id, r.graph, 'failed'),
                   'cancelled', pipeline.steps_with_errors_v1(r.id, r.graph, 'cancelled')
               ) as input
        from ended r
        join pipeline.callbacks c on c.graph = r.graph
        where c.fires = 'complete' or c.fires = 'success' and r.status = 'succeeded'
           or c.fires = 'failure' and r.status in ('failed', 'halted')
    ), fired as (
        insert into pipeline.fired (run, round, pos, job)
        select due.run, due.round, due.pos, due.id from due
    ), put as (
        insert into pipeline.jobs (id, status, run_at, created_at, kind, queue, priority, attempts,
                                   lease_ms, args, bytes, input, options)
        select due.id, 'ready', v_now, v_now, due.job, due.queue, due.priority, due.attempts,
               due.lease_ms, due.args, pipeline.large_v1(due.args), due.input, due.options
        from due
        returning queue
    )
    select array_agg(distinct put.queue) into v_queues from put;
    return v_queues;
end $$;

-- Returns the first hundred steps of a run that ended with this status and have an error. A cancelled step has
-- an error if one of its attempts failed before the run was cancelled.
create function pipeline.steps_with_errors_v1(
    p_run bigint, p_graph bigint, p_status pipeline.step_status
) returns jsonb
language plpgsql as $$
begin
    return coalesce((
        select jsonb_agg(jsonb_build_object('step', f.key, 'class', f.error_class,
                                            'message', f.error_message) order by f.no)
        from (
            select n.key, s.no, s.error_class, s.error_message
            from pipeline.steps s
            join pipeline.nodes n on n.graph = p_graph and n.no = s.no
            where s.run = p_run and s.status = p_status and s.error_class is not null
            order by s.no
            limit 100
        ) as f
    ), '[]');
end $$;

-- Rule 17: returns which of the runs that are chained to p_ended can begin now, and which are skipped with all
-- their steps. Without p_locked, first locks every pending run that is reachable from p_ended, without waiting: if
-- another transaction holds one of them, PB001 is raised, and its DETAIL lists the runs of p_ended that lead to
-- a held run, separated by commas. The caller defers these runs and retries the others.
--
-- A run that was chained or reopened after this transaction read the chains may be held too. This function
-- ignores such a run: it has a request of kind `chain`, which reads how the runs of p_ended have ended.
create function pipeline.settle_chains_v1(
    p_ended bigint[], p_locked boolean,
    out skipped pipeline.ended_step[], out ready bigint[]
)
language plpgsql as $$
declare
    v_now timestamptz := pipeline.now();
    v_reached bigint[];
    v_mine bigint[];
    v_held bigint[];
    v_skipped bigint[];
begin
    v_reached := case when p_locked
        then array(select distinct c.down from pipeline.chains c where c.up = any (p_ended))
        else pipeline.reach_v1(p_ended) end;
    with mine as (
        select r.id from pipeline.runs r
        where r.id = any (v_reached) and r.status = 'pending'
        order by r.id for no key update skip locked
    )
    select coalesce(array_agg(mine.id), '{}') into v_mine from mine;
    if not p_locked and cardinality(v_mine) < cardinality(v_reached) then
        v_reached := array(select unnest(v_reached) except select unnest(v_mine));
        select array_agg(r.id) into v_held from pipeline.runs r
        where r.id = any (v_reached) and r.status = 'pending';
        if v_held is not null then
            raise exception using
                errcode = 'PB001',
                message = format('another transaction holds run %s, which waits in a chain behind a run that '
                                 'ends now; nothing was written: try again later', v_held[1]),
                detail = (
                    select string_agg(e.id::text, ',' order by e.id) from unnest(p_ended) as e (id)
                    where pipeline.reach_v1(array[e.id]) && v_held
                );
        end if;
    end if;

    select array_agg(d.id) filter (where d.otherwise),
           array_agg(d.id) filter (where d.succeeded)
    into v_skipped, ready
    from (
        -- An upstream run that does not exist any more cannot succeed.
        select r.id, bool_or(up.id is null
                             or up.status in ('failed', 'halted', 'cancelled', 'skipped')) as otherwise,
               bool_and(up.status = 'succeeded') as succeeded
        from (
            select c.down from pipeline.chains c where c.up = any (p_ended)
            intersect select unnest(v_mine)
        ) as touched
        join pipeline.runs r on r.id = touched.down and r.status = 'pending'
        join pipeline.chains c on c.down = r.id
        left join pipeline.runs up on up.id = c.up
        group by r.id
    ) as d;
    if v_skipped is not null then
        with changed as (
            update pipeline.steps s
            set status = 'skipped', ended_at = v_now, reason = 'run_skipped'
            where s.run = any (v_skipped) and s.status = 'pending'
            returning s.run, s.no
        )
        select array_agg(pipeline.ended_with_run(c.run, c.no, 'skipped', null)) into skipped from changed c;
    end if;
end $$;

-- Returns all runs that are chained to these, directly or indirectly.
create function pipeline.reach_v1(p_runs bigint[]) returns bigint[]
language plpgsql as $$
begin
    return coalesce((
        with recursive reached (id) as (
            select c.down from pipeline.chains c where c.up = any (p_runs)
            union
            select c.down from reached join pipeline.chains c on c.up = reached.id
        )
        select array_agg(id order by id) from reached
    ), '{}');
end $$;

-- Begins a round of runs that can begin: starts the steps without upstream steps, and decides the steps downstream
-- of steps that ended in an earlier round. The caller has locked the runs; p_is_chain_locked is passed to finish_v1.
create function pipeline.begin_v1(
    p_runs bigint[], p_is_chain_locked boolean default false,
    out queues text[], out over pipeline.ended_run[]
)
language plpgsql as $$
declare
    v_now timestamptz := pipeline.now();
    v_first pipeline.released_step[];
    v_before pipeline.ended_step[];     -- steps that ended in an earlier round
    v_decided record;
    v_ended pipeline.ended_step[];
    v_finished record;
begin
    with begun as (
        update pipeline.runs r
        set status = 'running', started_at = v_now, events = r.events + (r.history > 0)::integer,
            deadline_at = v_now + g.deadline_ms * interval '1 ms'
        from pipeline.graphs g
        where r.id = any (p_runs) and g.id = r.graph
        returning r.id, r.events, r.history
    )
    insert into pipeline.events (run, no, at, status)
    select id, events, v_now, 'running' from begun where history > 0;

    with first as (
        update pipeline.steps s set status = 'enqueued', enqueued_at = v_now
        from unnest(p_runs) as e (run)
        join pipeline.runs r on r.id = e.run
        join pipeline.nodes n on n.graph = r.graph
        where s.run = e.run and s.no = n.no and s.status = 'pending' and s.waits = 0
        returning s.run, s.no, s.params, n.job, n.queue, n.priority, n.attempts, n.lease_ms, n.delay_ms, n.key,
                  n.options, n.input
    )
    select array_agg(row(
        f.run, f.no, null, null, f.params, f.job, f.queue, f.priority, f.attempts, f.lease_ms, f.delay_ms, f.key,
        f.options, f.input
    )::pipeline.released_step) into v_first from first f;

    select array_agg(row(
        s.run, s.no, r.graph, s.status, n.strategy = 'ignore', false, false, null, null,
        case when n.kind = 'branch' and s.status = 'succeeded' then s.arm
             when n.kind = 'branch' and s.status = 'skipped_by_branch' then -1 end,
        n.outs
    )::pipeline.ended_step) into v_before
    from unnest(p_runs) as e (run)
    join pipeline.runs r on r.id = e.run
    cross join lateral (
        select s.run, s.no, s.status, s.arm from pipeline.steps s
        where s.run = e.run and s.ended_at is not null offset 0
    ) as s
    cross join lateral (
        select n.kind, n.strategy, n.outs from pipeline.nodes n
        where n.graph = r.graph and n.no = s.no offset 0
    ) as n;
    if v_before is not null then
        v_decided := pipeline.decide_downstream_v1(v_before);
        -- Without the given steps: the earlier round has counted them.
        v_ended := v_decided.ended[cardinality(v_before) + 1:];
        v_first := v_first || v_decided.released;
    end if;
    v_finished := pipeline.finish_v1(v_ended || pipeline.unchanged_runs(p_runs), v_first, 0, '{}', '{}',
                                     p_is_chain_locked);
    queues := v_finished.queues;
    over := v_finished.over;
end $$;
