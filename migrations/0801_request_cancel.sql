-- Requests that change a run: cancel, reopen, deadline, chain. Each request locks the run and the chained runs that
-- may change with it, without waiting: if another transaction holds one of them, the request releases its locks
-- and is retried later. Decision 7 describes requests and their turns.

-- Rule 18, for a client: cancels a run at once if the run and its chained runs can be locked now. Otherwise inserts
-- a request and begins its turn; the client then executes the request with process_request_v1.
-- `is_missing` is true if the run does not exist.
create function pipeline.request_cancel_v1(
    p_run bigint, out is_missing boolean, out request bigint,
    out refused text, out queues text[], out ended_runs pipeline.ended_run[]
)
language plpgsql as $$
declare
    v_now timestamptz := pipeline.now();
    v_cancelled record;
begin
    is_missing := not exists (select from pipeline.runs r where r.id = p_run);
    if is_missing then
        return;
    elsif (select l.locked from pipeline.lock_runs_v1(array[p_run]) as l) then
        v_cancelled := pipeline.cancel_run_v1(p_run, 'cancel');
        refused := v_cancelled.refused;
        queues := v_cancelled.queues;
        ended_runs := v_cancelled.ended_runs;
    else
        request := nextval('pipeline.ids');
        insert into pipeline.requests (id, run, created_at, next_at, turn_until, round, kind)
        select request, p_run, v_now, v_now + interval '2 s', v_now + interval '2 s', r.round, 'cancel'
        from pipeline.runs r where r.id = p_run;
    end if;
end $$;
