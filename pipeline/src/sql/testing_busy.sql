-- Returns what keeps the harness from being idle: due jobs, except held ones, requests and passed deadlines; and
-- the time of the next deadline. Postponed requests count as due: while the test clock is stopped, their time would
-- never come.
with due as (
    update pipeline.requests set next_at = '-infinity' where next_at > pipeline.now()
)
select
    (select count(*) from pipeline.jobs j where j.status = 'running' and j.id <> all ($2))
    + (select count(*) from pipeline.requests)
    + (select count(*) from pipeline.runs r
       where r.deadline_at <= pipeline.now() and r.status = 'running') as "running!",
    (select count(*) from pipeline.jobs j
     where j.status = 'scheduled' and j.run_at <= pipeline.now()
        or j.status = 'ready' and not exists (select from pipeline.queues q
                                              where q.name = j.queue and q.paused_at is not null)) as "ready!",
    (select array_agg(distinct j.job_type order by j.job_type) from pipeline.jobs j
     where j.job_type <> all ($1) and (j.unknown_since is not null or j.status = 'ready')
       and j.ended_at is null) as unknown,
    (select ceil(extract(epoch from min(r.deadline_at) - pipeline.now()) * 1000)::bigint
     from pipeline.runs r
     where r.deadline_at > pipeline.now() and r.status = 'running') as deadline_ms
