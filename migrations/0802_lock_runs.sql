-- Locks runs, and the runs that are chained to them and have not begun, without waiting. `held` are the runs that
-- another transaction holds; `locked` is true if there are none.
create function pipeline.lock_runs_v1(p_runs bigint[], out locked boolean, out held bigint[])
language plpgsql as $$
declare
    v_wanted bigint[];
    v_mine bigint[];
begin
    select coalesce(array_agg(r.id), '{}') into v_wanted
    from (
        select e.id from unnest(p_runs) as e (id)
        union select e.id from unnest(pipeline.downstream_runs_v1(p_runs)) as e (id)
    ) as e
    cross join lateral (
        select r.id from pipeline.runs r
        where r.id = e.id and (r.status in ('pending', 'skipped') or e.id = any (p_runs)) offset 0
    ) as r;
    with mine as (
        select r.id from pipeline.runs r where r.id = any (v_wanted)
        order by r.id for no key update skip locked
    )
    select coalesce(array_agg(mine.id), '{}') into v_mine from mine;
    locked := cardinality(v_mine) >= cardinality(v_wanted);
    held := array(select unnest(v_wanted) except select unnest(v_mine));
end $$;
