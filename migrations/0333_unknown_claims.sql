-- Returns the jobs that run under tokens which their worker does not know. Both lists may have 100,000 entries:
-- they are joined by hash, never row by row.
create function pipeline.unknown_claims_v1(p_worker bigint, p_known bigint[], p_within_ms bigint)
returns bigint[]
language sql stable as $$
    select coalesce(array_agg(j.id), '{}') from pipeline.jobs j
    where j.status = 'running' and j.worker = p_worker
      and j.claimed_at >= pipeline.now() - p_within_ms * interval '1 ms'
      and not exists (select from unnest(p_known) as known (token) where known.token = j.token)
$$;
