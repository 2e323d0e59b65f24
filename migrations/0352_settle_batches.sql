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
