select runs as "runs!", firsts as "firsts!", lasts as "lasts!", is_end as "is_end!"
from pipeline.reconcile_runs_v1($1, $2, $3, $4)
