-- Recomputes the counts of a pending step (open edges, and outcomes so far) from its upstream steps.
create function pipeline.recount_open_edges_v1(p_run bigint, p_no integer) returns void
language sql
as $$
    update pipeline.steps s
    set open_edges = before.open, is_broken = before.is_broken, is_not_taken = before.is_not_taken
    from (
        select count(*) filter (where not ended)::integer as open,
               coalesce(bool_or(effect = 'broken') filter (where ended), false) as is_broken,
               coalesce(bool_or(effect = 'not_taken') filter (where ended), false) as is_not_taken
        from pipeline.runs r
        join pipeline.dependencies d on d.graph = r.graph and d.downstream = p_no
        join pipeline.nodes n on n.graph = r.graph and n.no = d.upstream
        join pipeline.nodes self on self.graph = r.graph and self.no = p_no
        join pipeline.steps up on up.run = r.id and up.no = d.upstream
        cross join lateral (
            select up.status not in ('pending', 'enqueued', 'waiting') as ended,
                   case when self.is_any then pipeline.any_edge_effect(up.status)
                        else pipeline.edge_effect(up.status, n.strategy = 'ignore', d.takes) end as effect
        ) as state
        where r.id = p_run
    ) as before
    where s.run = p_run and s.no = p_no and s.status = 'pending'
$$;
