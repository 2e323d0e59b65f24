-- Deletes runs that ended longer ago than this, with all that belongs to them: at most so many. Returns
-- how many. A run that another still waits for stays.
create function pipeline.prune_runs_v1(p_age_ms bigint, p_limit integer) returns bigint
language plpgsql
set enable_seqscan to off set jit to off
as $$
declare
    v_before timestamptz := pipeline.now() - p_age_ms * interval '1 ms';
    v_old bigint[];
begin
    select array_agg(old.id) into v_old from (
        select r.id from pipeline.runs r
        where r.status in ('succeeded', 'failed', 'halted', 'cancelled', 'skipped')
          -- It has an index, and no run ends before it was made.
          and r.created_at < v_before and r.ended_at < v_before
          and not exists (
              select from pipeline.chains c join pipeline.runs d on d.id = c.down
              where c.up = r.id and d.status = 'pending'
          )
        limit p_limit
        for update of r skip locked
    ) as old;
    -- One may have been chained to them before they were locked; from now on nobody can.
    select array_agg(old.id) into v_old from unnest(v_old) as old (id)
    where not exists (
        select from pipeline.chains c join pipeline.runs d on d.id = c.down
        where c.up = old.id and d.status = 'pending'
    );
    if v_old is null then
        return 0;
    end if;
    delete from pipeline.steps s where s.run = any (v_old);
    delete from pipeline.events e where e.run = any (v_old);
    delete from pipeline.fired f where f.run = any (v_old);
    delete from pipeline.requests q where q.run = any (v_old);
    delete from pipeline.chains c where c.up = any (v_old);
    delete from pipeline.chains c where c.down = any (v_old);
    delete from pipeline.attempts a
    using unnest(v_old) as old (run)
    where a.job >= pipeline.step_id(old.run, 0) and a.job < pipeline.step_id(old.run + 1, 0)
      and a.job % 2 = 0;  -- between them lie those of jobs that are no steps
    delete from pipeline.runs r where r.id = any (v_old);
    return cardinality(v_old);
end $$;
