-- Returns the requests that a worker may execute now: deadlines first, and the longest waiting ones of each kind.
create function pipeline.due_requests_v1(p_limit integer)
returns table (id bigint, run bigint, kind text)
language sql stable as $$
    (
        select q.id, q.run, q.kind from pipeline.requests q
        where q.kind = 'deadline' and q.next_at <= pipeline.now()
        order by q.next_at, q.id limit p_limit
    )
    union all
    (
        select q.id, q.run, q.kind from pipeline.requests q
        where q.kind <> 'deadline' and q.next_at <= pipeline.now()
        order by q.next_at, q.id limit p_limit
    )
$$;
