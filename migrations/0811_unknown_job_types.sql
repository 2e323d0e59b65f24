-- Returns the job types that a reopened run needs and that no live worker knows in the declared version: `name` or
-- `name (version 2)`.
create function pipeline.unknown_job_types_v1(p_run bigint, p_named text[]) returns text[]
language plpgsql stable as $$
begin
    return (
        select array_agg(distinct n.job_type || case when known.any_version
                                                then format(' (version %s)', n.version) else '' end)
        from pipeline.runs r
        cross join lateral unnest(pipeline.steps_to_reset_v1(p_run, p_named)) as s (no)
        join pipeline.nodes n on n.graph = r.graph and n.no = s.no
        cross join lateral (
            select coalesce(bool_or(w.job_type = n.job_type), false) as any_version,
                   coalesce(bool_or(w.job_type = n.job_type and w.version = n.version), false) as this_version
            from pipeline.workers worker
            cross join lateral unnest(worker.job_types, worker.versions) as w (job_type, version)
            where worker.takes_steps and worker.stopped_at is null and worker.seen_at > pipeline.now() - interval '30 s'
        ) as known
        where r.id = p_run and n.job_type is not null and not known.this_version
    );
end $$;
