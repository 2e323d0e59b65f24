-- Postpones a request. Returns the delay in milliseconds.
--   held     a quarter of the request's age, between 10 ms and a second, so that a retry soon finds the run
--            unlocked; workers do not retry while the request's own client does. With p_turn, advances do not
--            lock the run for the next two seconds, so that its current lock is released by then.
--   refused  (p_is_refused: the database returned an error) the request's age, between a second and ten minutes.
--            The request is never dropped: the cause may be repaired, and an accepted cancel must not be lost.
--            A refused request has no turn.
create function pipeline.defer_request_v1(
    p_id bigint, p_is_own boolean, p_is_refused boolean, p_turn boolean
) returns bigint
language plpgsql as $$
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
