-- Returns the output of a run: one element for each step whose output the pipeline returns, at least one row.
-- `may_lack` says whether a downstream step would have run without the value of this step.
select r.status::text as "status!", (g.spec -> 'output_shape')::text as shape, n.key as "step?",
       s.status::text as step_status, s.output::text as output,
       s.status in ('succeeded', 'halted', 'skipped_by_branch')
       or s.status = 'failed' and n.strategy = 'ignore' as may_lack
from pipeline.runs r
join pipeline.graphs g on g.id = r.graph
left join lateral json_array_elements_text(g.spec -> 'output') with ordinality as o (key, pos) on true
left join pipeline.nodes n on n.graph = g.id and n.key = o.key
left join pipeline.steps s on s.run = r.id and s.no = n.no
where r.id = $1
order by o.pos
