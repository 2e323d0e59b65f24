-- Deletes a limited number of jobs that ended longer ago than the given age, with their attempts. Returns the number of
-- deleted jobs.
create function pipeline.prune_jobs_v1(p_age_ms bigint, p_limit integer) returns bigint
language plpgsql as $$
declare
    v_before timestamptz := pipeline.now() - p_age_ms * interval '1 ms';
    v_old bigint[];
begin
    select coalesce(array_agg(old.id), '{}') into v_old from (
        select j.id from pipeline.jobs j
        where j.ended_at < v_before and j.ended_at is not null
        order by j.ended_at, j.id
        limit p_limit
        for update skip locked
    ) as old;
    delete from pipeline.attempts a using unnest(v_old) as old (id) where a.job = old.id;
    delete from pipeline.jobs j using unnest(v_old) as old (id) where j.id = old.id;
    return cardinality(v_old);
end $$;
