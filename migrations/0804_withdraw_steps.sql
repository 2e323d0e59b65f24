-- Cancels the steps that no worker has claimed, of a run that is being drained and that the caller has locked. Does
-- not wait for a queue row that another transaction holds: a claim may hold the row, and then its step is refused
-- when it starts; or another client holds the row. `is_left` says that there is such a row.
create function pipeline.withdraw_steps_v1(
    p_run bigint, out queues text[], out ended_runs pipeline.ended_run[], out asked bigint[], out is_left boolean
)
language plpgsql as $$
declare
    v_now timestamptz := pipeline.now();
    v_reason pipeline.step_reason;
    v_ended pipeline.ended_step[];
begin
    select case r.stop_reason when 'deadline' then 'deadline' else 'cancelled' end into v_reason
    from pipeline.runs r where r.id = p_run;
    -- Each step and each job is looked up by its key: the planner knows nothing of a run that is younger than the
    -- statistics, and would compare every step of the run with every job.
    with free as (
        select j.id
        from (select s.no from pipeline.steps s where s.run = p_run and s.status = 'enqueued' offset 0) as s
        cross join lateral (
            select j.id from pipeline.jobs j
            where j.id = pipeline.step_id(p_run, s.no) and j.status in ('scheduled', 'ready')
            for update skip locked
        ) as j
    ), withdrawn as (
        delete from pipeline.jobs j where j.id = any (array(select free.id from free))
        returning j.id, j.attempt, j.error_class, j.error_message
    ), ended as (
        -- A step that waited for a retry keeps its number of attempts and its last error.
        update pipeline.steps s
        set status = 'cancelled', ended_at = v_now, reason = v_reason, cause = null,
            attempt = w.attempt, error_class = w.error_class, error_message = w.error_message
        from withdrawn w
        cross join lateral (
            select b.ctid as row from pipeline.steps b
            where b.run = p_run and b.no = pipeline.no_of(w.id) offset 0
        ) as b
        where s.ctid = b.row
        returning s.no, s.attempt
    ), waiting as (
        update pipeline.steps s
        set status = 'cancelled', ended_at = v_now, reason = v_reason, cause = null
        where s.run = p_run and s.status in ('pending', 'waiting')
        returning s.no
    )
    select array_agg(pipeline.ended_with_run(p_run, e.no, 'cancelled', e.attempt)) into v_ended
    from (
        select ended.no, nullif(ended.attempt, 0) as attempt from ended
        union all select waiting.no, null from waiting
    ) as e;
    select array_agg(j.id), coalesce(bool_or(j.status in ('scheduled', 'ready')), false)
    into asked, is_left
    from (select s.no from pipeline.steps s where s.run = p_run and s.status = 'enqueued' offset 0) as s
    cross join lateral (
        select j.id, j.status from pipeline.jobs j where j.id = pipeline.step_id(p_run, s.no) offset 0
    ) as j;
    select f.queues, f.ended_runs into queues, ended_runs
    from pipeline.finish_advance_v1(v_ended || pipeline.unchanged_runs(array[p_run]), null, 0, '{}', '{}', false) as f;
end $$;
