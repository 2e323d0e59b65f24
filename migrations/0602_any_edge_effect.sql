-- Returns the effect of a step that ended with p_status on an edge to a downstream step that waits for any of its edges.
create function pipeline.any_edge_effect(p_status pipeline.step_status) returns pipeline.edge_effect
language sql immutable parallel safe as $$
    select case p_status
        when 'succeeded' then 'satisfied'::pipeline.edge_effect
        when 'skipped_by_branch' then 'not_taken'
        else 'broken'
    end
$$;
