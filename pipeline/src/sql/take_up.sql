select state as "state!", refused, queues, array(select o.id from unnest(over) as o) as over, asked, wait_ms
from pipeline.take_up_v1($1, $2)
