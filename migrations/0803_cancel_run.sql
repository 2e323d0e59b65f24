-- Rule 18: cancels a run that the caller has locked, or drains it because its deadline has passed.
-- `refused` is the status of the run if it cannot be cancelled any more; `asked` are the running jobs that have
-- to be asked to stop.
create function pipeline.cancel_run_v1(
    p_run bigint, p_stop_reason pipeline.stop_reason,
    out refused text, out queues text[], out ended_runs pipeline.ended_run[], out asked bigint[]
)
language plpgsql as $$
declare
    v_now timestamptz := pipeline.now();
    v_run pipeline.runs;
    v_withdrawn record;
begin
    select * into v_run from pipeline.runs where id = p_run;
    if not found or v_run.status in ('cancelling', 'cancelled') then
        return;
    elsif v_run.status not in ('pending', 'running')
          or p_stop_reason = 'deadline' and (v_run.status <> 'running' or v_run.deadline_at is null
                                       or v_run.deadline_at > v_now) then
        refused := v_run.status;
        return;
    end if;
    -- A run that waits in a chain has no running steps, and is cancelled at once.
    update pipeline.runs
    set stop_reason = p_stop_reason,
        status = case when status = 'running' then 'cancelling' else status end::pipeline.run_status,
        events = events + (event_level <> 'none' and status = 'running')::integer
    where id = p_run;
    if v_run.status = 'running' and v_run.event_level <> 'none' then
        insert into pipeline.events (run, no, at, status)
        values (p_run, v_run.events + 1, v_now, 'cancelling');
    end if;
    v_withdrawn := pipeline.withdraw_steps_v1(p_run);
    queues := v_withdrawn.queues;
    ended_runs := v_withdrawn.ended_runs;
    asked := v_withdrawn.asked;
    if v_withdrawn.is_left then
        insert into pipeline.requests (id, run, created_at, next_at, kind)
        values (nextval('pipeline.ids'), p_run, v_now, v_now, 'withdraw');
    end if;
end $$;
