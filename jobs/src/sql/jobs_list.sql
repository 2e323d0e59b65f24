select id as "id!", job_type as "job_type!", queue as "queue!", status::text as "status!",
       priority as "priority!", attempt as "attempt!", max_attempts as "max_attempts!", batch, args as "args!",
       error_class, error_message, created_at as "created_at!", run_at as "run_at!", ended_at, worker
from pipeline.all_jobs
where ($1::text is null or status = $1::text::pipeline.job_status)
  and ($2::text is null or queue = $2)
  and ($3::text is null or job_type = $3)
  and ($4::bigint is null or id < $4)
order by id desc
limit $5
