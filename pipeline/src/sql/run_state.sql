-- Returns a run and its steps in one snapshot, with the queue rows of the steps that have one.
select r.id, r.pipeline, r.status::text as "status!", r.round, r.actor, r.tags,
       r.key as key, r.rerun_of, r.created_at, r.started_at, r.ended_at, r.deadline_at,
       r.stop_reason is not distinct from 'deadline' as "deadline_exceeded!",
       s.step as "step!", s.kind as "kind!", s.job_type, s.queue, s.status as "step_status!",
       coalesce(j.attempt, s.attempt) as "attempt!", s.max_attempts, s.reason, s.cause,
       coalesce(s.error_class, j.error_class) as error_class,
       coalesce(s.error_message, j.error_message) as error_message,
       s.arm, s.enqueued_at, s.ended_at as step_ended_at, s.ran_ms, s.batch as "batch!",
       j.status::text as in_queue,
       -- In the first row only: a run may have many chained runs, and many steps.
       case when s.no = 0 then
           array(select c.upstream from pipeline.chains c where c.downstream = r.id order by c.upstream)
       end as upstream,
       case when s.no = 0 then
           array(select c.downstream from pipeline.chains c where c.upstream = r.id order by c.downstream)
       end as chained
from pipeline.runs r
join pipeline.run_steps s on s.run = r.id
left join pipeline.jobs j on j.id = s.batch and s.ended_at is null
where r.id = $1
order by s.no
