-- Rule 16: enqueues the callbacks of runs that have ended, once in each round. Returns the queues of the
-- callbacks.
create function pipeline.enqueue_callbacks_v1(p_runs bigint[]) returns text[]
language plpgsql as $$
declare
    v_now timestamptz := pipeline.now();
    v_queues text[];
begin
    with ended as (
        update pipeline.runs r set callbacks_dispatched_at = v_now
        where r.id = any (p_runs) and r.callbacks is not null and r.callbacks_dispatched_at is null
        returning r.*
    ), due as (
        select nextval('pipeline.ids') as id, r.id as run, r.round, c.position, c.job_type, c.queue, c.priority,
               c.max_attempts, c.lease_ms, c.options, r.callbacks -> c.position as args,
               jsonb_build_object(
                   'run', r.id, 'pipeline', r.pipeline, 'status', r.status, 'round', r.round,
                   'deadline_exceeded', r.stop_reason is not distinct from 'deadline',
                   'failed', pipeline.steps_with_errors_v1(r.id, r.graph, 'failed'),
                   'cancelled', pipeline.steps_with_errors_v1(r.id, r.graph, 'cancelled')
               ) as input
        from ended r
        join pipeline.callbacks c on c.graph = r.graph
        where c.fires = 'complete' or c.fires = 'success' and r.status = 'succeeded'
           or c.fires = 'failure' and r.status in ('failed', 'halted')
    ), dispatched_callbacks as (
        insert into pipeline.dispatched_callbacks (run, round, position, job)
        select due.run, due.round, due.position, due.id from due
    ), put as (
        insert into pipeline.jobs (id, status, run_at, created_at, job_type, queue, priority, max_attempts,
                                   lease_ms, args, bytes, input, options)
        select due.id, 'ready', v_now, v_now, due.job_type, due.queue, due.priority, due.max_attempts,
               due.lease_ms, due.args, pipeline.large_size_v1(due.args), due.input, due.options
        from due
        returning queue
    )
    select array_agg(distinct put.queue) into v_queues from put;
    return v_queues;
end $$;
