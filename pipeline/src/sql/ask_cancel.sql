select is_missing as "is_missing!", request, refused, queues,
       array(select o.id from unnest(over) as o) as over
from pipeline.ask_cancel_v1($1)
