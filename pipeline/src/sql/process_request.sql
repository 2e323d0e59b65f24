select state as "state!", refused, queues, array(select o.id from unnest(ended_runs) as o) as ended_runs, asked, wait_ms
from pipeline.process_request_v1($1, $2)
