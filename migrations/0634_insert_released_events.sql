-- Writes the events of steps that can start, for runs that keep all events.
create function pipeline.insert_released_events_v1(p_released pipeline.released_step[]) returns void
language plpgsql as $$
declare
    v_now timestamptz := pipeline.now();
begin
    with counted as (
        select e.run, count(*)::integer as count from unnest(p_released) as e group by e.run
    ), moved as (
        update pipeline.runs r set events = r.events + c.count
        from counted c where r.id = c.run and r.event_level = 'all'
        returning r.id, r.events - c.count as base
    )
    insert into pipeline.events (run, no, at, step, status)
    select e.run, m.base + row_number() over (partition by e.run), v_now, e.no, 'enqueued'
    from unnest(p_released) as e join moved m on m.id = e.run;
end $$;
