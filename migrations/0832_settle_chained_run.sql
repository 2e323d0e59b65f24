-- Rule 17, for one run that waits in a chain: begins or skips the run if its upstream runs allow it. The caller has
-- locked the run and its upstream runs, so that none of them ends meanwhile.
create function pipeline.settle_chained_run_v1(p_run bigint, out queues text[], out ended_runs pipeline.ended_run[])
language plpgsql as $$
declare
    v_now timestamptz := pipeline.now();
    v_up record;
    v_ended pipeline.ended_step[];
begin
    if not exists (select from pipeline.runs r where r.id = p_run and r.status = 'pending') then
        return;
    end if;
    -- Both are null if the run is not chained to any run.
    select bool_or(pipeline.chain_effect(up.status) = 'broken') as is_broken,
           bool_and(pipeline.chain_effect(up.status) is not distinct from 'satisfied') as is_satisfied
    into v_up
    from pipeline.chains c left join pipeline.runs up on up.id = c.upstream where c.downstream = p_run;
    if v_up.is_broken then
        with skipped as (
            update pipeline.steps s set status = 'skipped', ended_at = v_now, reason = 'run_skipped'
            where s.run = p_run and s.status = 'pending'
            returning s.run, s.no
        )
        select array_agg(pipeline.ended_with_run(s.run, s.no, 'skipped', null)) into v_ended from skipped s;
        select f.queues, f.ended_runs into queues, ended_runs
        from pipeline.finish_advance_v1(v_ended || pipeline.unchanged_runs(array[p_run]), null, 0, '{}', '{}', false)
             as f;
    elsif v_up.is_satisfied is not false then
        select b.queues, b.ended_runs into queues, ended_runs from pipeline.start_chained_runs_v1(array[p_run]) as b;
    end if;
end $$;
