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
        else case when wait_ms > 0 then 'scheduled' else 'ready' end
    end;
    if p_outcome = 'unknown_type' then
        select j.job_type, coalesce(j.unknown_since, p_now) as since,
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
            select from unnest(w.job_types, w.versions) as known (job_type, version)
            where known.job_type = v_job.job_type and known.version >= v_job.version
        );
        if p_now - v_known_at >= p_unknown_ms * interval '1 ms' then
            status := 'failed';
            is_refunded := false;
            error_class := 'NoHandler';
            error_message := format(
                'no live worker has known the job type `%s`%s since %s: register it with a worker, then %s',
                v_job.job_type,
                case when v_job.version > 1 then format(' in version %s', v_job.version) else '' end,
                v_known_at, case when p_job % 2 = 0 then 'reopen the run' else 'retry the job' end
            );
        else
            -- The longer no worker has known the type, the longer the pause before the next attempt.
            wait_ms := least(greatest(extract(epoch from p_now - v_job.since) * 500, 250), 30000);
            status := 'scheduled';
        end if;
    elsif p_outcome = 'lease_lost' then
        select j.attempt, j.max_attempts, j.worker into v_job from pipeline.jobs j where j.id = p_job;
        error_class := 'WorkerDied';
        error_message := format(
            'the worker that ran attempt %s (worker %s) did not renew its lease: it died, could not '
            'reach the database, or stopped while its end could not be written; see its log',
            v_job.attempt, v_job.worker
        );
        status := case when v_job.attempt < v_job.max_attempts then 'ready' else 'failed' end;
    end if;
end $$;
