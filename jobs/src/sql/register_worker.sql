with old as (
    delete from pipeline.workers where seen_at < pipeline.now() - interval '1 day'
)
insert into pipeline.workers (id, name, host, pid, queues, job_types, versions, takes_steps, started_at,
                              seen_at)
values (nextval('pipeline.ids'), $1, $2, $3, $4, $5, $6, $7, pipeline.now(), pipeline.now())
returning id
