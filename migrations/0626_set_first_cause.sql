-- Sets the cause of steps that start after any one of their upstream steps. The order of ends within one advance is
-- unknown: the cause is the first upstream step, in the order of the edges, that has succeeded.
create function pipeline.set_first_cause_v1(p_released pipeline.released_step[]) returns void
language plpgsql as $$
begin
    update pipeline.steps s set cause = first.upstream
    from unnest(p_released) as e
    join pipeline.runs r on r.id = e.run
    join pipeline.nodes n on n.graph = r.graph and n.no = e.no and n.is_any
    cross join lateral (
        select d.upstream from pipeline.dependencies d
        join pipeline.steps up on up.run = e.run and up.no = d.upstream and up.status = 'succeeded'
        where d.graph = r.graph and d.downstream = e.no
        order by d.position
        limit 1
    ) as first
    where s.run = e.run and s.no = e.no;
end $$;
