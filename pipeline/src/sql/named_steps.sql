-- What was named, as it stands in the run; a status only where the run has such a step.
select named.key as "key!", r.pipeline as "pipeline!", s.status::text as status,
       s.status = 'failed' and n.strategy = 'ignore' as is_ignored,
       case when s.no is null then (
           select string_agg(format('`%s`', known.key), ', ' order by known.no)
           from pipeline.nodes known where known.graph = r.graph and known.no < 20
       ) end as known
from pipeline.runs r
cross join unnest($2::text[]) as named (key)
left join pipeline.nodes n on n.graph = r.graph and n.key = named.key
left join pipeline.steps s on s.run = r.id and s.no = n.no
where r.id = $1
