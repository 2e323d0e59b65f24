create function pipeline.finish_batches_v1(p_batches bigint[]) returns text[]
language plpgsql as $$
declare
    v_now timestamptz := pipeline.now();
    v_queues text[];
begin
    with finished as (
        update pipeline.batch_sets b set finished_at = v_now
        where b.id = any (p_batches) and b.finished_at is null and b.sealed_at is not null
          and b.ended = b.total
        returning b.*
    ), callbacks as (
        insert into pipeline.jobs (id, status, run_at, created_at, job_type, queue, priority, max_attempts,
                                   lease_ms, args, bytes, options, input)
        select nextval('pipeline.ids'), 'ready', v_now, v_now, callback ->> 'job_type',
               callback ->> 'queue', (callback ->> 'priority')::smallint,
               (callback ->> 'max_attempts')::smallint, (callback ->> 'lease_ms')::integer,
               callback -> 'args', pipeline.large_size_v1(callback -> 'args'),
               (callback ->> 'options')::jsonb,
               jsonb_build_object('batch', id, 'total', total, 'failed', failed)
        from finished where callback is not null
        returning queue
    )
    select coalesce(array_agg(distinct queue), '{}') into v_queues from callbacks;
    return v_queues;
end $$;
