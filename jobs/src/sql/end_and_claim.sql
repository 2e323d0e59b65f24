-- The ends first, then the claim: the left side of a left join is read before the right one. Each statement of both
-- functions has its own snapshot. The answer about the ends stands in the first row only.
select case when coalesce(c.no, 1) = 1 then e.stale end as stale_ends,
       case when coalesce(c.no, 1) = 1 then e.held end as held_ends,
       case when coalesce(c.no, 1) = 1 then e.failed end as "failed_ends: Vec<FailedRow>",
       c.line, c.id, c.token, c.queue, c.job_type, c.attempt, c.max_attempts, c.priority, c.run_at, c.waited_ms,
       c.lease_ms, c.batch, c.args, c.input, c.options, c.claimed_at, c.bytes, c.range, c.step, c.after_queue,
       c.after_rank, c.rank, c.visited, c.held
from pipeline.end_jobs_v1($1, $2, $3) as e
left join lateral pipeline.claim_jobs_v1($4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
     with ordinality as c (line, id, token, queue, job_type, attempt, max_attempts, priority, run_at, waited_ms,
                           lease_ms, batch, args, input, options, claimed_at, bytes, range, step, after_queue,
                           after_rank, rank, visited, held, no) on true
