select problems, queues, array(select o.id from unnest(ended_runs) as o) as ended_runs
from pipeline.repair_run_v1($1, $2, $3, $4, $5)
