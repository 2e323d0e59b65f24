-- Gives a failed job its attempts again. Says `done`, what it is instead, or null where it is not. Where a
-- live job has its unique key, `key` is that and `holder` the job.
create function pipeline.retry_v1(p_job bigint, out said text, out key text, out holder bigint)
language plpgsql as $$
declare
    v_job pipeline.jobs;
begin
    -- Its batch first, as everybody does.
    perform from pipeline.batch_sets b
    where b.id = (select batch from pipeline.jobs where id = p_job)
    for no key update;
    select * into v_job from pipeline.jobs where id = p_job for update;
    said := v_job.status;
    if v_job.status is null or v_job.status not in ('failed', 'discarded') then
        return;
    end if;
    select j.unique_key, j.id into key, holder from pipeline.jobs j
    where j.kind = v_job.kind and j.unique_key = v_job.unique_key
      and j.status in ('later', 'ready', 'running');
    if found then
        return;
    end if;
    -- A batch that is finished stays so, and no longer counts this job.
    update pipeline.batch_sets set ended = ended - 1, failed = failed - 1
    where id = v_job.batch and finished_at is null;
    update pipeline.jobs
    set status = 'ready', run_at = pipeline.now(), attempt = 0, ended_at = null,
        unknown_since = null, batch = case when found then v_job.batch end
    where id = p_job;
    perform pipeline.announce_v1(array[v_job.queue], pipeline.now());
    said := 'done';
end $$;

-- Deletes a job that nobody runs. Returns `done`, what it is instead, or null where it is not.
create function pipeline.discard_v1(p_job bigint) returns text
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
    if v_job.status in ('later', 'ready') and v_job.batch is not null then
        -- It will not come any more: for its batch it has failed.
        perform pipeline.announce_v1(
            pipeline.settle_batches_v1(array[v_job.batch], array[1], array[1]), pipeline.now()
        );
    end if;
    return 'done';
end $$;

-- Deletes jobs that ended longer ago than this, with their attempts: at most so many. Returns how many.
create function pipeline.prune_jobs_v1(p_age_ms bigint, p_limit integer) returns bigint
language plpgsql
set enable_seqscan to off set jit to off
as $$
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

-- Deletes batches that finished longer ago than this, and of whose jobs none is left.
create function pipeline.prune_batches_v1(p_age_ms bigint) returns void
language sql as $$
    delete from pipeline.batch_sets b
    where b.finished_at < pipeline.now() - p_age_ms * interval '1 ms'
      and not exists (select from pipeline.jobs j where j.batch = b.id)
$$;
