-- Skips the arms of branches that were not chosen. Returns the given steps and the skipped ones.
create function pipeline.skip_arms_v1(p_ended pipeline.ended_step[]) returns pipeline.ended_step[]
language plpgsql as $$
declare
    v_now timestamptz := pipeline.now();
    v_skipped pipeline.ended_step[];
begin
    with skipped as (
        update pipeline.steps s
        set status = 'skipped_by_branch', ended_at = v_now, cause = a.branch, reason = 'not_chosen'
        from unnest(p_ended) as e
        join pipeline.arms a on a.graph = e.graph and a.branch = e.no and a.arm is distinct from e.kept_arm
        cross join lateral (
            select n.out_edges from pipeline.nodes n where n.graph = a.graph and n.no = a.no offset 0
        ) as n
        where e.skips_arms and s.run = e.run and s.no = a.no and s.status = 'pending'
        returning s.run, s.no, e.graph, n.out_edges
    )
    select array_agg(row(s.run, s.no, s.graph, 'skipped_by_branch', false, false, false, null, null, false, null,
                         s.out_edges)::pipeline.ended_step)
    into v_skipped from skipped s;
    return p_ended || v_skipped;
end $$;
