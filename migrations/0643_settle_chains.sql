-- Rule 17: returns which of the runs that are chained to p_ended can begin now, and which are skipped with all
-- their steps. Without p_locked, first locks every pending run that is reachable from p_ended, without waiting: if
-- another transaction holds one of them, PB001 is raised, and its DETAIL lists the runs of p_ended that lead to
-- a held run, separated by commas. The caller defers these runs and retries the others.
--
-- A run that was chained or reopened after this transaction read the chains may be held too. This function
-- ignores such a run: it has a request of kind `chain`, which reads how the runs of p_ended have ended.
create function pipeline.settle_chains_v1(
    p_ended bigint[], p_locked boolean,
    out skipped pipeline.ended_step[], out ready bigint[]
)
language plpgsql as $$
declare
    v_now timestamptz := pipeline.now();
    v_reached bigint[];
    v_mine bigint[];
    v_held bigint[];
    v_skipped bigint[];
begin
    v_reached := case when p_locked
        then array(select distinct c.downstream from pipeline.chains c where c.upstream = any (p_ended))
        else pipeline.downstream_runs_v1(p_ended) end;
    with mine as (
        select r.id from pipeline.runs r
        where r.id = any (v_reached) and r.status = 'pending'
        order by r.id for no key update skip locked
    )
    select coalesce(array_agg(mine.id), '{}') into v_mine from mine;
    if not p_locked and cardinality(v_mine) < cardinality(v_reached) then
        v_reached := array(select unnest(v_reached) except select unnest(v_mine));
        select array_agg(r.id) into v_held from pipeline.runs r
        where r.id = any (v_reached) and r.status = 'pending';
        if v_held is not null then
            raise exception using
                errcode = 'PB001',
                message = format('another transaction holds run %s, which waits in a chain behind a run that '
                                 'ends now; nothing was written: try again later', v_held[1]),
                detail = (
                    select string_agg(e.id::text, ',' order by e.id) from unnest(p_ended) as e (id)
                    where pipeline.downstream_runs_v1(array[e.id]) && v_held
                );
        end if;
    end if;

    select array_agg(d.id) filter (where d.is_broken),
           array_agg(d.id) filter (where d.is_satisfied)
    into v_skipped, ready
    from (
        select r.id, bool_or(pipeline.chain_effect(up.status) = 'broken') as is_broken,
               bool_and(pipeline.chain_effect(up.status) is not distinct from 'satisfied') as is_satisfied
        from (
            select c.downstream from pipeline.chains c where c.upstream = any (p_ended)
            intersect select unnest(v_mine)
        ) as touched
        join pipeline.runs r on r.id = touched.downstream and r.status = 'pending'
        join pipeline.chains c on c.downstream = r.id
        left join pipeline.runs up on up.id = c.upstream
        group by r.id
    ) as d;
    if v_skipped is not null then
        with changed as (
            update pipeline.steps s
            set status = 'skipped', ended_at = v_now, reason = 'run_skipped'
            where s.run = any (v_skipped) and s.status = 'pending'
            returning s.run, s.no
        )
        select array_agg(pipeline.ended_with_run(c.run, c.no, 'skipped', null)) into skipped from changed c;
    end if;
end $$;
