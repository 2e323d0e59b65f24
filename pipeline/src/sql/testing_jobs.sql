-- Returns one job by its id, or all jobs of a type that are not steps of runs, the oldest first.
select j.id, j.job_type, j.queue, j.status::text as "status!", j.priority, j.attempt, j.max_attempts, j.batch, j.key,
       j.args::text as "args!", j.error_class, j.error_message,
       ceil(extract(epoch from j.run_at - pipeline.now()) * 1000)::bigint as "wait_ms!"
from pipeline.jobs j
where j.id = $1 or j.job_type = $2 and j.id % 2 = 1
order by j.created_at, j.id
