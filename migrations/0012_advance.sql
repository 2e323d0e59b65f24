-- Moves runs on. The caller has locked them by a statement of its own, and has ended the attempts.
--
-- What an end means for what comes after a step is a number:
--   0 succeeded  1 halted  2 skipped_by_branch  3 failed, ignored  4 failed  5 skipped  6 cancelled
-- An edge is satisfied up to 3 and broken from 4 on; a failure edge is taken at 3 and 4.
--
-- p_came: 0 succeeded, 1 failed for good, 2 succeeded after cx.halt()
-- The worker's offer: free slots for each of its patterns, the lowest priority it starts at once, and
-- the job types it knows.
create function pipeline.advance_v1(
    p_ids bigint[], p_tokens bigint[], p_attempts smallint[], p_came smallint[], p_ran integer[],
    p_outputs json[], p_classes text[], p_messages text[],
    p_worker bigint, p_patterns text[], p_free integer[], p_floors smallint[], p_kinds text[],
    out queues text[],          -- that got work
    out started bigint[],       -- what this worker has to run now
    out tokens bigint[],        -- of these
    out over bigint[]           -- runs that have ended
)
language plpgsql
-- The plan is always a walk along primary keys from what has ended; also in what is called from here.
set enable_seqscan to off set enable_bitmapscan to off set enable_hashjoin to off
set enable_mergejoin to off set jit to off
as $$
declare
    v_now timestamptz := pipeline.now();
    -- What has ended, and what comes after it is not yet decided.
    v_run bigint[];
    v_no integer[];
    v_graph bigint[];
    v_code smallint[];
    v_arm integer[];            -- of a branch: the arm it chose, -1 if none; null for other steps
    v_halting boolean[];        -- it failed under Halt
    -- What has ended in all.
    v_all_run bigint[] := '{}';
    v_all_no integer[] := '{}';
    -- What can start.
    v_go_run bigint[] := '{}';
    v_go_no integer[] := '{}';
    v_go_graph bigint[] := '{}';
    v_any boolean := false;     -- some of it by the first upstream that succeeded
    v_halted bigint[];
    v_next record;
begin
    with ended as (
        update pipeline.steps s
        set status = case when e.came = 1 or not_an_arm then 'failed'
                          when e.came = 2 then 'halted'
                          else 'succeeded' end::pipeline.step_status,
            token = e.token, attempt = e.attempt, ran_ms = e.ran, ended_at = v_now,
            output = case when e.came <> 1 and not not_an_arm then e.output end,
            arm = e.arm,
            error_class = case when not_an_arm then 'NotAnArm' else e.class end,
            error_message = case
                when not_an_arm then format('step `%s` chose %s, which is none of its arms: %s', e.key,
                                            e.output, array_to_string(e.arms, ', '))
                else e.message
            end
        from (
            select pipeline.run_of(e.id) as run, pipeline.no_of(e.id) as no, e.*, r.graph, n.kind,
                   n.strategy, n.key, n.arms,
                   chosen.arm, n.kind = 'branch' and e.came = 0 and chosen.arm is null as not_an_arm
            from unnest(p_ids, p_tokens, p_attempts, p_came, p_ran, p_outputs, p_classes, p_messages)
                 as e (id, token, attempt, came, ran, output, class, message)
            join pipeline.runs r on r.id = pipeline.run_of(e.id)
            join pipeline.nodes n on n.graph = r.graph and n.no = pipeline.no_of(e.id)
            cross join lateral (
                select case when n.kind = 'branch' and e.came = 0
                            then array_position(n.arms, e.output #>> '{}') - 1 end as arm
            ) as chosen
        ) as e
        where s.run = e.run and s.no = e.no and s.status = 'enqueued'
        returning s.run, s.no, e.graph, e.kind, e.strategy, s.status, s.arm
    )
    select coalesce(array_agg(run), '{}'), array_agg(no), array_agg(graph),
           array_agg(case status when 'succeeded' then 0 when 'halted' then 1
                                 else case strategy when 'ignore' then 3 else 4 end
                     end::smallint),
           array_agg(case when kind = 'branch' and status = 'succeeded' then arm end),
           array_agg(status = 'failed' and strategy = 'halt')
    into v_run, v_no, v_graph, v_code, v_arm, v_halting
    from ended;

    if 1 = any (p_came) then
        delete from pipeline.jobs j
        using unnest(p_ids, p_came) as e (id, came) where e.came = 1 and j.id = e.id;
    end if;

    -- Rules 13 and 14. Of several ends of one run those that halt it come first: that is one of the
    -- orders in which they may have come.
    if true = any (v_halting) or 1 = any (v_code) then
        with halt as (
            select e.run, e.graph, bool_or(e.code = 1) as early,
                   min(e.no) filter (where e.code = 1) as early_by,
                   min(e.no) filter (where e.halting) as halted_by
            from unnest(v_run, v_no, v_graph, v_code, v_halting) as e (run, no, graph, code, halting)
            where e.code = 1 or e.halting
            group by e.run, e.graph
        ), skipped as (
            update pipeline.steps s
            set status = 'skipped', ended_at = v_now,
                cause = coalesce(h.early_by, h.halted_by),
                reason = case when h.early then 'ended_by' else 'halted_by' end::pipeline.step_reason
            from halt h
            join pipeline.nodes n on n.graph = h.graph
            where s.run = h.run and s.no = n.no and s.status in ('pending', 'waiting')
              and (h.early or not n.exempt)
            returning s.run, s.no, h.graph
        )
        select v_run || array_agg(skipped.run), v_no || array_agg(skipped.no),
               v_graph || array_agg(skipped.graph), v_code || array_agg(5::smallint),
               v_arm || array_agg(null::integer),
               (select array_agg(halt.run) from halt where halt.halted_by is not null)
        into v_run, v_no, v_graph, v_code, v_arm, v_halted
        from skipped;
    end if;

    -- From what has ended to what comes after it, until nothing more is decided.
    while v_run <> '{}' loop
        -- Arms that were not chosen.
        if exists (select from unnest(v_arm) as arm where arm is not null) then
            with left_out as (
                update pipeline.steps s
                set status = 'skipped_by_branch', ended_at = v_now, cause = a.branch,
                    reason = 'not_chosen'
                from unnest(v_run, v_no, v_graph, v_arm) as e (run, no, graph, arm)
                join pipeline.arms a on a.graph = e.graph and a.branch = e.no and a.arm <> e.arm
                where s.run = e.run and s.no = a.no and s.status = 'pending'
                returning s.run, s.no, e.graph
            )
            select v_run || array_agg(run), v_no || array_agg(no), v_graph || array_agg(graph),
                   v_code || array_agg(2::smallint)
            into v_run, v_no, v_graph, v_code
            from left_out;
        end if;
        v_all_run := v_all_run || v_run;
        v_all_no := v_all_no || v_no;

        -- The edges that lead away from what has ended; what has no open one left is decided.
        with touched as (
            select e.run, e.graph, d.down as no, count(*)::integer as count,
                   bit_or(case
                       when d.takes = 'failure' then case when e.code in (3, 4) then 0 else 2 end
                       else (e.code > 3)::integer
                   end | case when e.code = 0 then 4 else 0 end)::smallint as edges,
                   min(d.up) filter (where case when d.takes = 'failure' then e.code not in (3, 4)
                                                else e.code > 3 end) as cause
            from unnest(v_run, v_no, v_graph, v_code) as e (run, no, graph, code)
            join pipeline.dependencies d on d.graph = e.graph and d.up = e.no
            group by e.run, e.graph, d.down
        ), decided as (
            update pipeline.steps s
            set waits = s.waits - t.count,
                edges = s.edges | t.edges,
                status = next.status,
                enqueued_at = case when next.status = 'enqueued' then v_now end,
                ended_at = case when next.status not in ('pending', 'enqueued') then v_now end,
                reason = case
                    when next.status = 'pending' then null
                    when next.status = 'enqueued' then case when n.is_any then 'first' end
                    when next.status = 'skipped_by_branch' then 'no_failure'
                    when next.status = 'skipped' then
                        case when n.is_any then 'none_succeeded' else 'broken' end
                end::pipeline.step_reason,
                cause = case when next.status = 'succeeded' or n.is_any then null
                             else coalesce(s.cause, t.cause) end
            from touched t
            join pipeline.nodes n on n.graph = t.graph and n.no = t.no
            join pipeline.steps before on before.run = t.run and before.no = t.no
            cross join lateral (
                select case
                    when n.is_any and t.edges & 4 > 0 then 'enqueued'
                    when before.waits > t.count then 'pending'
                    when n.is_any then 'skipped'
                    when (before.edges | t.edges) & 2 > 0 then 'skipped_by_branch'
                    when (before.edges | t.edges) & 1 > 0 then 'skipped'
                    when n.kind in ('barrier', 'merge') then 'succeeded'
                    else 'enqueued'
                end::pipeline.step_status as status
            ) as next
            where s.run = t.run and s.no = t.no and s.status = 'pending'
            returning s.run, s.no, t.graph, s.status, n.kind, n.is_any
        )
        select coalesce(array_agg(run) filter (where status not in ('pending', 'enqueued')), '{}') as run,
               array_agg(no) filter (where status not in ('pending', 'enqueued')) as no,
               array_agg(graph) filter (where status not in ('pending', 'enqueued')) as graph,
               array_agg(case status when 'succeeded' then 0 when 'skipped_by_branch' then 2 else 5
                         end::smallint) filter (where status not in ('pending', 'enqueued')) as code,
               array_agg(case when kind = 'branch' and status = 'skipped_by_branch' then -1 end)
                   filter (where status not in ('pending', 'enqueued')) as arm,
               array_agg(run) filter (where status = 'enqueued') as go_run,
               array_agg(no) filter (where status = 'enqueued') as go_no,
               array_agg(graph) filter (where status = 'enqueued') as go_graph,
               bool_or(kind = 'merge' and status = 'succeeded') as merged,
               coalesce(bool_or(is_any and status = 'enqueued'), false) as any_go
        into v_next from decided;
        if v_next.go_run is not null then
            v_go_run := v_go_run || v_next.go_run;
            v_go_no := v_go_no || v_next.go_no;
            v_go_graph := v_go_graph || v_next.go_graph;
            v_any := v_any or v_next.any_go;
        end if;
        v_run := v_next.run;
        v_no := v_next.no;
        v_graph := v_next.graph;
        v_code := v_next.code;
        v_arm := v_next.arm;
        if v_next.merged then
            -- What the chosen arm returned.
            update pipeline.steps s set output = value.output
            from unnest(v_run, v_no, v_graph, v_code) as e (run, no, graph, code)
            join pipeline.nodes n on n.graph = e.graph and n.no = e.no and n.kind = 'merge'
            join pipeline.steps branch on branch.run = e.run and branch.no = n.branch
            join pipeline.steps value on value.run = e.run and value.no = n.returns[branch.arm + 1]
            where e.code = 0 and s.run = e.run and s.no = e.no;
        end if;
    end loop;

    if v_any then
        -- Which came first within one advance nobody knows: the first in the order of the edges, of all
        -- that have succeeded by now.
        update pipeline.steps s set cause = first.up
        from unnest(v_go_run, v_go_no, v_go_graph) as e (run, no, graph)
        join pipeline.nodes n on n.graph = e.graph and n.no = e.no and n.is_any
        cross join lateral (
            select d.up from pipeline.dependencies d
            join pipeline.steps up on up.run = e.run and up.no = d.up and up.status = 'succeeded'
            where d.graph = e.graph and d.down = e.no
            order by d.pos
            limit 1
        ) as first
        where s.run = e.run and s.no = e.no;
    end if;
    if v_go_run <> '{}' then
        select e.queues, e.started, e.tokens into queues, started, tokens
        from pipeline.enqueue_steps_v1(v_go_run, v_go_no, v_go_graph, p_worker, p_patterns, p_free,
                                       p_floors, p_kinds) as e;
    end if;
    over := pipeline.count_ends_v1(v_all_run, v_all_no, v_go_run, v_go_no, v_halted);
end $$;

-- Enqueues steps. What the worker has offered a slot for starts there at once, as if claimed.
create function pipeline.enqueue_steps_v1(
    p_runs bigint[], p_nos integer[], p_graphs bigint[],
    p_worker bigint, p_patterns text[], p_free integer[], p_floors smallint[], p_kinds text[],
    out queues text[], out started bigint[], out tokens bigint[]
)
language plpgsql
as $$
declare
    v_now timestamptz := pipeline.now();
begin
    with released as (
        select pipeline.step_id(e.run, e.no) as id, n.job, n.queue, n.priority, n.attempts,
               n.lease_ms, n.delay_ms, offer.line, offer.free
        from unnest(p_runs, p_nos, p_graphs) as e (run, no, graph)
        join pipeline.nodes n on n.graph = e.graph and n.no = e.no
        left join lateral (
            select o.line, o.free
            from unnest(p_patterns, p_free, p_floors) with ordinality as o (pattern, free, floor, line)
            where o.free > 0 and n.delay_ms = 0 and n.priority >= o.floor and n.job = any (p_kinds)
              and (n.queue = o.pattern
                   or right(o.pattern, 1) = '*' and starts_with(n.queue, left(o.pattern, -1)))
              and not exists (select from pipeline.queues q
                              where q.name = n.queue and q.paused_at is not null)
            order by o.line
            limit 1
        ) as offer on true
    ), placed as (
        select r.*, r.line is not null
                    and row_number() over (partition by r.line order by r.priority desc, r.id) <= r.free
                    as here
        from released r
    ), put as (
        insert into pipeline.jobs (id, status, token, attempt, worker, lease_until, run_at, created_at,
                                   kind, queue, priority, attempts, lease_ms, args)
        select p.id,
               case when p.here then 'running' when p.delay_ms > 0 then 'later' else 'ready'
               end::pipeline.job_status,
               case when p.here then nextval('pipeline.tokens') end,
               p.here::integer,
               case when p.here then p_worker end,
               case when p.here then v_now + p.lease_ms * interval '1 ms' end,
               v_now + p.delay_ms * interval '1 ms', v_now, p.job, p.queue, p.priority, p.attempts,
               p.lease_ms, 'null'
        from placed p
        returning id, token, queue
    )
    select array_agg(distinct put.queue) filter (where put.token is null),
           array_agg(put.id) filter (where put.token is not null),
           array_agg(put.token) filter (where put.token is not null)
    into queues, started, tokens from put;
end $$;

-- Counts ended steps in their runs, writes the events, and ends the runs that have no live step left.
-- Returns those.
create function pipeline.count_ends_v1(
    p_runs bigint[], p_nos integer[], p_go_runs bigint[], p_go_nos integer[], p_halted bigint[]
) returns bigint[]
language plpgsql
as $$
declare
    v_now timestamptz := pipeline.now();
    v_ended integer := cardinality(p_runs);
    v_over bigint[];
    v_history smallint;
begin
    with counted as (
        select e.run, count(*) filter (where e.ord <= v_ended)::integer as ended,
               count(*) filter (where e.ord > v_ended)::integer as started,
               coalesce(e.run = any (p_halted), false) as halts
        from unnest(p_runs || p_go_runs) with ordinality as e (run, ord)
        group by e.run
    ), moved as (
        update pipeline.runs r
        set live = r.live - c.ended,
            halt = r.halt or c.halts,
            status = next.status,
            ended_at = case when next.over then v_now end,
            events = r.events + case when r.history >= 2 then c.ended else 0 end
                              + case when r.history >= 3 then c.started else 0 end
                              + case when r.history >= 1 and next.over then 1 else 0 end
        from counted c
        join pipeline.runs before on before.id = c.run
        cross join lateral (
            select before.live = c.ended as over,
                   case when before.live = c.ended
                        then pipeline.final_status_v1(before.id, before.graph, before.status,
                                                      before.halt or c.halts)
                        else before.status end as status
        ) as next
        where r.id = c.run
        returning r.id, r.history, next.over
    )
    select array_agg(id) filter (where over), max(history) into v_over, v_history from moved;

    if v_history >= 2 then
        insert into pipeline.events (run, no, at, step, attempt, status)
        select r.id,
               r.events - (r.ended_at is not null)::integer
               - count(*) over (partition by e.run)
               + row_number() over (partition by e.run order by e.ord),
               v_now, s.no, nullif(s.attempt, 0), s.status::text
        from unnest(p_runs || p_go_runs, p_nos || p_go_nos) with ordinality as e (run, no, ord)
        join pipeline.runs r on r.id = e.run
                            and r.history >= case when e.ord <= v_ended then 2 else 3 end
        join pipeline.steps s on s.run = e.run and s.no = e.no;
    end if;
    if v_over is not null and v_history >= 1 then
        insert into pipeline.events (run, no, at, status)
        select r.id, r.events, v_now, r.status::text
        from unnest(v_over) as e (run)
        join pipeline.runs r on r.id = e.run and r.history >= 1;
    end if;
    return v_over;
end $$;

-- Rule 9: what a run comes to whose last step has ended.
create function pipeline.final_status_v1(
    p_run bigint, p_graph bigint, p_status pipeline.run_status, p_halt boolean
) returns pipeline.run_status
language plpgsql stable
as $$
declare
    v_live bigint;
    v_failed boolean;
begin
    select count(*) filter (where s.status in ('pending', 'enqueued', 'waiting')),
           bool_or(s.status = 'failed' and not n.optional)
    into v_live, v_failed
    from pipeline.steps s
    join pipeline.nodes n on n.graph = p_graph and n.no = s.no
    where s.run = p_run;
    if v_live > 0 then
        raise exception 'run % counts no live step and has %', p_run, v_live;
    end if;
    return case when not coalesce(v_failed, false) then 'succeeded'
                when p_halt then 'halted'
                else 'failed' end;
end $$;
