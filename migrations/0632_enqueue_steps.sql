-- Enqueues steps. A step for which the worker offers a slot is handed over: it starts there at once, as if
-- claimed. A queue belongs only to the worker's most specific matching pattern: its exact name, else the longest
-- prefix. p_offers includes patterns without a free slot, so that their queues do not use the slots of a less
-- specific pattern.
create function pipeline.enqueue_steps_v1(
    p_released pipeline.released_step[], p_worker bigint, p_offers pipeline.slot_offer[], p_job_types text[],
    out queues text[], out started pipeline.started_step[]
)
language plpgsql as $$
declare
    v_now timestamptz := pipeline.now();
begin
    with placed as materialized (
        select p.*, pipeline.step_id(p.run, p.no) as id,
               -- Random, so that no token is used twice, even after a crash.
               case when p.line <= p.free then (random() * 9e18)::bigint end as token
        from (
            select e.*, offer.free,
                   row_number() over (partition by offer.pattern order by e.priority desc, e.run, e.no) as line
            from unnest(p_released) as e
            left join lateral (
                select o.pattern, o.free, o.min_priority from unnest(p_offers) as o
                where e.queue = o.pattern
                   or right(o.pattern, 1) = '*' and starts_with(e.queue, left(o.pattern, -1))
                order by e.queue = o.pattern desc, length(o.pattern) desc
                limit 1
            ) as offer on e.delay_ms = 0 and e.priority >= offer.min_priority and e.job_type = any (p_job_types)
                      and not exists (select from pipeline.queues q
                                      where q.name = e.queue and q.paused_at is not null)
        ) as p
    ), enqueued as (
        insert into pipeline.jobs (id, status, token, attempt, worker, claimed_at, lease_until, run_at,
                                   created_at, job_type, queue, priority, max_attempts, lease_ms, args)
        select p.id,
               case when p.token is not null then 'running'::pipeline.job_status
                    when p.delay_ms > 0 then 'scheduled' else 'ready' end,
               p.token, (p.token is not null)::integer, case when p.token is not null then p_worker end,
               case when p.token is not null then v_now end,
               case when p.token is not null then v_now + p.lease_ms * interval '1 ms' end,
               v_now + p.delay_ms * interval '1 ms', v_now, p.job_type, p.queue, p.priority, p.max_attempts, p.lease_ms,
               'null'
        from placed p
    )
    select array_agg(distinct p.queue) filter (where p.token is null),
           array_agg(row(
               p.id, p.token, p.job_type, p.queue, p.priority, p.max_attempts, p.lease_ms, p.end_index,
               p.params::text, p.options::text, p.shape::text, array[p.takes::text], null, null, null, null,
               false, p.key, null, null
           )::pipeline.started_step) filter (where p.token is not null)
    into queues, started from placed p;
end $$;
