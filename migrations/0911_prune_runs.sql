-- Deletes runs that ended longer ago than the given age, with their steps, outputs, attempts and events. Stops at
-- p_limit runs or p_steps steps; a larger run is deleted alone. Keeps a run that another run still waits for. Returns the
-- number of deleted runs; 0 if none is left.
create function pipeline.prune_runs_v1(p_age_ms bigint, p_limit integer, p_steps bigint) returns bigint
language plpgsql as $$
declare
    v_before timestamptz := pipeline.now() - p_age_ms * interval '1 ms';
    v_run record;
    v_old bigint[] := '{}';
    v_steps bigint := 0;
begin
    for v_run in
        select r.id, g.size from pipeline.runs r
        join pipeline.graphs g on g.id = r.graph
        where r.status in ('succeeded', 'failed', 'halted', 'cancelled', 'skipped')
          -- `created_at` is indexed, and never later than `ended_at`.
          and r.created_at < v_before and r.ended_at < v_before
          and not exists (
              select from pipeline.chains c join pipeline.runs d on d.id = c.downstream
              where c.upstream = r.id and d.status = 'pending'
          )
        for update of r skip locked
    loop
        exit when v_old <> '{}' and v_steps + v_run.size > p_steps;
        v_old := v_old || v_run.id;
        v_steps := v_steps + v_run.size;
        exit when cardinality(v_old) >= p_limit;
    end loop;
    -- A run may have been chained to them before the lock; from now on none can be.
    select array_agg(old.id) into v_old from unnest(v_old) as old (id)
    where not exists (
        select from pipeline.chains c join pipeline.runs d on d.id = c.downstream
        where c.upstream = old.id and d.status = 'pending'
    );
    if v_old is null then
        return 0;
    end if;
    delete from pipeline.steps s where s.run = any (v_old);
    delete from pipeline.events e where e.run = any (v_old);
    delete from pipeline.dispatched_callbacks f where f.run = any (v_old);
    delete from pipeline.requests q where q.run = any (v_old);
    delete from pipeline.chains c where c.downstream = any (v_old);
    -- A run that is chained to one that did not succeed keeps the edge: if it is reopened, it is
    -- skipped, as it would be if that run were still there.
    delete from pipeline.chains c using pipeline.runs up
    where c.upstream = any (v_old) and up.id = c.upstream
      and (up.status = 'succeeded' or not exists (select from pipeline.runs d where d.id = c.downstream));
    delete from pipeline.attempts a
    using unnest(v_old) as old (run)
    where a.job >= pipeline.step_id(old.run, 0) and a.job < pipeline.step_id(old.run + 1, 0)
      and a.job % 2 = 0;  -- between them lie those of jobs that are no steps
    delete from pipeline.runs r where r.id = any (v_old);
    return cardinality(v_old);
end $$;
