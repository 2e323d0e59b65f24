select part as "part!", queue, rank, run_at, id, visited as "visited!"
from pipeline.sweep_ranges_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
