select stretch as "stretch!", queue, rank, run_at, id, visited as "visited!"
from pipeline.sweep_v1($1, $2, $3, $4, $5, $6, $7)
