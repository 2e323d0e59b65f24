-- Ends attempts. Returns the positions of ends:
--   stale   the row does not exist or has another token: the end changed no row
--   held    another transaction has locked the row: the end changed no row, send it again
--   failed  the jobs that have failed for good
-- Never waits for a lock. The caller sorts the ends by id. Succeeded jobs are deleted unless p_keep is set; the row
-- of a step (an even id) is always deleted. The failed attempts of a step stay, because they are its history.
create function pipeline.end_jobs_v1(
    p_ends pipeline.attempt_end[], p_keep boolean, p_unknown_ms bigint,
    out stale integer[], out held integer[], out failed pipeline.failed_job[]
)
language plpgsql as $$
declare
    v_now timestamptz := pipeline.now();
    v_ended integer[];          -- places of the ends that changed a row
    v_retried bigint[];         -- succeeded jobs with earlier attempts
    v_moved integer[];
begin
    with locked as materialized (
        select e.end_index, j.row
        from unnest(p_ends) as e
        cross join lateral (
            select j.ctid as row from pipeline.jobs j where j.id = e.job and j.token = e.token
            for update skip locked
        ) as j
        where e.outcome in ('succeeded', 'ended_run') and (not p_keep or e.job % 2 = 0)
    ), deleted as (
        delete from pipeline.jobs j using locked where j.ctid = locked.row
        returning locked.end_index, j.id, j.attempt
    )
    select coalesce(array_agg(d.end_index), '{}'),
           array_agg(d.id) filter (where d.attempt > 1 and d.id % 2 = 1)
    into v_ended, v_retried from deleted d;
    if v_retried is not null then
        delete from pipeline.attempts where job = any (v_retried);
    end if;
    if cardinality(v_ended) = cardinality(p_ends) then
        return;
    end if;

    -- The other ends keep their rows.
    with locked as materialized (
        select e.*, j.row
        from unnest(p_ends) as e
        cross join lateral (
            select j.ctid as row from pipeline.jobs j where j.id = e.job and j.token = e.token
            for update skip locked
        ) as j
        where e.outcome not in ('succeeded', 'ended_run') or p_keep and e.job % 2 = 1
    ), moved as (
        update pipeline.jobs j
        set status = next.status,
            token = null,
            lease_until = null,
            run_at = v_now + next.wait_ms * interval '1 ms',
            attempt = j.attempt - next.is_refunded::integer,
            ended_at = case when next.status in ('succeeded', 'failed', 'discarded') then v_now end,
            unknown_since = case when e.outcome = 'unknown_type'
                                 then coalesce(j.unknown_since, v_now) end,
            error_class = coalesce(next.error_class, j.error_class),
            error_message = coalesce(next.error_message, j.error_message)
        from locked e
        cross join lateral pipeline.job_after_v1(
            e.job, e.outcome, e.wait_ms, e.error_class, e.error_message, v_now, p_unknown_ms
        ) as next
        where j.ctid = e.row and (e.outcome <> 'lease_lost' or j.lease_until < v_now)
        returning e.end_index, j.id, e.token, j.attempt, j.worker, next.status,
                  next.is_refunded, next.error_class, next.error_message, j.job_type, j.key
    ), recorded as (
        insert into pipeline.attempts (job, token, attempt, worker, outcome, error_class,
                                       error_message, ended_at)
        select m.id, m.token, m.attempt, m.worker,
               case when m.status in ('ready', 'scheduled') then 'retried' else m.status::text end,
               m.error_class, m.error_message, v_now
        from moved m where not m.is_refunded and m.status <> 'succeeded'
    )
    select coalesce(array_agg(m.end_index), '{}'),
           array_agg(row(m.end_index, m.job_type, m.key, m.error_class, m.error_message, null, null, false)
                     ::pipeline.failed_job) filter (where m.status in ('failed', 'discarded'))
    into v_moved, failed from moved m;
    v_ended := v_ended || v_moved;
    if cardinality(v_ended) = cardinality(p_ends) then
        return;
    end if;

    -- An end is also stale if the lease that it reports as lost was renewed meanwhile, or if it was sent twice.
    select array_agg(e.end_index) filter (where j.id is null),
           array_agg(e.end_index) filter (where j.id is not null)
    into stale, held
    from (
        select e.job, e.token, e.outcome, e.end_index from unnest(p_ends) as e
        where e.end_index <> all (v_ended)
    ) as e
    left join lateral (
        select j.id from pipeline.jobs j
        where j.id = e.job and j.token = e.token and (e.outcome <> 'lease_lost' or j.lease_until < v_now)
        offset 0
    ) as j on true;
end $$;
