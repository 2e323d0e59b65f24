-- Returns the outputs of runs: one element for each step whose output the pipeline returns, at least one row for
-- each run. `may_lack` says whether a downstream step would have run without the value of this step. Without $2, a
-- large output, and the outputs of a run of a large graph, are omitted: `is_large`. Each row is looked up by key: a
-- plan that was made for small tables could otherwise scan all steps.
select r.id as run, r.graph, r.status::text as "status!", (spec.json -> 'output_shape')::text as shape,
       n.no as "no?", n.kind::text as "kind?", n.key as "step?", s.status::text as step_status, case when not l.is_large then s.output::text end as output,
       s.status in ('succeeded', 'ended_run', 'skipped_by_branch')
       or s.status = 'failed' and n.strategy = 'ignore' as may_lack,
       l.is_large as "is_large!"
from unnest($1::bigint[]) with ordinality as w (id, ord)
cross join lateral (
    select r.id, r.graph, r.status from pipeline.runs r where r.id = w.id offset 0
) as r
cross join lateral (
    select g.id, g.size, g.spec from pipeline.graphs g where g.id = r.graph offset 0
) as g
left join lateral (select g.spec as json where $2 or g.size <= 100 offset 0) as spec on true
left join lateral json_array_elements_text(spec.json -> 'output') with ordinality as o (key, pos) on true
left join lateral (
    select n.no, n.key, n.kind, n.strategy from pipeline.nodes n where n.key = o.key and n.graph = g.id offset 0
) as n on true
left join lateral (
    select s.status, s.output, s.output_bytes from pipeline.steps s where s.run = r.id and s.no = n.no offset 0
) as s on true
cross join lateral (
    select not $2 and (g.size > 100 or s.output_bytes is not null) as is_large
) as l
order by w.ord, o.pos
