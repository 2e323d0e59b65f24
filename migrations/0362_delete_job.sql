-- Deletes a job that is not running. Returns `done`, the status that forbids it, or null if the job does not exist.
create function pipeline.delete_job_v1(p_job bigint) returns text
language plpgsql as $$
declare
    v_job pipeline.jobs;
begin
    perform from pipeline.batch_sets b
    where b.id = (select batch from pipeline.jobs where id = p_job)
    for no key update;
    select * into v_job from pipeline.jobs where id = p_job for update;
    if not found then
        return null;
    elsif v_job.status = 'running' then
        return v_job.status::text;
    end if;
    delete from pipeline.jobs where id = p_job;
    delete from pipeline.attempts where job = p_job;
    if v_job.status in ('scheduled', 'ready') and v_job.batch is not null then
        -- For its batch, a deleted job counts as failed.
        perform pipeline.notify_queues_v1(
            pipeline.settle_batches_v1(array[v_job.batch], array[1], array[1]), pipeline.now()
        );
    end if;
    return 'done';
end $$;
