-- Deletes batches that finished longer ago than this, and of whose jobs none is left.
create function pipeline.prune_batches_v1(p_age_ms bigint) returns void
language sql as $$
    delete from pipeline.batch_sets b
    where b.finished_at < pipeline.now() - p_age_ms * interval '1 ms'
      and not exists (select from pipeline.jobs j where j.batch = b.id)
$$;
