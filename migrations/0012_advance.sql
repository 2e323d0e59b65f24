-- Locks the runs that an advance needs, in the order of their ids, without waiting. `held` are runs that exist
-- and were not locked: another transaction holds them, or a request has its turn. The caller defers the ends of
-- held runs. A run in neither list does not exist.
create function pipeline.lock_for_advance_v1(
    p_runs bigint[], out locked bigint[], out held bigint[]
)
language plpgsql
set enable_seqscan to off set enable_bitmapscan to off set jit to off
set plan_cache_mode to force_generic_plan
as $$
declare
    v_now timestamptz := pipeline.now();
    v_wanted bigint[] := p_runs;
begin
    -- Read before the lock: a run whose request has its turn must not be locked, not even briefly.
    select coalesce(array_agg(distinct q.run), '{}') into held
    from pipeline.requests q where q.run = any (p_runs) and q.turn_until > v_now;
    if held <> '{}' then
        v_wanted := array(select unnest(p_runs) except select unnest(held));
    end if;
    with mine as (
        select r.id from pipeline.runs r
        where r.id = any (v_wanted) order by r.id for no key update skip locked
    )
    select coalesce(array_agg(mine.id), '{}') into locked from mine;
    if cardinality(locked) < cardinality(v_wanted) then
        v_wanted := array(select unnest(v_wanted) except select unnest(locked));
        held := held || array(select r.id from pipeline.runs r where r.id = any (v_wanted));
    end if;
end $$;

-- Advances runs. The caller has locked the runs in an earlier statement, and has ended the attempts.
--
-- No statement waits for a lock: every row of `runs` and `steps` that is written belongs to a run that this
-- transaction has locked, the queue rows that are deleted were locked when their attempts were ended, and
-- chained runs are locked with SKIP LOCKED. If one of those is held, PB001 is raised (settle_chains_v1).
--
-- The effect of a step's end on its downstream steps is a code:
--   0 succeeded  1 halted  2 skipped_by_branch  3 failed, ignored  4 failed  5 skipped  6 cancelled
-- An edge is satisfied up to 3 and broken from 4 on; a failure edge is taken at 3 and 4.
--
-- p_came is the outcome of each attempt: 0 succeeded, 1 failed for good, 2 succeeded after cx.halt(), 3 the
-- last attempt lost its worker; of attempts that may be retried: 4 after an error, 5 after a stop, a snooze or
-- a lost worker.
-- Rule 18: in a run that is being cancelled, 3 and 5 become `cancelled`, and 4 becomes `failed`. In other runs, 3
-- becomes `failed`, and the steps of 4 and 5 do not change.
-- The worker's offer: p_patterns are its patterns, the most specific first, with the free slots of each
-- (p_free) and the lowest priority that starts at once (p_floors); p_kinds are the job types that it knows.
create function pipeline.advance_v1(
    p_ids bigint[], p_tokens bigint[], p_attempts smallint[], p_came smallint[], p_ran integer[],
    p_outputs json[], p_classes text[], p_messages text[],
    p_worker bigint, p_patterns text[], p_free integer[], p_floors smallint[], p_kinds text[],
    out queues text[],          -- that received jobs
    out started bigint[],       -- jobs that this worker starts now
    out tokens bigint[],        -- the tokens of `started`
    out over bigint[]           -- runs that have ended
)
language plpgsql
-- The plan always looks rows up by primary key, starting at the ended steps, independent of the statistics;
-- this holds for the called functions too. The plan is made once: for a few ends, planning costs more than
-- the execution. `offset 0` keeps the planner from flattening a lookup, and `ctid` identifies the row that
-- the lookup found. See decision 9.
set enable_seqscan to off set enable_bitmapscan to off set enable_hashjoin to off
set enable_mergejoin to off set enable_memoize to off set jit to off
set plan_cache_mode to force_generic_plan
as $$
declare
    v_now timestamptz := pipeline.now();
    -- Steps that have ended and whose downstream steps are not decided yet.
    v_run bigint[];
    v_no integer[];
    v_graph bigint[];
    v_code smallint[];
    v_arm integer[];            -- the arm that a branch chose, -1 for none; null for other steps
    v_halting boolean[];        -- whether the step failed with strategy Halt
    v_attempt smallint[];       -- the attempt that ended the step; null if no attempt did
    v_halted bigint[];
    v_next record;
    v_finished record;
begin
    with ended as (
        update pipeline.steps s
        set status = e.status,
            reason = case when e.status <> 'cancelled' then s.reason
                          when e.drain = 'deadline' then 'deadline'
                          else 'cancelled' end,
            token = e.token, attempt = e.attempt, ended_at = v_now,
            -- The worker measures from before its claim was sent, which may be before the step was enqueued.
            ran_ms = case when e.ran is not null then
                least(e.ran, greatest(floor(extract(epoch from v_now - s.enqueued_at) * 1000), 0))::integer
            end,
            output = case when e.status in ('succeeded', 'halted') then e.output end,
            -- Four bytes of the stored size are its header.
            output_bytes = case when e.status in ('succeeded', 'halted')
                                     and pg_column_size(e.output) > 4096
                                then pg_column_size(e.output) - 4 end,
            arm = e.arm,
            error_class = case when not_an_arm then 'NotAnArm' else e.class end,
            error_message = case
                when not_an_arm then format('step `%s` chose %s, which is none of its arms: %s', e.key,
                                            e.output, array_to_string(e.arms, ', '))
                else e.message
            end
        from (
            select e.*, step.ctid as place, r.graph, r.drain, n.kind,
                   n.strategy, n.key, n.arms, chosen.arm,
                   n.kind = 'branch' and e.came = 0 and chosen.arm is null as not_an_arm,
                   case when n.kind = 'branch' and e.came = 0 and chosen.arm is null then 'failed'
                        when e.came = 0 then 'succeeded'
                        when e.came = 2 then 'halted'
                        when r.status = 'cancelling'
                             and (e.came in (3, 5) or e.class = 'RunCancelled') then 'cancelled'
                        else 'failed' end::pipeline.step_status as status
            from unnest(p_ids, p_tokens, p_attempts, p_came, p_ran, p_outputs, p_classes, p_messages)
                 as e (id, token, attempt, came, ran, output, class, message)
            cross join lateral (
                select r.graph, r.drain, r.status from pipeline.runs r
                where r.id = pipeline.run_of(e.id) offset 0
            ) as r
            cross join lateral (
                select n.kind, n.strategy, n.key, n.arms from pipeline.nodes n
                where n.graph = r.graph and n.no = pipeline.no_of(e.id) offset 0
            ) as n
            cross join lateral (
                select s.ctid from pipeline.steps s
                where s.run = pipeline.run_of(e.id) and s.no = pipeline.no_of(e.id)
                  and s.status = 'enqueued' offset 0
            ) as step
            cross join lateral (
                select case when n.kind = 'branch' and e.came = 0
                            then array_position(n.arms, e.output #>> '{}') - 1 end as arm
            ) as chosen
        ) as e
        where s.ctid = e.place and (e.came <= 3 or e.drain is not null)
        returning s.run, s.no, e.graph, e.kind, e.strategy, s.status, s.arm, s.attempt, e.drain
    )
    select coalesce(array_agg(run), '{}'), array_agg(no), array_agg(graph),
           array_agg(case status when 'succeeded' then 0 when 'halted' then 1 when 'cancelled' then 6
                                 else case strategy when 'ignore' then 3 else 4 end
                     end::smallint),
           array_agg(case when kind = 'branch' and status = 'succeeded' then arm end),
           array_agg(status = 'failed' and strategy = 'halt' and drain is null), array_agg(attempt)
    into v_run, v_no, v_graph, v_code, v_arm, v_halting, v_attempt
    from ended;

    -- Delete the queue rows of ended steps, including rows that would be retried. A step that was stopped
    -- takes the error of its previous attempt from the queue row.
    if 1 = any (p_came) or 3 <= any (p_came) then
        with gone as (
            delete from pipeline.jobs j
            using unnest(p_ids, p_came) as e (id, came)
            cross join lateral (
                select s.status from pipeline.steps s
                where s.run = pipeline.run_of(e.id) and s.no = pipeline.no_of(e.id) offset 0
            ) as s
            where (e.came = 1 or e.came >= 3) and s.status <> 'enqueued' and j.id = e.id
            returning j.id, j.error_class, j.error_message
        )
        update pipeline.steps s
        set error_class = gone.error_class, error_message = gone.error_message
        from gone
        where gone.error_class is not null
          and s.run = pipeline.run_of(gone.id) and s.no = pipeline.no_of(gone.id)
          and s.status = 'cancelled' and s.error_class is null;
    end if;

    -- Rules 13 and 14. If several steps of a run have ended, the ends that halt the run come first: that is one
    -- of the possible orders.
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
            cross join lateral (
                select b.ctid, b.no from pipeline.steps b
                where b.run = h.run and b.status in ('pending', 'waiting') offset 0
            ) as before
            cross join lateral (
                select n.exempt from pipeline.nodes n
                where n.graph = h.graph and n.no = before.no offset 0
            ) as n
            where s.ctid = before.ctid and (h.early or not n.exempt)
            returning s.run, s.no, h.graph
        )
        select v_run || array_agg(skipped.run), v_no || array_agg(skipped.no),
               v_graph || array_agg(skipped.graph), v_code || array_agg(5::smallint),
               v_arm || array_agg(null::integer),
               (select array_agg(halt.run) from halt where halt.halted_by is not null)
        into v_run, v_no, v_graph, v_code, v_arm, v_halted
        from skipped;
    end if;

    v_next := pipeline.spread_v1(v_run, v_no, v_graph, v_code, v_arm);
    v_finished := pipeline.finish_v1(v_next.all_run, v_next.all_no, v_next.all_code, v_attempt,
                                     v_next.go_run, v_next.go_no, v_next.go_graph, v_halted, '{}',
                                     p_worker, p_patterns, p_free, p_floors, p_kinds);
    queues := v_finished.queues;
    started := v_finished.started;
    tokens := v_finished.tokens;
    over := v_finished.over;
end $$;

-- Decides the steps downstream of ended steps, level by level, until no further step is decided. `all_*` are
-- all ended steps, including the given ones; `go_*` are the steps that can start.
create function pipeline.spread_v1(
    p_run bigint[], p_no integer[], p_graph bigint[], p_code smallint[], p_arm integer[],
    out all_run bigint[], out all_no integer[], out all_code smallint[],
    out go_run bigint[], out go_no integer[], out go_graph bigint[]
)
language plpgsql as $$
declare
    v_now timestamptz := pipeline.now();
    v_run bigint[] := p_run;
    v_no integer[] := p_no;
    v_graph bigint[] := p_graph;
    v_code smallint[] := p_code;
    v_arm integer[] := p_arm;
    v_any boolean := false;     -- whether some steps start after any one upstream step
    v_next record;
    -- The results of the last levels. Appending copies an array, so that a long line of steps would take
    -- quadratic time: these arrays stay short, and are appended to the full result when they reach c_short.
    c_short constant integer := 256;
    v_all_run bigint[] := '{}';
    v_all_no integer[] := '{}';
    v_all_code smallint[] := '{}';
    v_go_run bigint[] := '{}';
    v_go_no integer[] := '{}';
    v_go_graph bigint[] := '{}';
begin
    all_run := '{}';
    all_no := '{}';
    all_code := '{}';
    go_run := '{}';
    go_no := '{}';
    go_graph := '{}';
    while v_run <> '{}' loop
        -- Skip the arms that were not chosen.
        if num_nonnulls(variadic v_arm) > 0 then
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
        v_all_code := v_all_code || v_code;
        if cardinality(v_all_run) >= c_short then
            all_run := all_run || v_all_run;
            all_no := all_no || v_all_no;
            all_code := all_code || v_all_code;
            v_all_run := '{}';
            v_all_no := '{}';
            v_all_code := '{}';
        end if;

        -- Follow the edges from the ended steps; a step without an open edge is decided.
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
            cross join lateral (
                select n.kind, n.is_any from pipeline.nodes n
                where n.graph = t.graph and n.no = t.no offset 0
            ) as n
            cross join lateral (
                select b.ctid, b.waits, b.edges from pipeline.steps b
                where b.run = t.run and b.no = t.no and b.status = 'pending' offset 0
            ) as before
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
            where s.ctid = before.ctid
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
            if cardinality(v_go_run) >= c_short then
                go_run := go_run || v_go_run;
                go_no := go_no || v_go_no;
                go_graph := go_graph || v_go_graph;
                v_go_run := '{}';
                v_go_no := '{}';
                v_go_graph := '{}';
            end if;
        end if;
        v_run := v_next.run;
        v_no := v_next.no;
        v_graph := v_next.graph;
        v_code := v_next.code;
        v_arm := v_next.arm;
        if v_next.merged then
            -- A merge returns the output of the chosen arm.
            update pipeline.steps s set output = value.output, output_bytes = value.output_bytes
            from unnest(v_run, v_no, v_graph, v_code) as e (run, no, graph, code)
            join pipeline.nodes n on n.graph = e.graph and n.no = e.no and n.kind = 'merge'
            join pipeline.steps branch on branch.run = e.run and branch.no = n.branch
            join pipeline.steps value on value.run = e.run and value.no = n.returns[branch.arm + 1]
            where e.code = 0 and s.run = e.run and s.no = e.no;
        end if;
    end loop;
    all_run := all_run || v_all_run;
    all_no := all_no || v_all_no;
    all_code := all_code || v_all_code;
    go_run := go_run || v_go_run;
    go_no := go_no || v_go_no;
    go_graph := go_graph || v_go_graph;

    if v_any then
        -- The order of ends within one advance is unknown: the cause is the first upstream step, in the order
        -- of the edges, that has succeeded.
        update pipeline.steps s set cause = first.up
        from unnest(go_run, go_no, go_graph) as e (run, no, graph)
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
end $$;

-- Enqueues steps. A step for which the worker offers a slot is handed over: it starts there at once, as if
-- claimed. A queue belongs only to the worker's most specific matching pattern: its exact name, else the longest
-- prefix. p_patterns includes patterns without a free slot, so that their queues do not use the slots of a
-- less specific pattern.
create function pipeline.enqueue_steps_v1(
    p_runs bigint[], p_nos integer[], p_graphs bigint[],
    p_worker bigint, p_patterns text[], p_free integer[], p_floors smallint[], p_kinds text[],
    out queues text[], out started bigint[], out tokens bigint[]
)
language plpgsql
as $$
declare
    v_now timestamptz := pipeline.now();
    v_paused text[] := coalesce((select array_agg(q.name) from pipeline.queues q
                                 where q.paused_at is not null), '{}');
begin
    with released as (
        select pipeline.step_id(e.run, e.no) as id, n.job, n.queue, n.priority, n.attempts,
               n.lease_ms, n.delay_ms, offer.line
        from unnest(p_runs, p_nos, p_graphs) as e (run, no, graph)
        cross join lateral (
            select n.* from pipeline.nodes n where n.graph = e.graph and n.no = e.no offset 0
        ) as n
        left join lateral (
            select o.line::integer, o.free, o.floor
            from unnest(p_patterns, p_free, p_floors) with ordinality as o (pattern, free, floor, line)
            where n.queue = o.pattern
               or right(o.pattern, 1) = '*' and starts_with(n.queue, left(o.pattern, -1))
            order by n.queue = o.pattern desc, length(o.pattern) desc, o.line
            limit 1
        ) as offer on offer.free > 0 and n.delay_ms = 0 and n.priority >= offer.floor
                  and n.job = any (p_kinds) and n.queue <> all (v_paused)
    ), placed as (
        select r.*, r.line is not null
                    and row_number() over (partition by r.line order by r.priority desc, r.id)
                        <= p_free[r.line] as here
        from released r
    ), put as (
        insert into pipeline.jobs (id, status, token, attempt, worker, claimed_at, lease_until, run_at,
                                   created_at, kind, queue, priority, attempts, lease_ms, args)
        select p.id,
               case when p.here then 'running' when p.delay_ms > 0 then 'later' else 'ready'
               end::pipeline.job_status,
               -- Random, so that no token is used twice, even after a crash.
               case when p.here then (random() * 9e18)::bigint end,
               p.here::integer,
               case when p.here then p_worker end,
               case when p.here then v_now end,
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

-- Counts ended steps in their runs, writes the events, and ends the runs that have no live step left. p_also
-- are runs to check even if none of their steps has ended. Returns the runs that have ended.
create function pipeline.count_ends_v1(
    p_runs bigint[], p_nos integer[], p_codes smallint[], p_attempts smallint[],
    p_go_runs bigint[], p_go_nos integer[], p_halted bigint[], p_also bigint[]
) returns bigint[]
language plpgsql as $$
declare
    v_now timestamptz := pipeline.now();
    v_over bigint[];
begin
    with counted as (
        -- Events of ended steps are numbered before events of started steps.
        select e.run, coalesce(e.run = any (p_halted), false) as halts,
               count(*) filter (where e.part = 1)::integer as ended,
               count(*) filter (where e.part = 2)::integer as started,
               array_agg(e.no) filter (where e.part < 3) as nos,
               array_agg(e.code) filter (where e.part < 3) as codes,
               array_agg(e.attempt) filter (where e.part < 3) as attempts
        from (
            select 1 as part, e.ord, e.run, e.no, e.code, e.attempt
            from unnest(p_runs, p_nos, p_codes, p_attempts) with ordinality
                 as e (run, no, code, attempt, ord)
            union all
            select 2, e.ord, e.run, e.no, null, null
            from unnest(p_go_runs, p_go_nos) with ordinality as e (run, no, ord)
            union all
            select 3, null, e.run, null, null, null from unnest(p_also) as e (run)
            order by 3, 1, 2
        ) as e
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
        cross join lateral (
            select b.ctid, b.live, b.id, b.graph, b.status, b.halt, b.drain, b.events
            from pipeline.runs b where b.id = c.run offset 0
        ) as before
        cross join lateral (
            select before.live = c.ended as over,
                   case when before.live = c.ended
                        then pipeline.final_status_v1(before.id, before.graph, before.status,
                                                      before.halt or c.halts, before.drain)
                        else before.status end as status
        ) as next
        where r.ctid = before.ctid
        returning r.id, r.history, r.events, r.status, before.events as base, next.over, c.nos, c.codes,
                  c.attempts
    ), told as (
        insert into pipeline.events (run, no, at, step, attempt, status)
        select e.run, e.base + e.ord, v_now, e.no, e.attempt,
               case e.code when 0 then 'succeeded' when 1 then 'halted' when 2 then 'skipped_by_branch'
                           when 3 then 'failed' when 4 then 'failed' when 5 then 'skipped'
                           when 6 then 'cancelled' else 'enqueued' end
        from (
            select m.id as run, m.history, m.base, generate_series(1, cardinality(m.nos)) as ord,
                   unnest(m.nos) as no, unnest(m.codes) as code, unnest(m.attempts) as attempt
            from moved m where m.history >= 2
        ) as e
        where e.code is not null or e.history >= 3
        union all
        select m.id, m.events, v_now, null, null, m.status::text
        from moved m where m.over and m.history >= 1
    )
    select array_agg(id) filter (where over) into v_over from moved;
    return v_over;
end $$;

-- Rule 9: returns the final status of a run whose last step has ended.
create function pipeline.final_status_v1(
    p_run bigint, p_graph bigint, p_status pipeline.run_status, p_halt boolean,
    p_drain pipeline.drain
) returns pipeline.run_status
language plpgsql as $$
declare
    v_live bigint;
    v_failed boolean;
begin
    select count(*) filter (where s.status in ('pending', 'enqueued', 'waiting')),
           bool_or(s.status = 'failed' and not n.optional)
    into v_live, v_failed
    from pipeline.steps s
    cross join lateral (
        select n.optional from pipeline.nodes n
        where s.status = 'failed' and n.graph = p_graph and n.no = s.no
        union all select true where s.status <> 'failed'
        offset 0
    ) as n
    where s.run = p_run;
    if v_live > 0 then
        raise exception 'run % counts no live step and has %', p_run, v_live;
    end if;
    return case when p_drain = 'deadline' then 'failed'
                when p_drain = 'cancel' then 'cancelled'
                when p_status = 'pending' then 'skipped'
                when not coalesce(v_failed, false) then 'succeeded'
                when p_halt then 'halted'
                else 'failed' end;
end $$;
