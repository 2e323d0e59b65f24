-- Registers a worker, or registers it again if its row was lost. The worker draws its id at random: a number from a
-- sequence might be given to another worker after a failover.
with old as (
    delete from pipeline.workers where seen_at < pipeline.now() - interval '1 day' and id <> $1
)
insert into pipeline.workers (id, name, host, pid, queues, job_types, versions, takes_steps, started_at,
                              seen_at)
values ($1, $2, $3, $4, $5, $6, $7, $8, pipeline.now(), pipeline.now())
on conflict (id) do update set seen_at = excluded.seen_at
