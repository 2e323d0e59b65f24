-- Returns failed jobs with the names of the steps that they are. p_ends are their ends.
create function pipeline.name_failed_steps_v1(
    p_failed pipeline.failed_job[], p_ends pipeline.attempt_end[]
) returns pipeline.failed_job[]
language plpgsql as $$
begin
    return (
        select array_agg(row(f.end_index, f.job_type, r.key, f.error_class, f.error_message, r.id, n.key,
                             coalesce(n.is_optional, false))::pipeline.failed_job)
        from unnest(p_failed) as f
        join unnest(p_ends) as e on e.end_index = f.end_index
        left join pipeline.runs r on r.id = pipeline.run_of(e.job)
        left join pipeline.nodes n on n.graph = r.graph and n.no = pipeline.no_of(e.job)
    );
end $$;
