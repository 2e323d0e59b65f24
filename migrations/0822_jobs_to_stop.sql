-- Returns the jobs of this worker that have to stop because their runs are being cancelled. Reads the queue rows of
-- these runs, whose ids are adjacent, and not their steps, of which there may be 100,000.
create function pipeline.jobs_to_stop_v1(p_worker bigint) returns bigint[]
language plpgsql as $$
begin
    return (
        select array_agg(j.id)
        from pipeline.runs r
        cross join lateral (
            select j.id, j.worker from pipeline.jobs j
            where j.id >= pipeline.step_id(r.id, 0) and j.id < pipeline.step_id(r.id + 1, 0)
              and j.status = 'running' offset 0
        ) as j
        where r.status = 'cancelling' and j.worker = p_worker and j.id % 2 = 0
    );
end $$;
