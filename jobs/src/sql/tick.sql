select now as "now!", due_from, claimed_from, due_ms, due_queues, due_since, ready, lost_ids, lost_tokens,
       lost_attempts, lost_batches as "lost_batches: Vec<Option<i64>>", lost_queues,
       lost_job_types, lost_runs as "lost_runs: Vec<Option<i64>>", lost_steps as "lost_steps: Vec<Option<String>>",
       leased_ids, leased_until, is_registered as "is_registered!"
from pipeline.tick_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
