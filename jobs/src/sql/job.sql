select id as "id!", job_type as "job_type!", queue as "queue!", status::text as "status!",
       priority as "priority!", attempt as "attempt!", max_attempts as "max_attempts!", batch, args as "args!",
       error_class, error_message, created_at as "created_at!", run_at as "run_at!", ended_at, worker
from pipeline.all_jobs where id = $1
