-- Counts ended jobs in their batches, whose rows the caller has locked, and enqueues the callback of each
-- batch that finishes. Returns the queues of the callbacks.
create function pipeline.settle_batches_v1(p_batches bigint[], p_ended integer[], p_failed integer[])
returns text[]
language plpgsql as $$
begin
    update pipeline.batch_sets b
    set ended = b.ended + e.ended, failed = b.failed + e.failed
    from unnest(p_batches, p_ended, p_failed) as e (id, ended, failed)
    where b.id = e.id;
    return pipeline.finish_batches_v1(p_batches);
end $$;

-- Adds p_count jobs to a batch whose row the caller has locked, and seals the batch with p_seal. Returns the
-- queue of the callback if the batch finishes.
create function pipeline.fill_batch_v1(p_batch bigint, p_count integer, p_seal boolean) returns text[]
language plpgsql as $$
begin
    update pipeline.batch_sets
    set total = total + p_count,
        sealed_at = case when p_seal then coalesce(sealed_at, pipeline.now()) else sealed_at end
    where id = p_batch;
    return pipeline.finish_batches_v1(array[p_batch]);
end $$;

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
        insert into pipeline.jobs (id, status, run_at, created_at, kind, queue, priority, attempts,
                                   lease_ms, args, bytes, options, input)
        select nextval('pipeline.ids'), 'ready', v_now, v_now, callback ->> 'kind',
               callback ->> 'queue', (callback ->> 'priority')::smallint,
               (callback ->> 'attempts')::smallint, (callback ->> 'lease_ms')::integer,
               callback -> 'args', pipeline.large_v1(callback -> 'args'),
               (callback ->> 'options')::jsonb,
               jsonb_build_object('batch', id, 'total', total, 'failed', failed)
        from finished where callback is not null
        returning queue
    )
    select coalesce(array_agg(distinct queue), '{}') into v_queues from callbacks;
    return v_queues;
end $$;
