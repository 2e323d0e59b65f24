-- The effect of an ended step on one of its outgoing edges.
create type pipeline.edge_effect as enum (
    'satisfied',
    'broken',           -- the downstream step cannot run
    'not_taken'         -- the edge waits for a failure that did not happen
);

-- A step that has ended in this transaction.
create type pipeline.ended_step as (
    run          bigint,
    no           integer,                      -- null: no step has ended, and the run is only checked
    graph        bigint,
    status       pipeline.step_status,
    is_ignored   boolean,                      -- it failed with strategy Ignore
    is_halting   boolean,                      -- it failed with strategy Halt
    fails_run    boolean,                      -- it failed and is not optional
    attempt      smallint,                     -- the attempt that ended it; null: no attempt did
    place        integer,                      -- of that attempt's end
    kept_arm     integer,                      -- of a branch: its other arms are skipped; -1: all are
    outs         pipeline.out_edge[]
);

-- A step that can start, with what its queue row and its worker need.
create type pipeline.released_step as (
    run          bigint,
    no           integer,
    place        integer,                      -- the end whose output is its only input; null: not known
    takes        pipeline.takes,               -- what it takes of that output
    params       json,
    job          text,
    queue        text,
    priority     smallint,
    attempts     smallint,
    lease_ms     integer,
    delay_ms     bigint,
    key          text,
    options      jsonb,
    shape        json
);

-- The free slots of a worker for one of its queue patterns.
create type pipeline.slot_offer as (
    pattern      text,                         -- the name of a queue, or a prefix followed by `*`
    free         integer,
    min_priority smallint                      -- steps of a lower priority have to queue
);

-- A step that starts at once in the worker that offered a slot, with its input: see inputs_v1.
create type pipeline.started_step as (
    id           bigint,
    token        bigint,
    kind         text,
    queue        text,
    priority     smallint,
    attempts     smallint,
    lease_ms     integer,
    place        integer,                      -- the input is the output of this end; `outputs` is null
    params       text,
    options      text,
    shape        text,
    takes        text[],
    outputs      text[],
    failed       text[],
    classes      text[],
    messages     text[],
    is_cancelled boolean,
    key          text,
    round        integer,
    size         bigint
);

-- A run that has ended in this transaction.
create type pipeline.ended_run as (
    id           bigint,
    status       text
);

-- Returns the effect of a step that ended with p_status on an edge to a downstream step.
create function pipeline.edge_effect(
    p_status pipeline.step_status, p_is_ignored boolean, p_takes pipeline.takes
) returns pipeline.edge_effect
language sql immutable parallel safe as $$
    select case
        when p_takes = 'failure'
            then case when p_status = 'failed' then 'satisfied'::pipeline.edge_effect else 'not_taken' end
        when p_status in ('skipped', 'cancelled') or p_status = 'failed' and not p_is_ignored then 'broken'
        else 'satisfied'
    end
$$;

-- Returns the status of a pending step of which p_open incoming edges have had no effect yet. The flags are about
-- the effects of the others.
create function pipeline.step_status_after(
    p_open integer, p_is_any boolean, p_kind pipeline.node_kind,
    p_has_success boolean, p_is_broken boolean, p_is_not_taken boolean
) returns pipeline.step_status
language sql immutable parallel safe as $$
    select case
        when p_is_any and p_has_success then 'enqueued'::pipeline.step_status
        when p_open > 0 then 'pending'
        when p_is_any then 'skipped'
        when p_is_not_taken then 'skipped_by_branch'
        when p_is_broken then 'skipped'
        when p_kind in ('barrier', 'merge') then 'succeeded'
        else 'enqueued'
    end
$$;

-- Returns how a step ends after an attempt; null: the step waits for its next attempt. p_is_last says that the job has
-- failed for good. Rule 18: in a run that is being cancelled, no attempt follows another.
create function pipeline.step_outcome_after(
    p_outcome pipeline.attempt_outcome, p_is_last boolean, p_error_class text,
    p_status pipeline.run_status, p_drain pipeline.drain
) returns pipeline.attempt_outcome
language sql immutable parallel safe as $$
    select case
        when p_outcome in ('succeeded', 'ended_run') then p_outcome
        when p_is_last and p_status = 'cancelling'
             and (p_outcome = 'lease_lost' or p_error_class = 'RunCancelled')
            then 'cancelled'::pipeline.attempt_outcome
        when p_is_last then 'failed'
        when p_drain is null then null
        when p_error_class is not null then 'failed'
        else 'cancelled'
    end
$$;

-- Rule 9: returns the final status of a run whose last step has ended.
create function pipeline.final_run_status(
    p_status pipeline.run_status, p_drain pipeline.drain, p_is_failed boolean, p_is_halted boolean
) returns pipeline.run_status
language sql immutable parallel safe as $$
    select case
        when p_drain = 'deadline' then 'failed'::pipeline.run_status
        when p_drain = 'cancel' then 'cancelled'
        when p_status = 'pending' then 'skipped'
        when not p_is_failed then 'succeeded'
        when p_is_halted then 'halted'
        else 'failed'
    end
$$;

-- Ends attempts of steps and advances their runs: the whole transaction of a worker in one call.
--
-- No statement waits for a lock. Runs, queue rows and chained runs are locked with SKIP LOCKED; every other row that
-- is written belongs to a run that this transaction has locked. If a chained run is held, PB001 is raised: see
-- settle_chains_v1. The runs are locked by the first statement, and each later statement of a volatile function has
-- its own snapshot, so that it reads what the last holder of a run has committed.
--
--   p_runs: the runs of p_ends, each once
--   p_offers, p_kinds: the free slots of the worker, and the job types that it knows
--   p_input_limit, p_input_total: see inputs_v1
--   stale, held, failed: see end_jobs_v1
--   held_runs: runs that another transaction holds, or whose request has its turn: their ends changed no row
--   queues: the queues that received jobs
--   started: the steps that this worker starts now
--   over: the runs that have ended
create function pipeline.advance_v1(
    p_runs bigint[], p_ends pipeline.attempt_end[], p_worker bigint, p_offers pipeline.slot_offer[],
    p_kinds text[], p_unknown_ms bigint, p_input_limit bigint, p_input_total bigint,
    out stale integer[], out held integer[], out held_runs bigint[], out failed pipeline.failed_job[],
    out queues text[], out started pipeline.started_step[], out over pipeline.ended_run[]
)
language plpgsql as $$
declare
    v_now timestamptz := pipeline.now();
    v_count bigint;
    v_ends pipeline.attempt_end[] := p_ends;
    v_deleted bigint[];         -- the jobs of attempts that succeeded
    v_others record;
    v_moved record;
begin
    perform from pipeline.runs r
    where r.id = any (p_runs)
      -- Read before the lock: a run whose request has its turn must not be locked, not even briefly.
      and not exists (select from pipeline.requests q where q.run = r.id and q.turn_until > v_now)
    order by r.id for no key update of r skip locked;
    get diagnostics v_count = row_count;
    if v_count < cardinality(p_runs) then
        held_runs := pipeline.held_runs_v1(p_runs);
        v_ends := array(select e from unnest(p_ends) as e where pipeline.run_of(e.job) <> all (held_runs));
        if cardinality(v_ends) = 0 then
            return;
        end if;
    end if;

    with locked as materialized (
        select j.row from unnest(v_ends) as e
        cross join lateral (
            select j.ctid as row from pipeline.jobs j where j.id = e.job and j.token = e.token
            for update skip locked
        ) as j
        where e.outcome in ('succeeded', 'ended_run')
    ), deleted as (
        delete from pipeline.jobs j using locked where j.ctid = locked.row
        returning j.id
    )
    select array_agg(d.id) into v_deleted from deleted d;
    if v_deleted is null or cardinality(v_deleted) < cardinality(v_ends) then
        v_others := pipeline.end_other_steps_v1(v_ends, v_deleted, p_unknown_ms);
        stale := v_others.stale;
        held := v_others.held;
        failed := v_others.failed;
        v_ends := v_others.ends;
        if cardinality(v_ends) = 0 then
            return;
        end if;
    end if;

    v_moved := pipeline.move_on_v1(v_ends, p_worker, p_offers, p_kinds);
    queues := v_moved.queues;
    started := v_moved.started;
    over := v_moved.over;
    -- The others have their input.
    if exists (select from unnest(started) as s where s.place is null) then
        v_others := pipeline.load_started_v1(started, p_input_limit, p_input_total);
        started := v_others.started;
        queues := queues || v_others.queues;
    end if;
end $$;

-- Returns those of these runs that exist and that this transaction has not locked.
create function pipeline.held_runs_v1(p_runs bigint[]) returns bigint[]
language plpgsql as $$
declare
    v_now timestamptz := pipeline.now();
    v_locked bigint[];
begin
    -- A second lock of the same rows returns those that the first has locked, and perhaps more.
    with locked as (
        select r.id from pipeline.runs r
        where r.id = any (p_runs)
          and not exists (select from pipeline.requests q where q.run = r.id and q.turn_until > v_now)
        order by r.id for no key update of r skip locked
    )
    select coalesce(array_agg(l.id), '{}') into v_locked from locked l;
    return array(select r.id from pipeline.runs r where r.id = any (p_runs) and r.id <> all (v_locked));
end $$;

-- Ends the attempts of steps that did not simply succeed. p_deleted are the jobs of those that did. An attempt that
-- succeeded is missing there if its lease was renewed in the same moment: the row that the first statement has locked
-- is then newer than its snapshot. end_jobs_v1 finds it. `ends` are the
-- attempts that end their steps, including those that succeeded; their outcome is that of the step.
create function pipeline.end_other_steps_v1(
    p_ends pipeline.attempt_end[], p_deleted bigint[], p_unknown_ms bigint,
    out stale integer[], out held integer[], out failed pipeline.failed_job[],
    out ends pipeline.attempt_end[]
)
language plpgsql as $$
declare
    v_rest pipeline.attempt_end[];
    v_unwritten integer[];
    v_last pipeline.attempt_end[];
begin
    -- Each job once: a second end of the same attempt is stale.
    ends := array(
        select distinct on (e.job) e from unnest(p_ends) as e where e.job = any (p_deleted) order by e.job
    );
    v_rest := array(
        select e from unnest(p_ends) as e
        where e.place <> all (array(select d.place from unnest(ends) as d))
        order by e.job
    );
    select e.stale, e.held, e.failed into stale, held, failed
    from pipeline.end_jobs_v1(v_rest, false, p_unknown_ms) as e;
    v_unwritten := coalesce(stale, '{}') || coalesce(held, '{}');
    if failed is not null then
        failed := pipeline.name_failed_steps_v1(failed, v_rest);
    end if;

    with last as materialized (
        select e.*, outcome.of_step, f.error_class as decided_class, f.error_message as decided_message
        from unnest(v_rest) as e
        left join unnest(failed) as f on f.place = e.place
        join pipeline.runs r on r.id = pipeline.run_of(e.job)
        cross join lateral (
            select pipeline.step_outcome_after(
                e.outcome, f.place is not null, coalesce(f.error_class, e.error_class), r.status, r.drain
            ) as of_step
        ) as outcome
        where e.place <> all (v_unwritten) and outcome.of_step is not null
    ), deleted as (
        -- The row was locked when the attempt was ended.
        delete from pipeline.jobs j using last where j.id = last.job
        returning j.id, j.error_class, j.error_message
    ), recorded as (
        -- The attempt was recorded as one that is retried, before its run was asked.
        update pipeline.attempts a set outcome = last.of_step::text
        from last where a.job = last.job and a.token = last.token and a.outcome = 'retried'
    )
    select array_agg(row(
        l.job, l.token, l.of_step, l.attempt, l.ran_ms, l.wait_ms,
        case when l.of_step in ('succeeded', 'ended_run') then l.output end,
        -- A step that was stopped has the error of its attempt before.
        coalesce(l.decided_class, l.error_class, d.error_class),
        coalesce(l.decided_message, l.error_message, d.error_message), l.place
    )::pipeline.attempt_end) into v_last
    from last l left join deleted d on d.id = l.job;
    ends := ends || v_last;
end $$;

-- Returns failed jobs with the names of the steps that they are. p_ends are their ends.
create function pipeline.name_failed_steps_v1(
    p_failed pipeline.failed_job[], p_ends pipeline.attempt_end[]
) returns pipeline.failed_job[]
language plpgsql as $$
begin
    return (
        select array_agg(row(f.place, f.kind, r.idempotency_key, f.error_class, f.error_message, r.id, n.key,
                             coalesce(n.optional, false))::pipeline.failed_job)
        from unnest(p_failed) as f
        join unnest(p_ends) as e on e.place = f.place
        left join pipeline.runs r on r.id = pipeline.run_of(e.job)
        left join pipeline.nodes n on n.graph = r.graph and n.no = pipeline.no_of(e.job)
    );
end $$;

-- Moves runs on after attempts that have ended their steps: writes the steps, decides the steps downstream, and
-- finishes. The caller has locked the runs.
create function pipeline.move_on_v1(
    p_ends pipeline.attempt_end[], p_worker bigint, p_offers pipeline.slot_offer[], p_kinds text[],
    out queues text[], out started pipeline.started_step[], out over pipeline.ended_run[]
)
language plpgsql as $$
declare
    v_ended pipeline.ended_step[];
    v_decided record;
    v_finished record;
begin
    v_ended := pipeline.end_steps_v1(p_ends);
    v_decided := pipeline.decide_downstream_v1(v_ended);
    v_finished := pipeline.finish_v1(v_decided.ended, v_decided.released, p_worker, p_offers, p_kinds, false);
    queues := v_finished.queues;
    started := v_finished.started;
    over := v_finished.over;
end $$;

-- Writes the ends of steps. Returns them, with the steps that are skipped because an end halts its run or ends it
-- early (rules 13 and 14).
create function pipeline.end_steps_v1(p_ends pipeline.attempt_end[]) returns pipeline.ended_step[]
language plpgsql as $$
declare
    v_now timestamptz := pipeline.now();
    v_ended pipeline.ended_step[];
    v_is_unusual boolean;       -- whether an end halts its run or ends it early
begin
    with ended as (
        update pipeline.steps s
        set status = e.status,
            reason = case when e.status = 'cancelled'
                          then case when e.drain = 'deadline' then 'deadline'::pipeline.step_reason
                                    else 'cancelled' end
                          else s.reason end,
            token = e.token, attempt = e.attempt, ended_at = v_now,
            -- The worker measures from before its claim was sent, which may be before the step was enqueued.
            ran_ms = least(e.ran_ms,
                           greatest(floor(extract(epoch from v_now - s.enqueued_at) * 1000), 0))::integer,
            output = e.output,
            -- Four bytes of the stored size are its header.
            output_bytes = case when pg_column_size(e.output) > 4096
                                then pg_column_size(e.output) - 4 end,
            arm = e.arm,
            error_class = e.error_class,
            error_message = e.error_message
        from (
            select s.row, e.token, e.attempt, e.ran_ms, e.place, r.graph, r.drain, n.kind, n.strategy, n.optional, n.outs, arm.chosen as arm,
                   case when arm.is_none then 'failed'::pipeline.step_status
                        when e.outcome = 'ended_run' then 'halted'
                        when e.outcome = 'succeeded' then 'succeeded'
                        when e.outcome = 'cancelled' then 'cancelled'
                        else 'failed' end as status,
                   case when e.outcome in ('succeeded', 'ended_run') and not arm.is_none
                        then e.output end as output,
                   case when arm.is_none then 'NotAnArm' else e.error_class end as error_class,
                   case when arm.is_none
                        then format('step `%s` chose %s, which is none of its arms: %s', n.key, e.output,
                                    array_to_string(n.arms, ', '))
                        else e.error_message end as error_message
            from unnest(p_ends) as e
            cross join lateral (
                select r.graph, r.drain from pipeline.runs r where r.id = pipeline.run_of(e.job) offset 0
            ) as r
            cross join lateral (
                select n.kind, n.strategy, n.optional, n.key, n.arms, n.outs from pipeline.nodes n
                where n.graph = r.graph and n.no = pipeline.no_of(e.job) offset 0
            ) as n
            cross join lateral (
                select s.ctid as row from pipeline.steps s
                where s.run = pipeline.run_of(e.job) and s.no = pipeline.no_of(e.job)
                  and s.status = 'enqueued' offset 0
            ) as s
            cross join lateral (
                select chosen, n.kind = 'branch' and e.outcome = 'succeeded' and chosen is null as is_none
                from (
                    select case when n.kind = 'branch' and e.outcome = 'succeeded'
                                then array_position(n.arms, e.output #>> '{}') - 1 end as chosen
                ) as arm
            ) as arm
        ) as e
        where s.ctid = e.row
        returning s.run, s.no, e.graph, s.status, e.strategy, e.drain, e.optional, s.attempt, e.place, s.arm,
                  e.kind, e.outs
    )
    select array_agg(row(
               e.run, e.no, e.graph, e.status, e.strategy = 'ignore',
               e.status = 'failed' and e.strategy = 'halt' and e.drain is null,
               e.status = 'failed' and not e.optional, e.attempt, e.place,
               case when e.kind = 'branch' and e.status = 'succeeded' then e.arm end, e.outs
           )::pipeline.ended_step),
           bool_or(e.status = 'halted' or e.status = 'failed' and e.strategy = 'halt' and e.drain is null)
    into v_ended, v_is_unusual
    from ended e;
    if not v_is_unusual then
        return v_ended;
    end if;

    -- If several steps of a run have ended, the ends that halt the run come first: that is one of the possible
    -- orders.
    with halted as (
        select e.run, e.graph, bool_or(e.status = 'halted') as is_early,
               coalesce(min(e.no) filter (where e.status = 'halted'), min(e.no)) as cause
        from unnest(v_ended) as e
        where e.status = 'halted' or e.is_halting
        group by e.run, e.graph
    ), skipped as (
        update pipeline.steps s
        set status = 'skipped', ended_at = v_now, cause = h.cause,
            reason = case when h.is_early then 'ended_by'::pipeline.step_reason else 'halted_by' end
        from halted h
        cross join lateral (
            select b.ctid as row, b.no from pipeline.steps b
            where b.run = h.run and b.status in ('pending', 'waiting') offset 0
        ) as b
        cross join lateral (
            select n.exempt, n.outs from pipeline.nodes n where n.graph = h.graph and n.no = b.no offset 0
        ) as n
        where s.ctid = b.row and (h.is_early or not n.exempt)
        returning s.run, s.no, h.graph, n.outs
    )
    select v_ended || array_agg(row(s.run, s.no, s.graph, 'skipped', false, false, false, null, null, null,
                                    s.outs)::pipeline.ended_step)
    into v_ended from skipped s;
    return v_ended;
end $$;

-- Decides the steps downstream of ended steps, level by level, until no further step is decided. `ended` are all
-- ended steps, the given ones first; `released` are the steps that can start.
create function pipeline.decide_downstream_v1(
    p_ended pipeline.ended_step[],
    out ended pipeline.ended_step[], out released pipeline.released_step[]
)
language plpgsql as $$
declare
    v_now timestamptz := pipeline.now();
    v_level pipeline.ended_step[] := p_ended;
    v_next record;
    v_has_merge boolean;
    v_has_any boolean := false; -- whether a step starts after any one of its upstream steps
    -- Appending copies an array, so that a long line of steps would take quadratic time: the results of the last
    -- levels are kept apart, and appended when there are many.
    c_many constant integer := 256;
    v_ended pipeline.ended_step[];
    v_released pipeline.released_step[];
begin
    while v_level is not null loop
        if exists (select from unnest(v_level) as e where e.kept_arm is not null) then
            v_level := pipeline.skip_arms_v1(v_level);
        end if;
        v_ended := v_ended || v_level;
        if cardinality(v_ended) >= c_many then
            ended := ended || v_ended;
            v_ended := null;
        end if;

        with touched as (
            select e.run, e.graph, o.no, count(*)::integer as count,
                   bool_or(e.status = 'succeeded') as has_success,
                   bool_or(effect.is = 'broken') as is_broken,
                   bool_or(effect.is = 'not_taken') as is_not_taken,
                   min(e.no) filter (where effect.is <> 'satisfied') as cause,
                   min(e.place) filter (where e.status = 'succeeded') as place, min(o.takes) as takes
            from unnest(v_level) as e
            cross join lateral unnest(e.outs) as o
            cross join lateral (
                select pipeline.edge_effect(e.status, e.is_ignored, o.takes) as is
            ) as effect
            group by e.run, e.graph, o.no
        ), decided as (
            update pipeline.steps s
            set waits = s.waits - t.count,
                is_broken = s.is_broken or t.is_broken,
                is_not_taken = s.is_not_taken or t.is_not_taken,
                status = next.status,
                enqueued_at = case when next.status = 'enqueued' then v_now end,
                ended_at = case when next.status not in ('pending', 'enqueued') then v_now end,
                reason = case next.status
                    when 'enqueued' then case when n.is_any then 'first'::pipeline.step_reason end
                    when 'skipped_by_branch' then 'no_failure'
                    when 'skipped' then case when n.is_any then 'none_succeeded'::pipeline.step_reason
                                        else 'broken' end
                end,
                cause = case when next.status = 'succeeded' or n.is_any then null
                             else coalesce(s.cause, t.cause) end
            from touched t
            cross join lateral (
                select n.* from pipeline.nodes n where n.graph = t.graph and n.no = t.no offset 0
            ) as n
            cross join lateral (
                select b.ctid as row, b.waits, b.is_broken, b.is_not_taken from pipeline.steps b
                where b.run = t.run and b.no = t.no and b.status = 'pending' offset 0
            ) as b
            cross join lateral (
                select pipeline.step_status_after(
                    b.waits - t.count, n.is_any, n.kind, t.has_success, b.is_broken or t.is_broken,
                    b.is_not_taken or t.is_not_taken
                ) as status
            ) as next
            where s.ctid = b.row
            returning s.run, s.no, t.graph, s.status, s.params, n.kind, n.is_any, n.outs, n.job, n.queue,
                      n.priority, n.attempts, n.lease_ms, n.delay_ms, n.key, n.options, n.input,
                      case when n.waits = 1 and coalesce(pg_column_size(s.params), 0) <= 2000
                           then t.place end as place,
                      t.takes
        )
        select array_agg(row(
                   d.run, d.no, d.graph, d.status, false, false, false, null, null,
                   case when d.kind = 'branch' and d.status = 'skipped_by_branch' then -1 end, d.outs
               )::pipeline.ended_step) filter (where d.status not in ('pending', 'enqueued')) as ended,
               array_agg(row(
                   d.run, d.no, d.place, d.takes, d.params, d.job, d.queue, d.priority, d.attempts, d.lease_ms,
                   d.delay_ms, d.key, d.options, d.input
               )::pipeline.released_step) filter (where d.status = 'enqueued') as released,
               bool_or(d.kind = 'merge' and d.status = 'succeeded') as has_merge,
               bool_or(d.is_any and d.status = 'enqueued') as has_any
        into v_next from decided d;
        v_level := v_next.ended;
        if v_next.has_merge then
            perform pipeline.copy_merged_v1(v_level);
        end if;
        v_has_any := v_has_any or coalesce(v_next.has_any, false);
        if v_next.released is not null then
            v_released := v_released || v_next.released;
            if cardinality(v_released) >= c_many then
                released := released || v_released;
                v_released := null;
            end if;
        end if;
    end loop;
    ended := ended || v_ended;
    released := released || v_released;
    if v_has_any then
        perform pipeline.set_first_v1(released);
    end if;
end $$;

-- Skips the arms of branches that were not chosen. Returns the given steps and the skipped ones.
create function pipeline.skip_arms_v1(p_ended pipeline.ended_step[]) returns pipeline.ended_step[]
language plpgsql as $$
declare
    v_now timestamptz := pipeline.now();
    v_skipped pipeline.ended_step[];
begin
    with skipped as (
        update pipeline.steps s
        set status = 'skipped_by_branch', ended_at = v_now, cause = a.branch, reason = 'not_chosen'
        from unnest(p_ended) as e
        join pipeline.arms a on a.graph = e.graph and a.branch = e.no and a.arm <> e.kept_arm
        cross join lateral (
            select n.outs from pipeline.nodes n where n.graph = a.graph and n.no = a.no offset 0
        ) as n
        where e.kept_arm is not null and s.run = e.run and s.no = a.no and s.status = 'pending'
        returning s.run, s.no, e.graph, n.outs
    )
    select array_agg(row(s.run, s.no, s.graph, 'skipped_by_branch', false, false, false, null, null, null,
                         s.outs)::pipeline.ended_step)
    into v_skipped from skipped s;
    return p_ended || v_skipped;
end $$;

-- Copies the output of the chosen arm to merges that have succeeded.
create function pipeline.copy_merged_v1(p_ended pipeline.ended_step[]) returns void
language plpgsql as $$
begin
    update pipeline.steps s set output = value.output, output_bytes = value.output_bytes
    from unnest(p_ended) as e
    join pipeline.nodes n on n.graph = e.graph and n.no = e.no and n.kind = 'merge'
    join pipeline.steps branch on branch.run = e.run and branch.no = n.branch
    join pipeline.steps value on value.run = e.run and value.no = n.returns[branch.arm + 1]
    where e.status = 'succeeded' and s.run = e.run and s.no = e.no;
end $$;

-- Sets the cause of steps that start after any one of their upstream steps. The order of ends within one advance is
-- unknown: the cause is the first upstream step, in the order of the edges, that has succeeded.
create function pipeline.set_first_v1(p_released pipeline.released_step[]) returns void
language plpgsql as $$
begin
    update pipeline.steps s set cause = first.up
    from unnest(p_released) as e
    join pipeline.runs r on r.id = e.run
    join pipeline.nodes n on n.graph = r.graph and n.no = e.no and n.is_any
    cross join lateral (
        select d.up from pipeline.dependencies d
        join pipeline.steps up on up.run = e.run and up.no = d.up and up.status = 'succeeded'
        where d.graph = r.graph and d.down = e.no
        order by d.pos
        limit 1
    ) as first
    where s.run = e.run and s.no = e.no;
end $$;

-- Enqueues steps. A step for which the worker offers a slot is handed over: it starts there at once, as if
-- claimed. A queue belongs only to the worker's most specific matching pattern: its exact name, else the longest
-- prefix. p_offers includes patterns without a free slot, so that their queues do not use the slots of a less
-- specific pattern.
create function pipeline.enqueue_steps_v1(
    p_released pipeline.released_step[], p_worker bigint, p_offers pipeline.slot_offer[], p_kinds text[],
    out queues text[], out started pipeline.started_step[]
)
language plpgsql as $$
declare
    v_now timestamptz := pipeline.now();
begin
    with placed as materialized (
        select p.*, pipeline.step_id(p.run, p.no) as id,
               -- Random, so that no token is used twice, even after a crash.
               case when p.line <= p.free then (random() * 9e18)::bigint end as token
        from (
            select e.*, offer.free,
                   row_number() over (partition by offer.pattern order by e.priority desc, e.run, e.no) as line
            from unnest(p_released) as e
            left join lateral (
                select o.pattern, o.free, o.min_priority from unnest(p_offers) as o
                where e.queue = o.pattern
                   or right(o.pattern, 1) = '*' and starts_with(e.queue, left(o.pattern, -1))
                order by e.queue = o.pattern desc, length(o.pattern) desc
                limit 1
            ) as offer on e.delay_ms = 0 and e.priority >= offer.min_priority and e.job = any (p_kinds)
                      and not exists (select from pipeline.queues q
                                      where q.name = e.queue and q.paused_at is not null)
        ) as p
    ), enqueued as (
        insert into pipeline.jobs (id, status, token, attempt, worker, claimed_at, lease_until, run_at,
                                   created_at, kind, queue, priority, attempts, lease_ms, args)
        select p.id,
               case when p.token is not null then 'running'::pipeline.job_status
                    when p.delay_ms > 0 then 'later' else 'ready' end,
               p.token, (p.token is not null)::integer, case when p.token is not null then p_worker end,
               case when p.token is not null then v_now end,
               case when p.token is not null then v_now + p.lease_ms * interval '1 ms' end,
               v_now + p.delay_ms * interval '1 ms', v_now, p.job, p.queue, p.priority, p.attempts, p.lease_ms,
               'null'
        from placed p
    )
    select array_agg(distinct p.queue) filter (where p.token is null),
           array_agg(row(
               p.id, p.token, p.job, p.queue, p.priority, p.attempts, p.lease_ms, p.place,
               p.params::text, p.options::text, p.shape::text, array[p.takes::text], null, null, null, null,
               false, p.key, null, null
           )::pipeline.started_step) filter (where p.token is not null)
    into queues, started from placed p;
end $$;

-- Loads the inputs of started steps that are not known yet. A step whose input has no room now is given back to its
-- queue (`queues`).
create function pipeline.load_started_v1(
    p_started pipeline.started_step[], p_input_limit bigint, p_input_total bigint,
    out started pipeline.started_step[], out queues text[]
)
language plpgsql as $$
declare
    v_loaded pipeline.started_step[];
    v_put_off bigint[];
    v_tokens bigint[];
begin
    select array_agg(row(
               i.id, s.token, i.kind, i.queue, i.priority, i.attempts, i.lease_ms, null, i.params, i.options,
               i.shape, i.takes, i.outputs, i.failed, i.classes, i.messages, i.cancelled, i.key, i.round, i.size
           )::pipeline.started_step) filter (where not i.put_off),
           array_agg(i.id) filter (where i.put_off), array_agg(s.token) filter (where i.put_off),
           array_agg(distinct i.queue) filter (where i.put_off)
    into v_loaded, v_put_off, v_tokens, queues
    from pipeline.inputs_v1(
        array(select s.id from unnest(p_started) as s where s.place is null), p_input_limit, p_input_total
    ) as i
    join unnest(p_started) as s on s.id = i.id;
    if v_put_off is not null then
        perform pipeline.unclaim_v1(v_put_off, v_tokens);
    end if;
    started := array(select s from unnest(p_started) as s where s.place is not null) || v_loaded;
end $$;

-- Counts ended steps in their runs, writes the events, and ends the runs that have no live step left. Returns the
-- runs that have ended.
create function pipeline.count_ended_v1(
    p_ended pipeline.ended_step[], p_released pipeline.released_step[]
) returns pipeline.ended_run[]
language plpgsql as $$
declare
    v_now timestamptz := pipeline.now();
    v_over pipeline.ended_run[];
    v_history smallint;         -- the most that one of these runs keeps
    v_runs bigint;
begin
    with counted as (
        select e.run, count(e.no)::integer as ended, coalesce(bool_or(e.is_halting), false) as is_halting,
               coalesce(bool_or(e.fails_run), false) as fails_run
        from unnest(p_ended) as e
        group by e.run
    ), moved as (
        update pipeline.runs r
        set live = r.live - c.ended,
            is_failed = r.is_failed or c.fails_run,
            halt = r.halt or c.is_halting,
            status = case when r.live = c.ended
                          then pipeline.final_run_status(r.status, r.drain, r.is_failed or c.fails_run,
                                                         r.halt or c.is_halting)
                          else r.status end,
            ended_at = case when r.live = c.ended then v_now end,
            events = r.events + case when r.history >= 2 then c.ended else 0 end
                              + case when r.history >= 1 and r.live = c.ended then 1 else 0 end
        from counted c
        cross join lateral (
            select b.ctid as row from pipeline.runs b where b.id = c.run offset 0
        ) as b
        where r.ctid = b.row
        returning r.id, r.status, r.live, r.history
    )
    select array_agg(row(m.id, m.status::text)::pipeline.ended_run) filter (where m.live = 0),
           max(m.history), count(*)
    into v_over, v_history, v_runs from moved m;

    if v_history >= 2 and v_runs = cardinality(p_ended) then
        -- One event for each run: it is the last one, or the last before that of the run's end.
        insert into pipeline.events (run, no, at, step, attempt, status)
        select e.run, r.events - (r.ended_at is not null)::integer, v_now, e.no, e.attempt, e.status::text
        from unnest(p_ended) as e
        cross join lateral (
            select r.events, r.ended_at from pipeline.runs r
            where r.id = e.run and r.history >= 2 offset 0
        ) as r
        where e.no is not null;
    elsif v_history >= 2 then
        insert into pipeline.events (run, no, at, step, attempt, status)
        select e.run, r.events - (r.ended_at is not null)::integer - e.after, v_now, e.no, e.attempt,
               e.status::text
        from (
            select e.run, e.no, e.attempt, e.status,
                   row_number() over (partition by e.run order by e.ord desc)::integer - 1 as after
            from unnest(p_ended) with ordinality
                 as e (run, no, graph, status, is_ignored, is_halting, fails_run, attempt, place, kept_arm,
                       outs, ord)
            where e.no is not null
        ) as e
        cross join lateral (
            select r.events, r.ended_at from pipeline.runs r
            where r.id = e.run and r.history >= 2 offset 0
        ) as r;
    end if;
    if v_over is not null and v_history >= 1 then
        insert into pipeline.events (run, no, at, status)
        select r.id, r.events, v_now, r.status::text
        from unnest(v_over) as o
        join pipeline.runs r on r.id = o.id
        where r.history >= 1;
    end if;
    if v_history >= 3 and p_released is not null then
        perform pipeline.record_released_v1(p_released);
    end if;
    return v_over;
end $$;

-- Writes the events of steps that can start, for runs that keep all events.
create function pipeline.record_released_v1(p_released pipeline.released_step[]) returns void
language plpgsql as $$
declare
    v_now timestamptz := pipeline.now();
begin
    with counted as (
        select e.run, count(*)::integer as count from unnest(p_released) as e group by e.run
    ), moved as (
        update pipeline.runs r set events = r.events + c.count
        from counted c where r.id = c.run and r.history >= 3
        returning r.id, r.events - c.count as base
    )
    insert into pipeline.events (run, no, at, step, status)
    select e.run, m.base + row_number() over (partition by e.run), v_now, e.no, 'enqueued'
    from unnest(p_released) as e join moved m on m.id = e.run;
end $$;
