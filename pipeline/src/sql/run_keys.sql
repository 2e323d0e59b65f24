-- Returns the first keys of a run's steps, and the number of further steps.
select r.pipeline,
       (select array_agg(n.key order by n.no) from pipeline.nodes n
        where n.graph = r.graph and n.no < $2) as "keys!",
       greatest(g.size - $2, 0) as "more!"
from pipeline.runs r
join pipeline.graphs g on g.id = r.graph
where r.id = $1
