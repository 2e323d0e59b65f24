select id, kind, queue, status::text as "status!", priority, attempt, attempts, batch, args,
       error_class, error_message, created_at, run_at, ended_at, worker
from pipeline.jobs where id = $1
