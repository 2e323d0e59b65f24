-- Moves the runs on, and loads what was handed over: one round trip.
select a.queues, a.started, a.tokens, a.over, i.id, i.kind, i.queue, i.priority, i.attempts,
       i.lease_ms, i.params, i.options, i.shape, i.takes,
       i.outputs as "outputs: Vec<Option<String>>", i.failed as "failed: Vec<Option<String>>",
       i.classes as "classes: Vec<Option<String>>", i.messages as "messages: Vec<Option<String>>",
       i.cancelled
from pipeline.advance_v1($1, $2, $3, $4, $5, $6::text[]::json[], $7, $8, $9, $10, $11, $12, $13) as a
left join lateral pipeline.inputs_v1(a.started) as i on a.started is not null
