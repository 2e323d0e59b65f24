-- The effect of an ended step on one of its outgoing edges.
create type pipeline.edge_effect as enum (
    'satisfied',
    'broken',           -- the downstream step cannot run
    'not_taken'         -- the edge waits for a failure that did not happen, or for any step and this one was left out
);

-- Returns the effect of a step that ended with p_status on an edge to a downstream step that waits for all its edges.
create function pipeline.edge_effect(
    p_status pipeline.step_status, p_is_ignored boolean, p_takes pipeline.takes
) returns pipeline.edge_effect
language sql immutable parallel safe as $$
    select case
        when p_takes = 'ended' then 'satisfied'::pipeline.edge_effect
        when p_takes = 'failure'
            then case when p_status = 'failed' then 'satisfied'::pipeline.edge_effect else 'not_taken' end
        when p_status in ('skipped', 'cancelled') or p_status = 'failed' and not p_is_ignored then 'broken'
        else 'satisfied'
    end
$$;
