-- Returns all runs that are chained to these, directly or indirectly.
create function pipeline.downstream_runs_v1(p_runs bigint[]) returns bigint[]
language plpgsql as $$
begin
    return coalesce((
        with recursive reached (id) as (
            select c.down from pipeline.chains c where c.up = any (p_runs)
            union
            select c.down from reached join pipeline.chains c on c.up = reached.id
        )
        select array_agg(id order by id) from reached
    ), '{}');
end $$;
