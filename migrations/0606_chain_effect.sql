-- Rule 17: returns what an upstream run does to a run that is chained to it. Null: the upstream run has not ended. An
-- upstream run that was deleted has no status, and cannot succeed any more.
create function pipeline.chain_effect(p_upstream pipeline.run_status) returns pipeline.edge_effect
language sql immutable as $$
    select case
        when p_upstream is null then 'broken'::pipeline.edge_effect
        when p_upstream = 'succeeded' then 'satisfied'
        when p_upstream in ('failed', 'halted', 'cancelled', 'skipped') then 'broken'
    end
$$;
