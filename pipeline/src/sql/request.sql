with asked as (
    insert into pipeline.requests (id, run, created_at, next_at, round, kind)
    select nextval('pipeline.ids'), run, pipeline.now(), pipeline.now(),
           (select r.round from pipeline.runs r where r.id = run), $2
    from unnest($1::bigint[]) as run
)
select pg_notify('pipeline_requests', '')
