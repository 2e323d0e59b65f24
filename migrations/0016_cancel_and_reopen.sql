-- What is asked of a run from outside. Whoever asks locks the run, and with it all that may change
-- because of it, without waiting: if somebody else holds one of them, it lets go and tries again.

-- Locks runs and what is chained to them and has not begun. False where somebody else holds one.
create function pipeline.lock_runs_v1(p_runs bigint[]) returns boolean
language plpgsql
set enable_seqscan to off set jit to off
as $$
declare
    v_wanted bigint[];
    v_locked bigint;
begin
    select array_agg(r.id) into v_wanted
    from (
        select e.id from unnest(p_runs) as e (id)
        union select e.id from unnest(pipeline.reach_v1(p_runs)) as e (id)
    ) as e
    cross join lateral (
        select r.id from pipeline.runs r
        where r.id = e.id and (r.status in ('pending', 'skipped') or e.id = any (p_runs)) offset 0
    ) as r;
    with locked as (
        select from pipeline.runs r where r.id = any (v_wanted)
        order by r.id for no key update skip locked
    )
    select count(*) into v_locked from locked;
    return v_locked >= coalesce(cardinality(v_wanted), 0);
end $$;

-- Rule 18: cancels a run that the caller has locked, or drains it because its deadline has passed.
-- `refused` is its status where it cannot be cancelled any more; `asked` are the jobs that run and
-- are to be asked to stop.
create function pipeline.cancel_v1(
    p_run bigint, p_drain pipeline.drain,
    out refused text, out queues text[], out over bigint[], out asked bigint[]
)
language plpgsql
set enable_seqscan to off set enable_bitmapscan to off set enable_hashjoin to off
set enable_mergejoin to off set jit to off
as $$
declare
    v_now timestamptz := pipeline.now();
    v_run pipeline.runs;
    v_reason pipeline.step_reason := case p_drain when 'deadline' then 'deadline' else 'cancelled' end;
    v_ended record;
begin
    select * into v_run from pipeline.runs where id = p_run;
    if v_run.status in ('cancelling', 'cancelled') then
        return;
    elsif v_run.status not in ('pending', 'running')
          or p_drain = 'deadline' and (v_run.status <> 'running' or v_run.deadline_at is null
                                       or v_run.deadline_at > v_now) then
        refused := v_run.status;
        return;
    end if;
    -- A run that waits in its chain is cancelled at once, without being drained first.
    update pipeline.runs
    set drain = p_drain,
        status = case when status = 'running' then 'cancelling' else status end::pipeline.run_status,
        events = events + (history > 0 and status = 'running')::integer
    where id = p_run;
    if v_run.status = 'running' and v_run.history > 0 then
        insert into pipeline.events (run, no, at, status)
        values (p_run, v_run.events + 1, v_now, 'cancelling');
    end if;
    -- What no worker has taken. One that is being claimed at this moment is waited for, and runs.
    with queued as (
        select pipeline.step_id(s.run, s.no) as id from pipeline.steps s
        where s.run = p_run and s.status = 'enqueued'
    ), withdrawn as (
        delete from pipeline.jobs j using queued q
        where j.id = q.id and j.status in ('later', 'ready')
        returning j.id
    ), ended as (
        update pipeline.steps s
        set status = 'cancelled', ended_at = v_now, reason = v_reason, cause = null
        where s.run = p_run
          and (s.status in ('pending', 'waiting')
               or s.status = 'enqueued'
                  and pipeline.step_id(s.run, s.no) in (select w.id from withdrawn w))
        returning s.run, s.no
    )
    select coalesce(array_agg(run), '{}') as run, coalesce(array_agg(no), '{}') as no
    into v_ended from ended;
    select array_agg(j.id) into asked from pipeline.steps s
    join pipeline.jobs j on j.id = pipeline.step_id(s.run, s.no)
    where s.run = p_run and s.status = 'enqueued';
    select f.queues, f.over into queues, over
    from pipeline.finish_v1(v_ended.run, v_ended.no,
                            array_fill(6::smallint, array[cardinality(v_ended.run)]), '{}', '{}', '{}',
                            '{}', null, array[p_run], 0, '{}', '{}', '{}', '{}') as f;
end $$;

-- Rule 19: opens a run again that the caller has locked. Failed, skipped and cancelled steps go back
-- to pending, ignored failures only where they are named; what has an output keeps it. Runs that were
-- skipped because of it become pending again. `refused` is its status where it cannot be reopened.
-- Of what is left pending, a run before it may be ending at this moment, and who ends it does not see
-- this: a request has it looked at once more.
create function pipeline.reopen_v1(
    p_run bigint, p_named text[], out refused text, out queues text[], out over bigint[]
)
language plpgsql
set enable_seqscan to off set enable_bitmapscan to off set enable_hashjoin to off
set enable_mergejoin to off set jit to off
as $$
declare
    v_run pipeline.runs;
    v_blocked boolean;
    v_next bigint[];
    v_level bigint[];
    v_opened bigint[] := array[p_run];
begin
    select * into v_run from pipeline.runs where id = p_run;
    if v_run.status not in ('failed', 'halted', 'cancelled') then
        refused := v_run.status;
        return;
    end if;
    v_blocked := exists (
        select from pipeline.chains c join pipeline.runs up on up.id = c.up
        where c.down = p_run and up.status <> 'succeeded'
    );
    perform pipeline.reset_v1(array[p_run], coalesce(p_named, '{}'));
    -- From run to run: one that was skipped is pending again when nothing before it stands in its way.
    v_level := array[p_run];
    loop
        select array_agg(distinct r.id) into v_next
        from pipeline.chains c
        join pipeline.runs r on r.id = c.down and r.status = 'skipped'
        where c.up = any (v_level)
          and not exists (
              select from pipeline.chains other join pipeline.runs up on up.id = other.up
              where other.down = r.id and up.status in ('failed', 'halted', 'cancelled', 'skipped')
          );
        exit when v_next is null;
        perform pipeline.reset_v1(v_next, '{}');
        v_opened := v_opened || v_next;
        v_level := v_next;
    end loop;
    if v_blocked then
        select s.queues, s.over into queues, over from pipeline.settle_run_v1(p_run) as s;
    else
        select b.queues, b.over into queues, over from pipeline.begin_v1(array[p_run]) as b;
    end if;
    insert into pipeline.requests (id, run, created_at, kind)
    select nextval('pipeline.ids'), r.id, pipeline.now(), 'chain' from pipeline.runs r
    where r.id = any (v_opened) and r.status = 'pending';
    if found then
        perform pg_notify('pipeline_requests', '');
    end if;
end $$;

-- Puts runs back to the beginning of a round: pending, with what is to be done again.
create function pipeline.reset_v1(p_runs bigint[], p_named text[]) returns void
language plpgsql as $$
declare
    v_now timestamptz := pipeline.now();
begin
    update pipeline.steps s
    set status = 'pending', waits = n.waits, edges = 0, reason = null, cause = null,
        enqueued_at = null, ended_at = null, error_class = null, error_message = null, token = null,
        attempt = 0, ran_ms = null
    from unnest(p_runs) as e (run)
    join pipeline.runs r on r.id = e.run
    cross join lateral (
        select b.ctid, b.no, b.status from pipeline.steps b
        where b.run = e.run and b.status in ('skipped', 'cancelled', 'failed') offset 0
    ) as before
    cross join lateral (
        select n.waits, n.strategy, n.key from pipeline.nodes n
        where n.graph = r.graph and n.no = before.no offset 0
    ) as n
    where s.ctid = before.ctid
      and (before.status <> 'failed' or n.strategy <> 'ignore' or n.key = any (p_named));
    with opened as (
        update pipeline.runs r
        set status = 'pending', round = r.round + 1, halt = false, drain = null, started_at = null,
            ended_at = null, deadline_at = null, callbacks_dispatched_at = null,
            events = r.events + (r.history > 0)::integer,
            live = (select count(*) from pipeline.steps s
                    where s.run = r.id and s.ended_at is null)
        where r.id = any (p_runs)
        returning r.id, r.events, r.history
    )
    insert into pipeline.events (run, no, at, status)
    select id, events, v_now, 'reopened' from opened where history > 0;
end $$;

-- Rule 17, seen from a run that waits in a chain: begins it, or skips it, if its time has come. The
-- caller has locked it and the runs before it, so that none of them ends meanwhile.
create function pipeline.settle_run_v1(p_run bigint, out queues text[], out over bigint[])
language plpgsql
set enable_seqscan to off set enable_bitmapscan to off set enable_hashjoin to off
set enable_mergejoin to off set jit to off
as $$
declare
    v_now timestamptz := pipeline.now();
    v_up record;
    v_ended record;
begin
    if not exists (select from pipeline.runs r where r.id = p_run and r.status = 'pending') then
        return;
    end if;
    -- One that somebody has deleted will not succeed.
    select bool_or(up.id is null or up.status in ('failed', 'halted', 'cancelled', 'skipped')) as otherwise,
           bool_and(up.status = 'succeeded') as succeeded
    into v_up
    from pipeline.chains c left join pipeline.runs up on up.id = c.up where c.down = p_run;
    if v_up.otherwise then
        with skipped as (
            update pipeline.steps s set status = 'skipped', ended_at = v_now, reason = 'run_skipped'
            where s.run = p_run and s.status = 'pending'
            returning s.run, s.no
        )
        select coalesce(array_agg(run), '{}') as run, coalesce(array_agg(no), '{}') as no
        into v_ended from skipped;
        select f.queues, f.over into queues, over
        from pipeline.finish_v1(v_ended.run, v_ended.no,
                                array_fill(5::smallint, array[cardinality(v_ended.run)]), '{}', '{}',
                                '{}', '{}', null, array[p_run], 0, '{}', '{}', '{}', '{}') as f;
    elsif v_up.succeeded is not false then
        select b.queues, b.over into queues, over from pipeline.begin_v1(array[p_run]) as b;
    end if;
end $$;

-- Rule 6: takes up a request, if its runs can be locked now. One in a transaction.
create function pipeline.take_up_v1(
    p_id bigint, out queues text[], out over bigint[], out asked bigint[]
)
language plpgsql as $$
declare
    v_request pipeline.requests;
    v_refused text;
    v_ups bigint[];
begin
    select * into v_request from pipeline.requests q where q.id = p_id for update skip locked;
    if not found then
        return;
    end if;
    if v_request.kind = 'chain' then
        select array_agg(c.up) into v_ups from pipeline.chains c where c.down = v_request.run;
        if not pipeline.lock_runs_v1(array[v_request.run] || v_ups) then
            return;
        end if;
        select s.queues, s.over into queues, over from pipeline.settle_run_v1(v_request.run) as s;
    else
        if not pipeline.lock_runs_v1(array[v_request.run]) then
            return;
        end if;
        select c.refused, c.queues, c.over, c.asked into v_refused, queues, over, asked
        from pipeline.cancel_v1(v_request.run, 'cancel') as c;
        if v_refused is not null then
            -- It had ended before anybody could cancel it; it says so.
            with told as (
                update pipeline.runs r set events = r.events + 1
                where r.id = v_request.run and r.history > 0
                returning r.id, r.events
            )
            insert into pipeline.events (run, no, at, status)
            select told.id, told.events, pipeline.now(), 'cancel_came_too_late' from told;
        end if;
    end if;
    delete from pipeline.requests q where q.id = p_id;
end $$;

-- Jobs of this worker that belong to runs which are being cancelled: they are to stop.
create function pipeline.to_stop_v1(p_worker bigint) returns bigint[]
language plpgsql
set enable_seqscan to off
as $$
begin
    return (
        select array_agg(j.id)
        from pipeline.runs r
        join pipeline.steps s on s.run = r.id and s.status = 'enqueued'
        join pipeline.jobs j on j.id = pipeline.step_id(s.run, s.no)
        where r.status = 'cancelling' and j.status = 'running' and j.worker = p_worker
    );
end $$;

-- What a worker has to see to besides its jobs, in one look: whether anything is requested, which
-- deadlines have passed, and which of its jobs are to stop.
create function pipeline.errands_v1(
    p_worker bigint, out requested boolean, out overdue bigint[], out stop bigint[]
)
language plpgsql
set enable_seqscan to off
as $$
begin
    requested := exists (select from pipeline.requests);
    select array_agg(due.id) into overdue from (
        select r.id from pipeline.runs r
        where r.deadline_at <= pipeline.now() and r.deadline_at is not null and r.status = 'running'
        order by r.deadline_at limit 100
    ) as due;
    if exists (select from pipeline.runs r where r.status = 'cancelling') then
        stop := pipeline.to_stop_v1(p_worker);
    end if;
end $$;

-- Job types that a reopened run would need and no live worker knows in the version it was declared
-- with: `name` or `name (version 2)`.
create function pipeline.unknown_jobs_v1(p_run bigint, p_named text[]) returns text[]
language plpgsql stable as $$
begin
    return (
        select array_agg(distinct n.job || case when known.any_version
                                                then format(' (version %s)', n.version) else '' end)
        from pipeline.runs r
        join pipeline.steps s on s.run = r.id
        join pipeline.nodes n on n.graph = r.graph and n.no = s.no
        cross join lateral (
            select coalesce(bool_or(w.kind = n.job), false) as any_version,
                   coalesce(bool_or(w.kind = n.job and w.version = n.version), false) as this_version
            from pipeline.workers worker
            cross join lateral unnest(worker.kinds, worker.versions) as w (kind, version)
            where worker.takes_steps and worker.stopped_at is null and worker.seen_at > pipeline.now() - interval '30 s'
        ) as known
        where r.id = p_run and n.job is not null and not known.this_version
          and (s.status in ('skipped', 'cancelled')
               or s.status = 'failed' and (n.strategy <> 'ignore' or n.key = any (p_named)))
    );
end $$;
