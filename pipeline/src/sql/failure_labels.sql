-- Returns the names, for log lines, of steps that failed for good.
select e.id as "job!", r.id as run, n.key as step, r.idempotency_key as "key?", n.optional as is_optional
from unnest($1::bigint[]) as e (id)
join pipeline.runs r on r.id = pipeline.run_of(e.id)
join pipeline.nodes n on n.graph = r.graph and n.no = pipeline.no_of(e.id)
