-- The key of the step that has this job.
select n.key
from pipeline.runs r
join pipeline.nodes n on n.graph = r.graph
where r.id = $1 and pipeline.step_id(r.id, n.no) = $2
