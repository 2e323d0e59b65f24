-- Returns the status of a pending step of which p_open incoming edges have had no effect yet. The flags are about
-- the effects of the others.
create function pipeline.step_status_after(
    p_open integer, p_is_any boolean, p_kind pipeline.node_kind,
    p_has_success boolean, p_is_broken boolean, p_is_not_taken boolean
) returns pipeline.step_status
language sql immutable parallel safe as $$
    select case
        when p_is_any and p_has_success then 'enqueued'::pipeline.step_status
        when p_open > 0 then 'pending'
        when p_is_any and p_is_broken then 'skipped'
        when p_is_any or p_is_not_taken then 'skipped_by_branch'
        when p_is_broken then 'skipped'
        when p_kind in ('barrier', 'merge') then 'succeeded'
        else 'enqueued'
    end
$$;
