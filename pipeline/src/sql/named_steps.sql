-- Returns the named steps with their status; the status is null if the run has no such step.
select named.key as "key!", s.status::text as "status?",
       s.status = 'failed' and n.strategy = 'ignore' as is_ignored
from pipeline.runs r
cross join unnest($2::text[]) as named (key)
left join pipeline.nodes n on n.graph = r.graph and n.key = named.key
left join pipeline.steps s on s.run = r.id and s.no = n.no
where r.id = $1
