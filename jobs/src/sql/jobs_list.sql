select id, kind, queue, status::text as "status!", priority, attempt, attempts, batch, args,
       error_class, error_message, created_at, run_at, ended_at, worker
from pipeline.jobs
where ($1::text is null or status = $1::text::pipeline.job_status)
  and ($2::text is null or queue = $2)
  and ($3::text is null or kind = $3)
  and ($4::bigint is null or id < $4)
order by id desc
limit $5
