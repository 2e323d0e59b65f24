select r.pipeline, r.status::text as "run_status!", r.round, n.key, s.status::text as "status!",
       coalesce(j.attempt, s.attempt) as "attempt!",
       n.attempts, s.reason::text as reason, cause.key as "cause?",
       coalesce(s.error_class, j.error_class) as error_class,
       coalesce(s.error_message, j.error_message) as error_message,
       s.output::text as output, n.arms[s.arm + 1] as arm, j.status::text as "queued?",
       array(select distinct up.key from pipeline.dependencies d
             join pipeline.nodes up on up.graph = d.graph and up.no = d.up
             where d.graph = n.graph and d.down = n.no order by up.key) as "after!"
from pipeline.runs r
join pipeline.steps s on s.run = r.id
join pipeline.nodes n on n.graph = r.graph and n.no = s.no
left join pipeline.nodes cause on cause.graph = r.graph and cause.no = s.cause
left join pipeline.jobs j on j.id = pipeline.step_id(s.run, s.no)
where r.id = $1
order by s.no
