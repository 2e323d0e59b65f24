-- Returns steps that were skipped or cancelled with their whole run, for finish_advance_v1.
create function pipeline.ended_with_run(p_run bigint, p_no integer, p_status pipeline.step_status, p_attempt smallint)
returns pipeline.ended_step
language sql immutable as $$
    select row(p_run, p_no, null, p_status, false, false, false, p_attempt, null, false, null, null)::pipeline.ended_step
$$;
