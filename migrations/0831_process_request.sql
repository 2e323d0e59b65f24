-- Rule 6: executes a request if its runs can be locked now. Each call executes one request in its own transaction. `state` is
--   done  this call has executed the request, or found that it cannot be executed any more (`refused`)
--   held  another transaction holds the request or a run that it needs: retry after `wait_ms`
--   gone  the request does not exist: another process has executed it
-- p_is_own: the caller is the client that inserted the request, and reports a refusal to its user. Otherwise an
-- event of the run records the refusal.
create function pipeline.process_request_v1(
    p_id bigint, p_is_own boolean,
    out state text, out refused text, out queues text[], out ended_runs pipeline.ended_run[], out asked bigint[],
    out wait_ms bigint
)
language plpgsql as $$
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
        v_runs := v_runs || array(select c.upstream from pipeline.chains c where c.downstream = v_request.run);
    end if;
    -- A `chain` request only reads upstream runs, and must not interrupt the turn of another request.
    if v_request.kind <> 'chain' or not exists (
        select from pipeline.requests q where q.run = any (v_runs) and pipeline.has_turn(q.turn_until, v_now)
    ) then
        select l.locked, l.held into v_locked, v_held from pipeline.lock_runs_v1(v_runs) as l;
    end if;
    if not v_locked then
        state := 'held';
        -- A turn only if the run itself is held: if only a chained run is held, the run may advance.
        wait_ms := pipeline.defer_request_v1(
            p_id, p_is_own, false,
            v_request.kind in ('cancel', 'deadline') and v_request.run = any (v_held)
        );
        return;
    end if;
    state := 'done';

    case v_request.kind
        when 'chain' then
            select s.queues, s.ended_runs into queues, ended_runs from pipeline.settle_chained_run_v1(v_request.run) as s;
        when 'withdraw' then
            if exists (select from pipeline.runs r
                       where r.id = v_request.run and r.status = 'cancelling') then
                select w.queues, w.ended_runs, w.asked, w.is_left into queues, ended_runs, asked, v_left
                from pipeline.withdraw_steps_v1(v_request.run) as w;
            end if;
        else
            if exists (
                select from pipeline.runs r where r.id = v_request.run and r.round > v_request.round
            ) then
                refused := 'reopened';
            else
                select c.refused, c.queues, c.ended_runs, c.asked into refused, queues, ended_runs, asked
                from pipeline.cancel_run_v1(v_request.run, v_request.kind::pipeline.stop_reason) as c;
            end if;
    end case;
    if v_left then
        state := 'held';
        wait_ms := pipeline.defer_request_v1(p_id, p_is_own, false, false);
        return;
    end if;
    if refused is not null and v_request.kind = 'cancel' and not p_is_own then
        -- The run, or its round, ended before the request could cancel it: an event records that.
        with told as (
            update pipeline.runs r set events = r.events + 1
            where r.id = v_request.run and r.event_level <> 'none'
            returning r.id, r.events
        )
        insert into pipeline.events (run, no, at, status)
        select told.id, told.events, v_now, 'cancel_came_too_late' from told;
    end if;
    delete from pipeline.requests q where q.id = p_id;
end $$;
