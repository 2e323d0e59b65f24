-- What only outside hands can cause: a queue row that somebody has deleted or spoiled, a count that was
-- changed. An advance writes steps, their queue rows and their run in one transaction, so every
-- snapshot has them agree; where they do not, nobody would ever come, and the run would stand for ever.

-- One row: who looks holds it, and what was found stays in it. In normal life `found` is 0.
create table pipeline.reconciler (
    only_one  boolean             primary key default true check (only_one),
    next_at   timestamptz         not null default '-infinity',
    -- The last run that was looked at, as runs_by_status has it.
    at_status pipeline.run_status not null default 'pending',
    at_time   timestamptz         not null default '-infinity',
    at_run    bigint              not null default 0,
    acted_at  timestamptz,
    found_at  timestamptz,
    worker    bigint,                          -- that acted last
    passes    bigint              not null default 0,
    checked   bigint              not null default 0, -- runs
    found     bigint              not null default 0
);
insert into pipeline.reconciler default values;

-- What is wrong with live runs, as one snapshot has them. Of a run: `live` its count, `over` nothing is
-- live and it has not ended, `forgotten` all before it has ended and it waits. Of a step: `lost` and `spoiled` its queue row, `undecided` all before it has
-- ended and it waits, `waits` its count. `fact` is the count as the rows have it. Every lookup is kept
-- whole by `offset 0`: a run's steps are read once, however many there are.
create function pipeline.run_problems_v1(p_runs bigint[]) returns table (
    run bigint, no integer, key text, problem text, fact integer, attempt smallint, detail text
)
language sql stable
as $$
    select r.id, s.no, n.key, case when j.id is null then 'lost' else 'spoiled' end, null::integer,
           coalesce(j.attempt, (select max(a.attempt) from pipeline.attempts a
                                where a.job = pipeline.step_id(r.id, s.no)), 0::smallint),
           spoiled.detail
    from unnest(p_runs) as e (run)
    cross join lateral (
        select r.id, r.graph from pipeline.runs r
        where r.id = e.run and r.status in ('running', 'cancelling') offset 0
    ) as r
    cross join lateral (
        select s.no from pipeline.steps s where s.run = r.id and s.status = 'enqueued' offset 0
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
    from unnest(p_runs) as e (run)
    cross join lateral (
        select r.id, r.graph from pipeline.runs r
        where r.id = e.run and r.status = 'running' offset 0
    ) as r
    cross join lateral (
        select s.no, s.waits, s.attempt from pipeline.steps s
        where s.run = r.id and s.status = 'pending' offset 0
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
    from unnest(p_runs) as e (run)
    join pipeline.runs r on r.id = e.run and r.status in ('pending', 'running', 'cancelling')
    cross join lateral (
        select count(*)::integer from pipeline.steps s
        where s.run = r.id and s.status in ('pending', 'enqueued', 'waiting')
    ) as live
    where live.count <> r.live or live.count = 0 and r.status <> 'pending'

    union all
    select r.id, null, null, 'forgotten', null, null, null
    from unnest(p_runs) as e (run)
    join pipeline.runs r on r.id = e.run and r.status = 'pending'
    where not exists (
              select from pipeline.chains c join pipeline.runs up on up.id = c.up
              where c.down = r.id and up.status in ('pending', 'running', 'cancelling')
          )
      and not exists (select from pipeline.requests q where q.run = r.id)
$$;

-- Sets right what is still wrong with a run once it is locked. One that somebody else holds is moving: it
-- is left for the next time. What nobody can run any more has failed, and what follows from that is
-- advance_v1's to say. One run in a transaction: what holds several must not wait for more.
create function pipeline.mend_run_v1(
    p_run bigint, p_worker bigint,
    out problems text[], out queues text[], out over bigint[]
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
    v_ids bigint[] := '{}';
    v_attempts smallint[] := '{}';
    v_classes text[] := '{}';
    v_messages text[] := '{}';
begin
    problems := '{}';
    perform from pipeline.runs r where r.id = p_run for no key update skip locked;
    if not found then
        return;
    end if;
    for v_found in select * from pipeline.run_problems_v1(array[p_run]) loop
        v_id := pipeline.step_id(p_run, v_found.no);
        case v_found.problem
            when 'lost' then
                v_said := format('the queue row of step `%s` (job %s) is gone, and the step had not '
                                 'ended: somebody deleted it, or the server lost it; run the pipeline '
                                 'again, and cancel a run instead of deleting its rows',
                                 v_found.key, v_id);
                v_classes := v_classes || 'QueueRowLost'::text;
            when 'spoiled' then
                v_said := format('the queue row of step `%s` (job %s) was changed by somebody: %s, which '
                                 'no row of a live step can be; run the pipeline again, and leave the '
                                 'rows of its steps alone', v_found.key, v_id, v_found.detail);
                v_classes := v_classes || 'QueueRowSpoiled'::text;
            when 'undecided' then
                v_said := format('all that step `%s` comes after has ended, and it was never decided: %s, '
                                 'so somebody changed its row or one before it; run the pipeline again, '
                                 'and leave the rows of its steps alone', v_found.key, v_found.detail);
                v_classes := v_classes || 'StepUndecided'::text;
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
                update pipeline.runs r set live = v_found.fact where r.id = p_run;
        end case;
        problems := problems || v_said;
        if v_found.problem in ('lost', 'spoiled', 'undecided') then
            v_ids := v_ids || v_id;
            v_attempts := v_attempts || v_found.attempt;
            v_messages := v_messages || v_said;
        end if;
    end loop;

    if v_ids <> '{}' then
        select a.queues, a.over into queues, over
        from pipeline.advance_v1(
            v_ids, array_fill(null::bigint, array[cardinality(v_ids)]), v_attempts,
            array_fill(1::smallint, array[cardinality(v_ids)]),
            array_fill(null::integer, array[cardinality(v_ids)]),
            array_fill(null::json, array[cardinality(v_ids)]), v_classes, v_messages,
            p_worker, '{}', '{}', '{}', '{}') as a;
    elsif exists (select from pipeline.runs r where r.id = p_run and r.status <> 'pending'
                  and problems <> '{}') then
        -- If nothing is live, it is over; one that waits in its chain is that chain's to end.
        select f.queues, f.over into queues, over
        from pipeline.finish_v1('{}', '{}', '{}', '{}', '{}', '{}', '{}', null, array[p_run], p_worker, '{}', '{}',
                                '{}', '{}') as f;
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

-- What a pending step waits for, and what it has seen, as the steps before it have it.
create function pipeline.recount_waits_v1(p_run bigint, p_no integer) returns void
language sql
as $$
    update pipeline.steps s set waits = before.open, edges = before.seen
    from (
        select count(*) filter (where not ended)::integer as open,
               coalesce(bit_or(case
                   when up.status = 'succeeded' then 4 else 0
               end | case
                   when d.takes = 'failure' then case when up.status = 'failed' then 0 else 2 end
                   when up.status in ('skipped', 'cancelled')
                        or up.status = 'failed' and n.strategy <> 'ignore' then 1
                   else 0
               end) filter (where ended), 0)::smallint as seen
        from pipeline.runs r
        join pipeline.dependencies d on d.graph = r.graph and d.down = p_no
        join pipeline.nodes n on n.graph = r.graph and n.no = d.up
        join pipeline.steps up on up.run = r.id and up.no = d.up
        cross join lateral (select up.status not in ('pending', 'enqueued', 'waiting') as ended) as state
        where r.id = p_run
    ) as before
    where s.run = p_run and s.no = p_no and s.status = 'pending'
$$;

-- One pass, if it is time and nobody else is at it: looks at the next page of live runs, and says which
-- of them are not as they must be. It locks none. A page holds at most p_limit runs, and ends with the one
-- that makes it p_steps steps.
create function pipeline.reconcile_v1(
    p_worker bigint, p_every_ms bigint, p_limit integer, p_steps bigint,
    out passed boolean,         -- whether this call acted
    out checked integer,        -- runs
    out suspects bigint[]
)
language plpgsql
set enable_seqscan to off set enable_bitmapscan to off set enable_hashjoin to off
set enable_mergejoin to off set jit to off
as $$
declare
    v_now timestamptz := pipeline.now();
    v_self pipeline.reconciler;
    v_page bigint[];
    v_statuses pipeline.run_status[];
    v_times timestamptz[];
begin
    checked := 0;
    -- One that is far ahead was set before the clock was put back, or by a worker that looks rarely.
    select * into v_self from pipeline.reconciler r
    where r.next_at <= v_now or r.next_at > v_now + p_every_ms * interval '1 ms'
    for update skip locked;
    passed := found;
    if not passed then
        return;
    end if;

    -- The statuses of live runs come first.
    with next as (
        select r.id, r.status, r.created_at, g.size
        from pipeline.runs r
        join pipeline.graphs g on g.id = r.graph
        where r.status <= 'cancelling'
          and (r.status, r.created_at, r.id) > (v_self.at_status, v_self.at_time, v_self.at_run)
        order by r.status, r.created_at, r.id
        limit p_limit
    ), counted as (
        select next.*, row_number() over line as place, sum(next.size) over line - next.size as before
        from next window line as (order by next.status, next.created_at, next.id)
    )
    select coalesce(array_agg(c.id order by c.place) filter (where c.before < p_steps), '{}'),
           array_agg(c.status order by c.place), array_agg(c.created_at order by c.place)
    into v_page, v_statuses, v_times
    from counted c;
    checked := cardinality(v_page);
    select array_agg(distinct p.run order by p.run) into suspects
    from pipeline.run_problems_v1(v_page) as p;

    -- After the last page, from the beginning.
    if checked < p_limit and checked = coalesce(cardinality(v_times), 0) then
        v_self.at_status := 'pending';
        v_self.at_time := '-infinity';
        v_self.at_run := 0;
    else
        v_self.at_status := v_statuses[checked];
        v_self.at_time := v_times[checked];
        v_self.at_run := v_page[checked];
    end if;
    update pipeline.reconciler r
    set next_at = v_now + p_every_ms * 0.8 * interval '1 ms',
        at_status = v_self.at_status, at_time = v_self.at_time, at_run = v_self.at_run,
        acted_at = v_now, worker = p_worker, passes = r.passes + 1,
        checked = r.checked + reconcile_v1.checked;
end $$;
