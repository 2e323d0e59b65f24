-- Requests that change a run: cancel, reopen, deadline, chain. Each request locks the run and the chained runs that
-- may change with it, without waiting: if another transaction holds one of them, the request releases its locks
-- and is retried later. Decision 7 describes requests and their turns.

-- Locks runs, and the runs that are chained to them and have not begun, without waiting. `held` are the runs that
-- another transaction holds; `locked` is true if there are none.
create function pipeline.lock_runs_v1(p_runs bigint[], out locked boolean, out held bigint[])
language plpgsql
set enable_seqscan to off set jit to off
as $$
declare
    v_wanted bigint[];
    v_mine bigint[];
begin
    select coalesce(array_agg(r.id), '{}') into v_wanted
    from (
        select e.id from unnest(p_runs) as e (id)
        union select e.id from unnest(pipeline.reach_v1(p_runs)) as e (id)
    ) as e
    cross join lateral (
        select r.id from pipeline.runs r
        where r.id = e.id and (r.status in ('pending', 'skipped') or e.id = any (p_runs)) offset 0
    ) as r;
    with mine as (
        select r.id from pipeline.runs r where r.id = any (v_wanted)
        order by r.id for no key update skip locked
    )
    select coalesce(array_agg(mine.id), '{}') into v_mine from mine;
    locked := cardinality(v_mine) >= cardinality(v_wanted);
    held := array(select unnest(v_wanted) except select unnest(v_mine));
end $$;

-- Rule 18: cancels a run that the caller has locked, or drains it because its deadline has passed.
-- `refused` is the status of the run if it cannot be cancelled any more; `asked` are the running jobs that have
-- to be asked to stop.
create function pipeline.cancel_v1(
    p_run bigint, p_drain pipeline.drain,
    out refused text, out queues text[], out over pipeline.ended_run[], out asked bigint[]
)
language plpgsql
set enable_seqscan to off set enable_bitmapscan to off set enable_hashjoin to off
set enable_mergejoin to off set jit to off
as $$
declare
    v_now timestamptz := pipeline.now();
    v_run pipeline.runs;
    v_withdrawn record;
begin
    select * into v_run from pipeline.runs where id = p_run;
    if not found or v_run.status in ('cancelling', 'cancelled') then
        return;
    elsif v_run.status not in ('pending', 'running')
          or p_drain = 'deadline' and (v_run.status <> 'running' or v_run.deadline_at is null
                                       or v_run.deadline_at > v_now) then
        refused := v_run.status;
        return;
    end if;
    -- A run that waits in a chain has no running steps, and is cancelled at once.
    update pipeline.runs
    set drain = p_drain,
        status = case when status = 'running' then 'cancelling' else status end::pipeline.run_status,
        events = events + (history > 0 and status = 'running')::integer
    where id = p_run;
    if v_run.status = 'running' and v_run.history > 0 then
        insert into pipeline.events (run, no, at, status)
        values (p_run, v_run.events + 1, v_now, 'cancelling');
    end if;
    v_withdrawn := pipeline.withdraw_v1(p_run);
    queues := v_withdrawn.queues;
    over := v_withdrawn.over;
    asked := v_withdrawn.asked;
    if v_withdrawn.is_left then
        insert into pipeline.requests (id, run, created_at, next_at, kind)
        values (nextval('pipeline.ids'), p_run, v_now, v_now, 'withdraw');
    end if;
end $$;

-- Cancels the steps that no worker has claimed, of a run that is being drained and that the caller has locked. Does
-- not wait for a queue row that another transaction holds: a claim may hold the row, and then its step is refused
-- when it starts; or another client holds the row. `is_left` says that there is such a row.
create function pipeline.withdraw_v1(
    p_run bigint, out queues text[], out over pipeline.ended_run[], out asked bigint[], out is_left boolean
)
language plpgsql
set enable_seqscan to off set enable_bitmapscan to off set enable_hashjoin to off
set enable_mergejoin to off set jit to off
as $$
declare
    v_now timestamptz := pipeline.now();
    v_reason pipeline.step_reason;
    v_ended pipeline.ended_step[];
begin
    select case r.drain when 'deadline' then 'deadline' else 'cancelled' end into v_reason
    from pipeline.runs r where r.id = p_run;
    -- Each step and each job is looked up by its key: the planner knows nothing of a run that is younger than the
    -- statistics, and would compare every step of the run with every job.
    with free as (
        select j.id
        from (select s.no from pipeline.steps s where s.run = p_run and s.status = 'enqueued' offset 0) as s
        cross join lateral (
            select j.id from pipeline.jobs j
            where j.id = pipeline.step_id(p_run, s.no) and j.status in ('later', 'ready')
            for update skip locked
        ) as j
    ), withdrawn as (
        delete from pipeline.jobs j where j.id = any (array(select free.id from free))
        returning j.id, j.attempt, j.error_class, j.error_message
    ), ended as (
        -- A step that waited for a retry keeps its number of attempts and its last error.
        update pipeline.steps s
        set status = 'cancelled', ended_at = v_now, reason = v_reason, cause = null,
            attempt = w.attempt, error_class = w.error_class, error_message = w.error_message
        from withdrawn w
        cross join lateral (
            select b.ctid as row from pipeline.steps b
            where b.run = p_run and b.no = pipeline.no_of(w.id) offset 0
        ) as b
        where s.ctid = b.row
        returning s.no, s.attempt
    ), waiting as (
        update pipeline.steps s
        set status = 'cancelled', ended_at = v_now, reason = v_reason, cause = null
        where s.run = p_run and s.status in ('pending', 'waiting')
        returning s.no
    )
    select array_agg(pipeline.ended_with_run(p_run, e.no, 'cancelled', e.attempt)) into v_ended
    from (
        select ended.no, nullif(ended.attempt, 0) as attempt from ended
        union all select waiting.no, null from waiting
    ) as e;
    select array_agg(j.id), coalesce(bool_or(j.status in ('later', 'ready')), false)
    into asked, is_left
    from (select s.no from pipeline.steps s where s.run = p_run and s.status = 'enqueued' offset 0) as s
    cross join lateral (
        select j.id, j.status from pipeline.jobs j where j.id = pipeline.step_id(p_run, s.no) offset 0
    ) as j;
    select f.queues, f.over into queues, over
    from pipeline.finish_v1(v_ended || pipeline.unchanged_runs(array[p_run]), null, 0, '{}', '{}', false) as f;
end $$;

-- Rule 18, for a client: cancels a run at once if the run and its chained runs can be locked now. Otherwise inserts
-- a request, whose turn begins, and which the client executes with take_up_v1. `is_missing`: the run does not exist.
create function pipeline.ask_cancel_v1(
    p_run bigint, out is_missing boolean, out request bigint,
    out refused text, out queues text[], out over pipeline.ended_run[]
)
language plpgsql
set enable_seqscan to off set jit to off
as $$
declare
    v_now timestamptz := pipeline.now();
    v_cancelled record;
begin
    is_missing := not exists (select from pipeline.runs r where r.id = p_run);
    if is_missing then
        return;
    elsif (select l.locked from pipeline.lock_runs_v1(array[p_run]) as l) then
        v_cancelled := pipeline.cancel_v1(p_run, 'cancel');
        refused := v_cancelled.refused;
        queues := v_cancelled.queues;
        over := v_cancelled.over;
    else
        request := nextval('pipeline.ids');
        insert into pipeline.requests (id, run, created_at, next_at, turn_until, kind)
        values (request, p_run, v_now, v_now + interval '2 s', v_now + interval '2 s', 'cancel');
    end if;
end $$;

-- Rule 19: reopens a run that the caller has locked. Failed, skipped and cancelled steps become pending again;
-- steps whose failure was ignored only if p_named has their keys; succeeded steps keep their outputs. Runs that
-- were skipped because of this run become pending again. `refused` is the status of the run if it cannot be
-- reopened.
--
-- Upstream runs are not locked: one of them may be busy, and the reopening would wait for it. A run that succeeded
-- never changes again. If not all upstream runs have succeeded, the run stays pending with a request, which locks
-- and checks the upstream runs; `left_pending` are all runs with such a request.
create function pipeline.reopen_v1(
    p_run bigint, p_named text[],
    out refused text, out queues text[], out over pipeline.ended_run[], out left_pending bigint[]
)
language plpgsql
set enable_seqscan to off set enable_bitmapscan to off set enable_hashjoin to off
set enable_mergejoin to off set jit to off
as $$
declare
    v_run pipeline.runs;
    v_next bigint[];
    v_level bigint[];
    v_opened bigint[] := array[p_run];
begin
    select * into v_run from pipeline.runs where id = p_run;
    if v_run.status not in ('failed', 'halted', 'cancelled') then
        refused := v_run.status;
        return;
    end if;
    perform pipeline.reset_v1(array[p_run], coalesce(p_named, '{}'));
    -- Follow the chains: a skipped run becomes pending again unless another upstream run blocks it. An upstream
    -- run that was pruned may block it too.
    v_level := array[p_run];
    loop
        select array_agg(distinct r.id) into v_next
        from pipeline.chains c
        join pipeline.runs r on r.id = c.down and r.status = 'skipped'
        where c.up = any (v_level)
          and not exists (
              select from pipeline.chains other left join pipeline.runs up on up.id = other.up
              where other.down = r.id
                and (up.id is null or up.status in ('failed', 'halted', 'cancelled', 'skipped'))
          );
        exit when v_next is null;
        perform pipeline.reset_v1(v_next, '{}');
        v_opened := v_opened || v_next;
        v_level := v_next;
    end loop;
    if not exists (
        select from pipeline.chains c left join pipeline.runs up on up.id = c.up
        where c.down = p_run and up.status is distinct from 'succeeded'
    ) then
        select b.queues, b.over into queues, over from pipeline.begin_v1(array[p_run]) as b;
    end if;
    with left_pending as (
        insert into pipeline.requests (id, run, created_at, next_at, kind)
        select nextval('pipeline.ids'), r.id, pipeline.now(), pipeline.now(), 'chain'
        from pipeline.runs r
        where r.id = any (v_opened) and r.status = 'pending'
        returning run
    )
    select array_agg(l.run) into left_pending from left_pending l;
    if left_pending is not null then
        perform pg_notify('pipeline_requests', '');
    end if;
end $$;

-- Resets runs to the beginning of a round: the runs and the steps that have to run again become pending.
create function pipeline.reset_v1(p_runs bigint[], p_named text[]) returns void
language plpgsql as $$
declare
    v_now timestamptz := pipeline.now();
begin
    update pipeline.steps s
    set status = 'pending', waits = n.waits, is_broken = false, is_not_taken = false, reason = null, cause = null,
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
                    where s.run = r.id and s.ended_at is null),
            is_failed = exists (
                select from pipeline.steps s
                join pipeline.nodes n on n.graph = r.graph and n.no = s.no and not n.optional
                where s.run = r.id and s.status = 'failed'
            )
        where r.id = any (p_runs)
        returning r.id, r.events, r.history
    )
    insert into pipeline.events (run, no, at, status)
    select id, events, v_now, 'reopened' from opened where history > 0;
end $$;

-- Rule 17, for one run that waits in a chain: begins or skips the run if its upstream runs allow it. The caller has
-- locked the run and its upstream runs, so that none of them ends meanwhile.
create function pipeline.settle_run_v1(p_run bigint, out queues text[], out over pipeline.ended_run[])
language plpgsql
set enable_seqscan to off set enable_bitmapscan to off set enable_hashjoin to off
set enable_mergejoin to off set jit to off
as $$
declare
    v_now timestamptz := pipeline.now();
    v_up record;
    v_ended pipeline.ended_step[];
begin
    if not exists (select from pipeline.runs r where r.id = p_run and r.status = 'pending') then
        return;
    end if;
    -- An upstream run that was deleted cannot succeed.
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
        select array_agg(pipeline.ended_with_run(s.run, s.no, 'skipped', null)) into v_ended from skipped s;
        select f.queues, f.over into queues, over
        from pipeline.finish_v1(v_ended || pipeline.unchanged_runs(array[p_run]), null, 0, '{}', '{}', false)
             as f;
    elsif v_up.succeeded is not false then
        select b.queues, b.over into queues, over from pipeline.begin_v1(array[p_run]) as b;
    end if;
end $$;

-- Rule 6: executes a request if its runs can be locked now. One request in each transaction. `state` is
--   done  this call has executed the request, or found that it cannot be executed any more (`refused`)
--   held  another transaction holds the request or a run that it needs: retry after `wait_ms`
--   gone  the request does not exist: another process has executed it
-- p_is_own: the caller is the client that inserted the request, and reports a refusal to its user. Otherwise an
-- event of the run records the refusal.
create function pipeline.take_up_v1(
    p_id bigint, p_is_own boolean,
    out state text, out refused text, out queues text[], out over pipeline.ended_run[], out asked bigint[],
    out wait_ms bigint
)
language plpgsql
set enable_seqscan to off set jit to off
as $$
declare
    v_now timestamptz := pipeline.now();
    v_request pipeline.requests;
    v_runs bigint[];
    v_locked boolean := false;
    v_held bigint[] := '{}';
    v_left boolean := false;
begin
    select * into v_request from pipeline.requests q where q.id = p_id for update skip locked;
    if not found then
        state := case when exists (select from pipeline.requests q where q.id = p_id)
                      then 'held' else 'gone' end;
        return;
    end if;
    v_runs := array[v_request.run];
    if v_request.kind = 'chain' then
        v_runs := v_runs || array(select c.up from pipeline.chains c where c.down = v_request.run);
    end if;
    -- A `chain` request only reads upstream runs, and must not interrupt the turn of another request.
    if v_request.kind <> 'chain' or not exists (
        select from pipeline.requests q where q.run = any (v_runs) and q.turn_until > v_now
    ) then
        select l.locked, l.held into v_locked, v_held from pipeline.lock_runs_v1(v_runs) as l;
    end if;
    if not v_locked then
        state := 'held';
        -- A turn only if the run itself is held: if only a chained run is held, the run may advance.
        wait_ms := pipeline.put_off_v1(
            p_id, p_is_own, false,
            v_request.kind in ('cancel', 'deadline') and v_request.run = any (v_held)
        );
        return;
    end if;
    state := 'done';

    case v_request.kind
        when 'chain' then
            select s.queues, s.over into queues, over from pipeline.settle_run_v1(v_request.run) as s;
        when 'withdraw' then
            if exists (select from pipeline.runs r
                       where r.id = v_request.run and r.status = 'cancelling') then
                select w.queues, w.over, w.asked, w.is_left into queues, over, asked, v_left
                from pipeline.withdraw_v1(v_request.run) as w;
            end if;
        else
            select c.refused, c.queues, c.over, c.asked into refused, queues, over, asked
            from pipeline.cancel_v1(v_request.run, v_request.kind::pipeline.drain) as c;
    end case;
    if v_left then
        state := 'held';
        wait_ms := pipeline.put_off_v1(p_id, p_is_own, false, false);
        return;
    end if;
    if refused is not null and v_request.kind = 'cancel' and not p_is_own then
        -- The run ended before the request could cancel it: an event records that.
        with told as (
            update pipeline.runs r set events = r.events + 1
            where r.id = v_request.run and r.history > 0
            returning r.id, r.events
        )
        insert into pipeline.events (run, no, at, status)
        select told.id, told.events, v_now, 'cancel_came_too_late' from told;
    end if;
    delete from pipeline.requests q where q.id = p_id;
end $$;

-- Postpones a request. Returns the delay in milliseconds.
--   held     a quarter of the request's age, between 10 ms and a second, so that a retry soon finds the run
--            unlocked; workers do not retry while the request's own client does. With p_turn, advances do not
--            lock the run for the next two seconds, so that its current lock is released by then.
--   refused  (p_is_refused: the database returned an error) the request's age, between a second and ten minutes.
--            The request is never dropped: the cause may be repaired, and an accepted cancel must not be lost.
--            A refused request has no turn.
create function pipeline.put_off_v1(
    p_id bigint, p_is_own boolean, p_is_refused boolean, p_turn boolean
) returns bigint
language plpgsql
set enable_seqscan to off
as $$
declare
    v_now timestamptz := pipeline.now();
    v_wait interval;
begin
    select case when p_is_refused
                then least(greatest(v_now - q.created_at, interval '1 s'), interval '10 min')
                else least(greatest((v_now - q.created_at) / 4, interval '10 ms'), interval '1 s') end
    into v_wait
    from pipeline.requests q where q.id = p_id for update skip locked;
    update pipeline.requests q
    set next_at = v_now + case when p_is_own then interval '2 s' else v_wait end,
        turn_until = case when p_is_refused then '-infinity' when p_turn then v_now + interval '2 s'
                          else q.turn_until end
    where q.id = p_id and v_wait is not null;
    return ceil(extract(epoch from v_wait) * 1000);
end $$;

-- Returns the jobs of this worker that have to stop because their runs are being cancelled. Reads the queue rows of
-- these runs, whose ids are adjacent, and not their steps, of which there may be 100,000.
create function pipeline.to_stop_v1(p_worker bigint) returns bigint[]
language plpgsql
set enable_seqscan to off set enable_bitmapscan to off set enable_hashjoin to off
set enable_mergejoin to off
as $$
begin
    return (
        select array_agg(j.id)
        from pipeline.runs r
        cross join lateral (
            select j.id, j.worker from pipeline.jobs j
            where j.id >= pipeline.step_id(r.id, 0) and j.id < pipeline.step_id(r.id + 1, 0)
              and j.status = 'running' offset 0
        ) as j
        where r.status = 'cancelling' and j.worker = p_worker and j.id % 2 = 0
    );
end $$;

-- Returns the maintenance work for a worker, without writing: the jobs of this worker that have to stop, whether a
-- deadline has passed that has no request yet, and whether requests are due.
create function pipeline.errands_v1(
    p_worker bigint, out stop bigint[], out is_overdue boolean, out is_requested boolean
)
language plpgsql
set enable_seqscan to off set enable_bitmapscan to off
as $$
begin
    stop := pipeline.to_stop_v1(p_worker);
    is_overdue := exists (select from pipeline.overdue_runs_v1(1));
    is_requested := exists (select from pipeline.requests q
                            where q.kind <> 'deadline' and q.next_at <= pipeline.now())
                 or exists (select from pipeline.requests q
                            where q.kind = 'deadline' and q.next_at <= pipeline.now());
end $$;

-- Returns runs whose deadline has passed and that have no request yet, so that held or refused requests do not
-- block other runs.
create function pipeline.overdue_runs_v1(p_limit integer) returns setof bigint
language sql stable
set enable_seqscan to off
as $$
    select r.id from pipeline.runs r
    where r.deadline_at <= pipeline.now() and r.deadline_at is not null and r.status = 'running'
      and not exists (select from pipeline.requests q where q.run = r.id and q.kind = 'deadline')
    order by r.deadline_at
    limit p_limit
$$;

-- Inserts a request for each run whose deadline has passed.
create function pipeline.request_deadlines_v1(p_limit integer) returns void
language sql
as $$
    insert into pipeline.requests (id, run, created_at, next_at, kind)
    select nextval('pipeline.ids'), overdue.run, pipeline.now(), pipeline.now(), 'deadline'
    from pipeline.overdue_runs_v1(p_limit) as overdue (run)
    on conflict do nothing
$$;

-- Returns the requests that a worker may execute now: deadlines first, and the longest waiting ones of each kind.
create function pipeline.due_requests_v1(p_limit integer)
returns table (id bigint, run bigint, kind text)
language sql stable
set enable_seqscan to off
as $$
    (
        select q.id, q.run, q.kind from pipeline.requests q
        where q.kind = 'deadline' and q.next_at <= pipeline.now()
        order by q.next_at, q.id limit p_limit
    )
    union all
    (
        select q.id, q.run, q.kind from pipeline.requests q
        where q.kind <> 'deadline' and q.next_at <= pipeline.now()
        order by q.next_at, q.id limit p_limit
    )
$$;

-- Returns the job types that a reopened run needs and that no live worker knows in the declared version: `name` or
-- `name (version 2)`.
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
