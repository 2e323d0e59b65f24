-- All batches, including those of steps.
create view pipeline.batches as
select b.id, b.created_at, b.sealed_at, b.finished_at, b.total, b.ended, b.failed,
       null::bigint as run, null::text as step
from pipeline.batch_sets b
union all
select pipeline.step_id(s.run, s.no), s.enqueued_at, s.enqueued_at, s.ended_at, 1,
       (s.ended_at is not null)::integer, (s.status = 'failed')::integer, s.run, n.key
from pipeline.steps s
join pipeline.runs r on r.id = s.run
join pipeline.nodes n on n.graph = r.graph and n.no = s.no
where s.enqueued_at is not null;

-- A readable view of steps.
create view pipeline.run_steps as
select s.run, r.pipeline, s.no, n.key as step, n.kind::text as kind, n.job_type, n.queue, s.status::text,
       s.attempt, n.max_attempts, s.reason::text, cause.key as cause, s.error_class, s.error_message,
       s.enqueued_at, s.ended_at, s.ran_ms, n.arms[s.arm + 1] as arm,
       pipeline.step_id(s.run, s.no) as batch
from pipeline.steps s
join pipeline.runs r on r.id = s.run
join pipeline.nodes n on n.graph = r.graph and n.no = s.no
left join pipeline.nodes cause on cause.graph = r.graph and cause.no = s.cause;

-- A readable view of jobs. The params of a step are stored in its step, which is its own batch.
create view pipeline.all_jobs as
select j.id, j.job_type, j.queue, j.status, j.priority, j.attempt, j.max_attempts,
       case when s.run is null then j.batch else j.id end as batch,
       case when s.run is null then j.args::json else coalesce(s.params, 'null') end as args,
       j.error_class, j.error_message, j.created_at, j.run_at, j.ended_at, j.worker
from pipeline.jobs j
left join pipeline.steps s
       on j.id % 2 = 0 and s.run = pipeline.run_of(j.id) and s.no = pipeline.no_of(j.id);
