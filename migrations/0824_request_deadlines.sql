-- Inserts a request for each run whose deadline has passed.
create function pipeline.request_deadlines_v1(p_limit integer) returns void
language sql
as $$
    insert into pipeline.requests (id, run, created_at, next_at, round, kind)
    select nextval('pipeline.ids'), r.id, pipeline.now(), pipeline.now(), r.round, 'deadline'
    from pipeline.overdue_runs_v1(p_limit) as overdue (run)
    join pipeline.runs r on r.id = overdue.run
    on conflict do nothing
$$;
