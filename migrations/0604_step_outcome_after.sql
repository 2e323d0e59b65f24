-- Returns how a step ends after an attempt; null: the step waits for its next attempt. p_is_last says that the job has
-- failed for good. Rule 18: in a run that is being cancelled, no attempt follows another.
create function pipeline.step_outcome_after(
    p_outcome pipeline.attempt_outcome, p_is_last boolean, p_error_class text,
    p_status pipeline.run_status, p_stop_reason pipeline.stop_reason
) returns pipeline.attempt_outcome
language sql immutable parallel safe as $$
    select case
        when p_outcome in ('succeeded', 'ended_run') then p_outcome
        when p_is_last and p_status = 'cancelling'
             and (p_outcome = 'lease_lost' or p_error_class = 'RunCancelled')
            then 'cancelled'::pipeline.attempt_outcome
        when p_is_last then 'failed'
        when p_stop_reason is null then null
        when p_error_class is not null then 'failed'
        else 'cancelled'
    end
$$;
