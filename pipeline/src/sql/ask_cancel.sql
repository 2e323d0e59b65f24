select is_missing as "is_missing!", request, refused, queues,
       array(select o.id from unnest(ended_runs) as o) as ended_runs
from pipeline.request_cancel_v1($1)
