select problems, queues, array(select o.id from unnest(over) as o) as over
from pipeline.mend_run_v1($1, $2, $3, $4, $5)
