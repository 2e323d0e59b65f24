-- Returns all runs that are chained to these, directly or indirectly.
create function pipeline.downstream_runs_v1(p_runs bigint[]) returns bigint[]
language plpgsql as $$
begin
    return coalesce((
        with recursive reached (id) as (
            select c.downstream from pipeline.chains c where c.upstream = any (p_runs)
            union
            select c.downstream from reached join pipeline.chains c on c.upstream = reached.id
        )
        select array_agg(id order by id) from reached
    ), '{}');
end $$;
