-- Returns the runs that a run comes directly after in its chain.
select array(select c.upstream from pipeline.chains c where c.downstream = r.id order by c.upstream) as "runs!"
from pipeline.runs r
where r.id = $1
