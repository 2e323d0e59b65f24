select stale, held, held_runs, failed as "failed: Vec<FailedRow>", queues,
       started as "started: Vec<StartedRow>", ended_runs as "ended_runs: Vec<EndedRunRow>"
from pipeline.advance_v1($1, $2, $3, $4, $5, $6, $7, $8, $9)
