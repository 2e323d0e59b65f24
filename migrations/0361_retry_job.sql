-- Gives a failed job its attempts again. `result` is `done`, the status that forbids the retry, or null if the job does
-- not exist. If a live job has the same key, `key` is the key and `holder` the job.
create function pipeline.retry_job_v1(p_job bigint, out result text, out key text, out holder bigint)
language plpgsql as $$
declare
    v_job pipeline.jobs;
begin
    -- Locks the batch first, in the lock order of all functions.
    perform from pipeline.batch_sets b
    where b.id = (select batch from pipeline.jobs where id = p_job)
    for no key update;
    select * into v_job from pipeline.jobs where id = p_job for update;
    result := v_job.status;
    if v_job.status is null or v_job.status not in ('failed', 'discarded') then
        return;
    end if;
    select j.key, j.id into key, holder from pipeline.jobs j
    where j.job_type = v_job.job_type and j.key = v_job.key
      and j.status in ('scheduled', 'ready', 'running');
    if found then
        return;
    end if;
    begin
        -- A finished batch stays finished, and no longer counts this job.
        update pipeline.batch_sets set ended = ended - 1, failed = failed - 1
        where id = v_job.batch and finished_at is null;
        update pipeline.jobs
        set status = 'ready', run_at = pipeline.now(), attempt = 0, ended_at = null,
            unknown_since = null, batch = case when found then v_job.batch end
        where id = p_job;
    exception when unique_violation then
        -- The index has waited for a transaction that enqueued a job with the same key.
        select j.key, j.id into key, holder from pipeline.jobs j
        where j.job_type = v_job.job_type and j.key = v_job.key
          and j.status in ('scheduled', 'ready', 'running');
        if found then
            return;
        end if;
        raise;
    end;
    perform pipeline.notify_queues_v1(array[v_job.queue], pipeline.now());
    result := 'done';
end $$;
