-- Returns runs whose deadline has passed and that have no request yet, so that held or refused requests do not
-- block other runs.
create function pipeline.overdue_runs_v1(p_limit integer) returns setof bigint
language sql stable as $$
    select r.id from pipeline.runs r
    where r.deadline_at <= pipeline.now() and r.deadline_at is not null and r.status = 'running'
      and not exists (select from pipeline.requests q where q.run = r.id and q.kind = 'deadline')
    order by r.deadline_at
    limit p_limit
$$;
