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
