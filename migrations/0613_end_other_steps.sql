-- Ends the attempts of steps that did not simply succeed. p_deleted are the tokens of those that did. An attempt that
-- succeeded is missing there if its lease was renewed in the same moment: the row that the first statement has locked
-- is then newer than its snapshot. end_jobs_v1 finds it.
--   ends: the attempts that end their steps, including those that succeeded; their outcome is that of the step
create function pipeline.end_other_steps_v1(
    p_ends pipeline.attempt_end[], p_deleted bigint[], p_unknown_ms bigint,
    out stale integer[], out held integer[], out failed pipeline.failed_job[],
    out ends pipeline.attempt_end[]
)
language plpgsql as $$
declare
    v_rest pipeline.attempt_end[];
    v_unwritten integer[];
    v_last pipeline.attempt_end[];
begin
    -- Each attempt once: a second end of the same attempt is stale, and so is the end of an earlier one. The
    -- subqueries are hashed: a group may have thousands of ends.
    ends := array(
        select distinct on (e.token) e from unnest(p_ends) as e
        where e.token in (select unnest(p_deleted))
        order by e.token
    );
    v_rest := array(
        select e from unnest(p_ends) as e
        where e.end_index not in (select d.end_index from unnest(ends) as d)
        order by e.job
    );
    select e.stale, e.held, e.failed into stale, held, failed
    from pipeline.end_jobs_v1(v_rest, false, p_unknown_ms) as e;
    v_unwritten := coalesce(stale, '{}') || coalesce(held, '{}');
    if failed is not null then
        failed := pipeline.name_failed_steps_v1(failed, v_rest);
    end if;

    with last as materialized (
        select e.*, outcome.of_step, f.error_class as decided_class, f.error_message as decided_message
        from unnest(v_rest) as e
        left join unnest(failed) as f on f.end_index = e.end_index
        join pipeline.runs r on r.id = pipeline.run_of(e.job)
        cross join lateral (
            select pipeline.step_outcome_after(
                e.outcome, f.end_index is not null, coalesce(f.error_class, e.error_class), r.status, r.stop_reason
            ) as of_step
        ) as outcome
        where e.end_index <> all (v_unwritten) and outcome.of_step is not null
    ), deleted as (
        -- The row was locked when the attempt was ended.
        delete from pipeline.jobs j using last where j.id = last.job
        returning j.id, j.error_class, j.error_message
    ), recorded as (
        -- The attempt was recorded as one that is retried, before its run was asked.
        update pipeline.attempts a set outcome = last.of_step::text
        from last where a.job = last.job and a.token = last.token and a.outcome = 'retried'
    )
    select array_agg(row(
        l.job, l.token, l.of_step, l.attempt, l.ran_ms, l.wait_ms,
        case when l.of_step in ('succeeded', 'ended_run') then l.output end,
        -- A step that was stopped has the error of its attempt before.
        coalesce(l.decided_class, l.error_class, d.error_class),
        coalesce(l.decided_message, l.error_message, d.error_message), l.end_index
    )::pipeline.attempt_end) into v_last
    from last l left join deleted d on d.id = l.job;
    ends := ends || v_last;
end $$;
