-- Advances the runs and loads the inputs of handed-over steps in one round trip. The results of the whole advance
-- are only in the first row: repeated in every row, the answer would grow quadratically.
select case when first then a.queues end as queues, case when first then a.started end as started,
       case when first then a.tokens end as tokens, case when first then a.over end as over,
       i.id, i.kind, i.queue, i.priority, i.attempts, i.lease_ms, i.params, i.options, i.shape, i.takes,
       i.outputs as "outputs: Vec<Option<String>>", i.failed as "failed: Vec<Option<String>>",
       i.classes as "classes: Vec<Option<String>>", i.messages as "messages: Vec<Option<String>>",
       i.cancelled, i.key, i.round, i.size, i.put_off
from pipeline.advance_v1($1, $2, $3, $4, $5, $6::text[]::json[], $7, $8, $9, $10, $11, $12, $13) as a
left join lateral pipeline.inputs_v1(a.started, $14, $15) with ordinality
     as i (id, kind, queue, priority, attempts, lease_ms, params, options, shape, takes, outputs, failed,
           classes, messages, cancelled, key, round, size, put_off, ord) on a.started is not null
cross join lateral coalesce(i.ord = 1, true) as first
