select id as "id!", kind as "kind!", queue as "queue!", status::text as "status!",
       priority as "priority!", attempt as "attempt!", attempts as "attempts!", batch, args as "args!",
       error_class, error_message, created_at as "created_at!", run_at as "run_at!", ended_at, worker
from pipeline.all_jobs where id = $1
