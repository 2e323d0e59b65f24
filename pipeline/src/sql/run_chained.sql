-- Returns the runs that come directly after a run in its chain.
select array(select c.downstream from pipeline.chains c where c.upstream = r.id order by c.downstream) as "runs!"
from pipeline.runs r
where r.id = $1
