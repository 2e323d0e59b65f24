-- How an attempt ended, as its worker reports it.
create type pipeline.attempt_outcome as enum (
    'succeeded',
    'ended_run',        -- it succeeded and called cx.halt(): the run ends early
    'retryable',        -- it failed, and another attempt may follow
    'failed',           -- it failed for good
    'discarded',        -- it failed for good, because it asked to be discarded
    'snoozed',          -- it asked to run again later: the attempt does not count
    'handed_back',      -- its worker stops: the attempt does not count
    'unknown_type',     -- its worker does not know the job's type or version: the attempt does not count
    'lease_lost',       -- its worker did not renew the lease in time
    'cancelled'         -- never sent by a worker: the run is being cancelled, so that no attempt follows
);

-- The end of one attempt.
create type pipeline.attempt_end as (
    job           bigint,
    token         bigint,
    outcome       pipeline.attempt_outcome,
    attempt       smallint,
    ran_ms        integer,
    wait_ms       bigint,                      -- the delay before the next attempt
    output        json,
    error_class   text,
    error_message text,
    place         integer                      -- names this end in the answer; unique in a call
);

-- A job that has failed for good.
create type pipeline.failed_job as (
    place         integer,                     -- of its end
    kind          text,
    key           text,                        -- of the job, or of the run that it is a step of
    error_class   text,
    error_message text,
    run           bigint,                      -- the run and the step that it is; null: none
    step          text,
    is_optional   boolean
);

-- Ends attempts. Returns the places of ends:
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
        select e.place, j.row
        from unnest(p_ends) as e
        cross join lateral (
            select j.ctid as row from pipeline.jobs j where j.id = e.job and j.token = e.token
            for update skip locked
        ) as j
        where e.outcome in ('succeeded', 'ended_run') and (not p_keep or e.job % 2 = 0)
    ), deleted as (
        delete from pipeline.jobs j using locked where j.ctid = locked.row
        returning locked.place, j.id, j.attempt
    )
    select coalesce(array_agg(d.place), '{}'),
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
        returning e.place, j.id, e.token, j.attempt, j.worker, next.status,
                  next.is_refunded, next.error_class, next.error_message, j.kind, j.unique_key
    ), recorded as (
        insert into pipeline.attempts (job, token, attempt, worker, outcome, error_class,
                                       error_message, ended_at)
        select m.id, m.token, m.attempt, m.worker,
               case when m.status in ('ready', 'later') then 'retried' else m.status::text end,
               m.error_class, m.error_message, v_now
        from moved m where not m.is_refunded and m.status <> 'succeeded'
    )
    select coalesce(array_agg(m.place), '{}'),
           array_agg(row(m.place, m.kind, m.unique_key, m.error_class, m.error_message, null, null, false)
                     ::pipeline.failed_job) filter (where m.status in ('failed', 'discarded'))
    into v_moved, failed from moved m;
    v_ended := v_ended || v_moved;
    if cardinality(v_ended) = cardinality(p_ends) then
        return;
    end if;

    -- An end is also stale if the lease that it reports as lost was renewed meanwhile, or if it was sent twice.
    select array_agg(e.place) filter (where j.id is null),
           array_agg(e.place) filter (where j.id is not null)
    into stale, held
    from (
        select e.job, e.token, e.outcome, e.place from unnest(p_ends) as e
        where e.place <> all (v_ended)
    ) as e
    left join lateral (
        select j.id from pipeline.jobs j
        where j.id = e.job and j.token = e.token and (e.outcome <> 'lease_lost' or j.lease_until < v_now)
        offset 0
    ) as j on true;
end $$;

-- Returns the state of a job's row after an attempt that ended with p_outcome. A refunded attempt does not count.
create function pipeline.job_after_v1(
    p_job bigint, p_outcome pipeline.attempt_outcome, p_wait_ms bigint, p_class text, p_message text,
    p_now timestamptz, p_unknown_ms bigint,
    out status pipeline.job_status, out wait_ms bigint, out is_refunded boolean, out error_class text,
    out error_message text
)
language plpgsql stable as $$
declare
    v_job record;
    v_known_at timestamptz;
begin
    wait_ms := greatest(p_wait_ms, 0);
    is_refunded := p_outcome in ('snoozed', 'handed_back', 'unknown_type');
    error_class := p_class;
    error_message := p_message;
    status := case p_outcome
        when 'succeeded' then 'succeeded'
        when 'ended_run' then 'succeeded'
        when 'failed' then 'failed'
        when 'discarded' then 'discarded'
        else case when wait_ms > 0 then 'later' else 'ready' end
    end;
    if p_outcome = 'unknown_type' then
        select j.kind, coalesce(j.unknown_since, p_now) as since,
               coalesce((j.options ->> 'version')::integer, step.version, 1) as version
        into v_job
        from pipeline.jobs j
        left join lateral (
            select n.version from pipeline.runs r
            join pipeline.nodes n on n.graph = r.graph and n.no = pipeline.no_of(j.id)
            where j.id % 2 = 0 and r.id = pipeline.run_of(j.id)
        ) as step on true
        where j.id = p_job;
        select greatest(v_job.since, max(w.seen_at)) into v_known_at
        from pipeline.workers w
        where exists (
            select from unnest(w.kinds, w.versions) as known (kind, version)
            where known.kind = v_job.kind and known.version >= v_job.version
        );
        if p_now - v_known_at >= p_unknown_ms * interval '1 ms' then
            status := 'failed';
            is_refunded := false;
            error_class := 'NoHandler';
            error_message := format(
                'no live worker has known the job type `%s`%s since %s: register it with a worker, then %s',
                v_job.kind,
                case when v_job.version > 1 then format(' in version %s', v_job.version) else '' end,
                v_known_at, case when p_job % 2 = 0 then 'reopen the run' else 'retry the job' end
            );
        else
            -- The longer no worker has known the type, the longer the pause before the next attempt.
            wait_ms := least(greatest(extract(epoch from p_now - v_job.since) * 500, 250), 30000);
            status := 'later';
        end if;
    elsif p_outcome = 'lease_lost' then
        select j.attempt, j.attempts, j.worker into v_job from pipeline.jobs j where j.id = p_job;
        error_class := 'WorkerDied';
        error_message := format(
            'the worker that ran attempt %s (worker %s) did not renew its lease: it died, could not '
            'reach the database, or stopped while its end could not be written; see its log', v_job.attempt, v_job.worker
        );
        status := case when v_job.attempt < v_job.attempts then 'ready' else 'failed' end;
    end if;
end $$;
