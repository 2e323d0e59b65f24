select j.id, j.job_type, j.queue, j.attempt, j.max_attempts, j.status::text as "status!", s.run as "run?",
       n.key as "step?",
       greatest(ceil(extract(epoch from j.run_at - pipeline.now()) * 1000), 0)::bigint as "wait_ms!",
       j.error_class, j.error_message
from pipeline.jobs j
left join pipeline.steps s on j.id % 2 = 0 and s.run = pipeline.run_of(j.id)
                          and s.no = pipeline.no_of(j.id)
left join pipeline.runs r on r.id = s.run
left join pipeline.nodes n on n.graph = r.graph and n.no = s.no
where j.ended_at is null
order by j.run_at, j.id
limit 1000
