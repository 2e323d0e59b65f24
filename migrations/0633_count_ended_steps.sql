-- Counts ended steps in their runs, writes the events, and ends the runs that have no live step left. Returns the
-- runs that have ended.
create function pipeline.count_ended_steps_v1(
    p_ended pipeline.ended_step[], p_released pipeline.released_step[]
) returns pipeline.ended_run[]
language plpgsql as $$
declare
    v_now timestamptz := pipeline.now();
    v_ended_runs pipeline.ended_run[];
    v_level pipeline.event_level;       -- the most that one of these runs keeps
    v_has_several boolean;              -- whether several steps of one run have ended
begin
    with counted as (
        select e.run, count(e.no)::integer as ended, coalesce(bool_or(e.is_halting), false) as is_halting,
               coalesce(bool_or(e.fails_run), false) as fails_run,
               -- The step, if only one of the run has ended.
               min(e.no) as no, min(e.attempt) as attempt, min(e.status) as status
        from unnest(p_ended) as e
        group by e.run
    ), moved as (
        update pipeline.runs r
        set live_steps = r.live_steps - c.ended,
            is_failed = r.is_failed or c.fails_run,
            halt_triggered = r.halt_triggered or c.is_halting,
            status = case when r.live_steps = c.ended
                          then pipeline.final_run_status(r.status, r.stop_reason, r.is_failed or c.fails_run,
                                                         r.halt_triggered or c.is_halting)
                          else r.status end,
            ended_at = case when r.live_steps = c.ended then v_now end,
            events = r.events + case when r.event_level >= 'steps' then c.ended else 0 end
                              + case when r.event_level <> 'none' and r.live_steps = c.ended then 1 else 0 end
        from counted c
        cross join lateral (
            select b.ctid as row from pipeline.runs b where b.id = c.run offset 0
        ) as b
        where r.ctid = b.row
        returning r.id, r.status, r.graph, r.live_steps, r.event_level, r.events, c.ended, c.no, c.attempt,
                  c.status as step_status
    ), written as (
        insert into pipeline.events (run, no, at, step, attempt, status)
        -- The event of the run's end is the last one.
        select m.id, m.events - (m.live_steps = 0)::integer, v_now, m.no, m.attempt, m.step_status::text
        from moved m where m.ended = 1 and m.event_level >= 'steps'
        union all
        select m.id, m.events, v_now, null, null, m.status::text
        from moved m where m.live_steps = 0 and m.event_level <> 'none'
    )
    select array_agg(row(m.id, m.status::text, m.graph)::pipeline.ended_run) filter (where m.live_steps = 0),
           max(m.event_level), bool_or(m.ended > 1)
    into v_ended_runs, v_level, v_has_several from moved m;

    if v_has_several and v_level >= 'steps' then
        insert into pipeline.events (run, no, at, step, attempt, status)
        select e.run, r.events - (r.ended_at is not null)::integer - e.after, v_now, e.no, e.attempt,
               e.status::text
        from (
            select e.run, e.no, e.attempt, e.status, count(*) over (partition by e.run) as ended,
                   row_number() over (partition by e.run order by e.ord desc)::integer - 1 as after
            from unnest(p_ended) with ordinality
                 as e (run, no, graph, status, is_ignored, is_halting, fails_run, attempt, end_index, skips_arms, kept_arm,
                       out_edges, ord)
            where e.no is not null
        ) as e
        cross join lateral (
            select r.events, r.ended_at from pipeline.runs r
            where r.id = e.run and r.event_level >= 'steps' offset 0
        ) as r
        where e.ended > 1;
    end if;
    if v_level = 'all' and p_released is not null then
        perform pipeline.insert_released_events_v1(p_released);
    end if;
    return v_ended_runs;
end $$;
