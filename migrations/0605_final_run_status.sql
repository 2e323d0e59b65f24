-- Rule 9: returns the final status of a run whose last step has ended.
create function pipeline.final_run_status(
    p_status pipeline.run_status, p_stop_reason pipeline.stop_reason, p_is_failed boolean, p_is_halted boolean
) returns pipeline.run_status
language sql immutable parallel safe as $$
    select case
        when p_stop_reason = 'deadline' then 'failed'::pipeline.run_status
        when p_stop_reason = 'cancel' then 'cancelled'
        when p_status = 'pending' then 'skipped'
        when not p_is_failed then 'succeeded'
        when p_is_halted then 'halted'
        else 'failed'
    end
$$;
