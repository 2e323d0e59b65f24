select n.key, s.output::text as output,
       array(select distinct up.key from pipeline.dependencies d
             join pipeline.nodes up on up.graph = d.graph and up.no = d.upstream
             where d.graph = n.graph and d.downstream = n.no order by up.key) as "after!"
from pipeline.runs r
join pipeline.steps s on s.run = r.id
join pipeline.nodes n on n.graph = r.graph and n.no = s.no
where r.id = $1
