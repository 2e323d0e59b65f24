-- Returns one row if the run exists; its step is null if the run has no such step.
select s.status::text as "status?", s.output::text as output
from pipeline.runs r
left join pipeline.nodes n on n.graph = r.graph and n.key = $2
left join pipeline.steps s on s.run = r.id and s.no = n.no
where r.id = $1
