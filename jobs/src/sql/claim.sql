select null::integer[] as stale_ends, null::integer[] as held_ends,
       null::pipeline.failed_job[] as "failed_ends: Vec<FailedRow>",
       line, id, token, queue, job_type, attempt, max_attempts, priority, run_at, waited_ms, lease_ms,
       batch, args, input, options, claimed_at, bytes, range, step, after_queue,
       after_rank, rank, visited, held
from pipeline.claim_jobs_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
