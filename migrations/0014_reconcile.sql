-- The reconciler repairs rows that were changed outside the pipeline: a queue row that was deleted or changed, a
-- wrong count. An advance writes steps, their queue rows and their run in one transaction, so they agree in
-- every snapshot. If they disagree, no worker would ever continue the run, and the run would never end.

-- The state of the reconciler, in one row. A pass locks the row. `found` counts the problems; it is normally 0.
create table pipeline.reconciler (
    only_one  boolean             primary key default true check (only_one),
    next_at   timestamptz         not null default '-infinity',
    -- The last run that was checked, in the order of the index runs_by_status.
    at_status pipeline.run_status not null default 'pending',
    at_time   timestamptz         not null default '-infinity',
    at_run    bigint              not null default 0,
    -- The large run that is being checked in parts, and the first step that is not checked yet.
    part_run  bigint,
    part_from integer             not null default 0,
    acted_at  timestamptz,
    found_at  timestamptz,
    worker    bigint,                          -- the worker of the last pass
    passes    bigint              not null default 0,
    checked   bigint              not null default 0, -- runs
    found     bigint              not null default 0
);
insert into pipeline.reconciler default values;

-- Returns the problems of live runs in one snapshot. Checks the steps of each run from p_first to p_last, and the
-- run itself if p_is_end says that p_last is the last step.
-- Problems of a run: `live` its count of live steps is wrong, `over` no step is live and the run has not ended,
-- `forgotten` all runs before it have ended and it still waits. Problems of a step: `lost` its queue row does not
-- exist, `spoiled` its queue row was changed, `undecided` all upstream steps have ended and it still waits,
-- `waits` its count of open edges is wrong. `fact` is the correct count. `offset 0` keeps every lookup by key:
-- each step is read once, however many steps there are.
create function pipeline.run_problems_v1(
    p_runs bigint[], p_first integer[], p_last integer[], p_is_end boolean[]
) returns table (
    run bigint, no integer, key text, problem text, fact integer, attempt smallint, detail text
)
language sql stable
as $$
    select r.id, s.no, n.key, case when j.id is null then 'lost' else 'spoiled' end, null::integer,
           coalesce(j.attempt, (select max(a.attempt) from pipeline.attempts a
                                where a.job = pipeline.step_id(r.id, s.no)), 0::smallint),
           spoiled.detail
    from unnest(p_runs, p_first, p_last) as e (run, first, last)
    cross join lateral (
        select r.id, r.graph from pipeline.runs r
        where r.id = e.run and r.status in ('running', 'cancelling') offset 0
    ) as r
    cross join lateral (
        select s.no from pipeline.steps s
        where s.run = r.id and s.no between e.first and e.last and s.status = 'enqueued' offset 0
    ) as s
    cross join lateral (
        select n.key, n.job from pipeline.nodes n
        where n.graph = r.graph and n.no = s.no and n.kind in ('job', 'branch') offset 0
    ) as n
    left join lateral (
        select j.* from pipeline.jobs j where j.id = pipeline.step_id(r.id, s.no) offset 0
    ) as j on true
    cross join lateral (
        select case
            when j.status in ('succeeded', 'failed', 'discarded') then format('it is %s', j.status)
            when j.kind <> n.job then format('its type is `%s` and not `%s`', j.kind, n.job)
            when j.batch is not null then format('it is in batch %s', j.batch)
            when j.lease_ms <= 0 then format('its lease is %s ms long', j.lease_ms)
            when not isfinite(j.lease_until) then 'its lease never runs out'
        end as detail
    ) as spoiled
    where j.id is null or spoiled.detail is not null

    union all
    select r.id, s.no,
           (select n.key from pipeline.nodes n where n.graph = r.graph and n.no = s.no),
           case when open.count = 0 then 'undecided' else 'waits' end, open.count, s.attempt,
           format('it waits for %s', s.waits)
    from unnest(p_runs, p_first, p_last) as e (run, first, last)
    cross join lateral (
        select r.id, r.graph from pipeline.runs r
        where r.id = e.run and r.status = 'running' offset 0
    ) as r
    cross join lateral (
        select s.no, s.waits, s.attempt from pipeline.steps s
        where s.run = r.id and s.no between e.first and e.last and s.status = 'pending' offset 0
    ) as s
    cross join lateral (
        select count(*)::integer
        from (
            select d.up from pipeline.dependencies d where d.graph = r.graph and d.down = s.no offset 0
        ) as d
        cross join lateral (
            select from pipeline.steps up
            where up.run = r.id and up.no = d.up and up.status in ('pending', 'enqueued', 'waiting')
            offset 0
        ) as up
    ) as open
    where open.count = 0 or open.count <> s.waits

    union all
    select r.id, null, null, case when live.count = r.live then 'over' else 'live' end, live.count, null,
           format('it counts %s live steps', r.live)
    from unnest(p_runs, p_is_end) as e (run, is_end)
    join pipeline.runs r on e.is_end and r.id = e.run and r.status in ('pending', 'running', 'cancelling')
    cross join lateral (
        select count(*)::integer from pipeline.steps s
        where s.run = r.id and s.status in ('pending', 'enqueued', 'waiting')
    ) as live
    where live.count <> r.live or live.count = 0 and r.status <> 'pending'

    union all
    select r.id, null, null, 'forgotten', null, null, null
    from unnest(p_runs, p_is_end) as e (run, is_end)
    join pipeline.runs r on e.is_end and r.id = e.run and r.status = 'pending'
    where not exists (
              select from pipeline.chains c join pipeline.runs up on up.id = c.up
              where c.down = r.id and up.status in ('pending', 'running', 'cancelling')
          )
      and not exists (select from pipeline.requests q where q.run = r.id)
$$;

-- Returns those of these runs that have problems.
create function pipeline.suspects_v1(
    p_runs bigint[], p_first integer[], p_last integer[], p_is_end boolean[]
) returns bigint[]
language plpgsql stable
set enable_seqscan to off set enable_bitmapscan to off set enable_hashjoin to off
set enable_mergejoin to off set jit to off
as $$
begin
    return (select array_agg(distinct p.run order by p.run)
            from pipeline.run_problems_v1(p_runs, p_first, p_last, p_is_end) as p);
end $$;

-- Repairs the problems that a run still has once it is locked. A run that another transaction holds is in
-- progress, and is left for the next pass. A step that no worker can run any more fails, and move_on_v1 decides
-- what follows. Each call repairs one run in its own transaction and never waits for a lock: a queue row that
-- another transaction holds is left for the next pass too.
create function pipeline.mend_run_v1(
    p_run bigint, p_worker bigint, p_first integer, p_last integer, p_is_end boolean,
    out problems text[], out queues text[], out over pipeline.ended_run[]
)
language plpgsql
set enable_seqscan to off set enable_bitmapscan to off set enable_hashjoin to off
set enable_mergejoin to off set jit to off
as $$
declare
    v_now timestamptz := pipeline.now();
    v_found record;
    v_id bigint;
    v_said text;
    v_class text;
    v_ends pipeline.attempt_end[] := '{}';  -- of steps that fail
begin
    problems := '{}';
    perform from pipeline.runs r where r.id = p_run for no key update skip locked;
    if not found then
        return;
    end if;
    for v_found in
        select * from pipeline.run_problems_v1(array[p_run], array[p_first], array[p_last],
                                               array[p_is_end])
    loop
        v_id := pipeline.step_id(p_run, v_found.no);
        if v_found.problem = 'spoiled' then
            perform from pipeline.jobs j where j.id = v_id for update skip locked;
            continue when not found;
        end if;
        case v_found.problem
            when 'lost' then
                v_said := format('the queue row of step `%s` (job %s) is gone, and the step had not '
                                 'ended: somebody deleted it, or the server lost it; reopen the run '
                                 '(`run.reopen()`), and cancel a run instead of deleting its rows',
                                 v_found.key, v_id);
                v_class := 'QueueRowLost';
            when 'spoiled' then
                v_said := format('the queue row of step `%s` (job %s) was changed by somebody: %s, which '
                                 'no row of a live step can be; reopen the run (`run.reopen()`), and leave the '
                                 'rows of its steps alone', v_found.key, v_id, v_found.detail);
                v_class := 'QueueRowSpoiled';
                delete from pipeline.jobs j where j.id = v_id;
            when 'undecided' then
                v_said := format('all that step `%s` comes after has ended, and it was never decided: %s, '
                                 'so somebody changed its row or one before it; reopen the run '
                                 '(`run.reopen()`), and leave the rows of its steps alone', v_found.key, v_found.detail);
                v_class := 'StepUndecided';
                update pipeline.steps s set status = 'enqueued', enqueued_at = v_now
                where s.run = p_run and s.no = v_found.no;
            when 'waits' then
                v_said := format('step `%s`: %s and comes after %s that have not ended; set right',
                                 v_found.key, v_found.detail, v_found.fact);
                perform pipeline.recount_waits_v1(p_run, v_found.no);
            when 'forgotten' then
                v_said := format('run %s waits in its chain, and no run before it is on its way: somebody '
                                 'deleted or changed one; it is looked at once more', p_run);
                insert into pipeline.requests (id, run, created_at, kind)
                values (nextval('pipeline.ids'), p_run, v_now, 'chain');
                perform pg_notify('pipeline_requests', '');
            else
                v_said := format('run %s: %s and has %s; set right', p_run, v_found.detail, v_found.fact);
                update pipeline.runs r
                set live = v_found.fact,
                    is_failed = exists (
                        select from pipeline.steps s
                        join pipeline.nodes n on n.graph = r.graph and n.no = s.no and not n.optional
                        where s.run = r.id and s.status = 'failed'
                    )
                where r.id = p_run;
        end case;
        problems := problems || v_said;
        if v_found.problem in ('lost', 'spoiled', 'undecided') then
            v_ends := v_ends || row(v_id, null, 'failed', v_found.attempt, null, 0, null, v_class, v_said,
                                    cardinality(v_ends))::pipeline.attempt_end;
        end if;
    end loop;

    if cardinality(v_ends) > 0 then
        select m.queues, m.over into queues, over
        from pipeline.move_on_v1(v_ends, p_worker, '{}', '{}') as m;
    elsif exists (select from pipeline.runs r where r.id = p_run and r.status <> 'pending'
                  and problems <> '{}') then
        -- A run without a live step ends here, unless it waits in a chain: settle_run_v1 decides about that.
        select f.queues, f.over into queues, over
        from pipeline.finish_v1(pipeline.unchanged_runs(array[p_run]), null, p_worker, '{}', '{}', false) as f;
    end if;
    if problems <> '{}' then
        perform pipeline.count_found_v1(cardinality(problems));
    end if;
end $$;

create function pipeline.count_found_v1(p_count integer) returns void
language sql
as $$
    update pipeline.reconciler set found = found + p_count, found_at = pipeline.now()
$$;

-- Recomputes the counts of a pending step (open edges, and outcomes so far) from its upstream steps.
create function pipeline.recount_waits_v1(p_run bigint, p_no integer) returns void
language sql
as $$
    update pipeline.steps s
    set waits = before.open, is_broken = before.is_broken, is_not_taken = before.is_not_taken
    from (
        select count(*) filter (where not ended)::integer as open,
               coalesce(bool_or(effect = 'broken') filter (where ended), false) as is_broken,
               coalesce(bool_or(effect = 'not_taken') filter (where ended), false) as is_not_taken
        from pipeline.runs r
        join pipeline.dependencies d on d.graph = r.graph and d.down = p_no
        join pipeline.nodes n on n.graph = r.graph and n.no = d.up
        join pipeline.steps up on up.run = r.id and up.no = d.up
        cross join lateral (
            select up.status not in ('pending', 'enqueued', 'waiting') as ended,
                   pipeline.edge_effect(up.status, n.strategy = 'ignore', d.takes) as effect
        ) as state
        where r.id = p_run
    ) as before
    where s.run = p_run and s.no = p_no and s.status = 'pending'
$$;

-- Returns the next part of a run to check: from step p_first on, at most p_units steps and incoming edges, and
-- at least one step. `is_end` says that the part includes the last step.
create function pipeline.next_part_v1(
    p_graph bigint, p_first integer, p_units bigint,
    out last integer, out units bigint, out is_end boolean
)
language plpgsql stable
set enable_seqscan to off set enable_bitmapscan to off set jit to off
as $$
begin
    select max(n.no), sum(1 + n.waits) into last, units
    from (
        select n.no, n.waits, sum(1 + n.waits) over (order by n.no) as until
        from (
            select n.no, n.waits from pipeline.nodes n
            where n.graph = p_graph and n.no >= p_first
            order by n.no limit p_units
        ) as n
    ) as n
    where n.until <= p_units or n.no = p_first;
    last := coalesce(last, p_first);
    units := coalesce(units, 1);
    is_end := not exists (select from pipeline.nodes n where n.graph = p_graph and n.no > last);
end $$;

-- Begins a pass if one is due and no other worker runs one: returns the runs to check, and stores the position for
-- the next pass. The caller checks the runs in another transaction (suspects_v1), so that the next pass checks
-- other runs if that transaction takes too long or fails. A pass has at most p_limit runs, and ends with the run
-- that reaches p_units steps and edges. A run with more of them is checked in parts, one part in each pass.
create function pipeline.reconcile_v1(
    p_worker bigint, p_every_ms bigint, p_limit integer, p_units bigint,
    out passed boolean,         -- whether this call began a pass
    out checked integer,        -- the number of runs whose check is complete
    -- The parts to check, as parameters of run_problems_v1.
    out runs bigint[], out firsts integer[], out lasts integer[], out is_end boolean[]
)
language plpgsql
set enable_seqscan to off set enable_bitmapscan to off set enable_hashjoin to off
set enable_mergejoin to off set jit to off
as $$
declare
    v_now timestamptz := pipeline.now();
    v_self pipeline.reconciler;
    v_run record;
    v_part record;
    v_first integer;
    v_left bigint := p_units;
    v_count integer := 0;
begin
    checked := 0;
    runs := '{}';
    firsts := '{}';
    lasts := '{}';
    is_end := '{}';
    -- A next_at far in the future was set before the clock was set back, or by a worker with a longer interval.
    select * into v_self from pipeline.reconciler r
    where r.next_at <= v_now or r.next_at > v_now + p_every_ms * interval '1 ms'
    for update skip locked;
    passed := found;
    if not passed then
        return;
    end if;

    -- The statuses of live runs come first.
    for v_run in
        select r.id, r.graph, true as is_rest, r.status, r.created_at from pipeline.runs r
        where r.id = v_self.part_run and r.status <= 'cancelling'
        union all
        (
            select r.id, r.graph, false, r.status, r.created_at from pipeline.runs r
            where r.status <= 'cancelling'
              and (r.status, r.created_at, r.id) > (v_self.at_status, v_self.at_time, v_self.at_run)
            order by r.status, r.created_at, r.id
            limit p_limit
        )
    loop
        exit when v_left <= 0;
        v_first := case when v_run.is_rest then v_self.part_from else 0 end;
        select * into v_part from pipeline.next_part_v1(v_run.graph, v_first, p_units);
        v_left := v_left - v_part.units;
        v_count := v_count + 1;
        checked := checked + v_part.is_end::integer;
        runs := runs || v_run.id;
        firsts := firsts || v_first;
        lasts := lasts || v_part.last;
        is_end := is_end || v_part.is_end;
        if not v_run.is_rest then
            v_self.at_status := v_run.status;
            v_self.at_time := v_run.created_at;
            v_self.at_run := v_run.id;
        end if;
        exit when not v_part.is_end;
    end loop;

    v_self.part_run := null;
    v_self.part_from := 0;
    if v_count > 0 and not is_end[v_count] then
        v_self.part_run := runs[v_count];
        v_self.part_from := lasts[v_count] + 1;
    elsif v_left > 0 and v_count < p_limit then
        -- After the last run, start over.
        v_self.at_status := 'pending';
        v_self.at_time := '-infinity';
        v_self.at_run := 0;
    end if;
    update pipeline.reconciler r
    set next_at = v_now + p_every_ms * 0.8 * interval '1 ms',
        at_status = v_self.at_status, at_time = v_self.at_time, at_run = v_self.at_run,
        part_run = v_self.part_run, part_from = v_self.part_from,
        acted_at = v_now, worker = p_worker, passes = r.passes + 1,
        checked = r.checked + reconcile_v1.checked;
end $$;
