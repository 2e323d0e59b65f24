-- Returns the events of a run after a given event; at least one row if the run exists.
select e.no as "no?", e.at as "at?", n.key as "step?", e.attempt, e.status as "status?"
from pipeline.runs r
left join pipeline.events e on e.run = r.id and e.no > $2
left join pipeline.nodes n on n.graph = r.graph and n.no = e.step
where r.id = $1
order by e.no
