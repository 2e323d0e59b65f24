select due_ms, ready, lost_ids, lost_tokens, lost_attempts,
       lost_batches as "lost_batches: Vec<Option<i64>>"
from pipeline.tick_v1($1, $2, $3)
