-- Notifies workers that rows of these queues with a `run_at` of p_since or later became ready. The time is
-- rounded down to 100 ms, so that Postgres merges equal notifications of one transaction. (Not in language sql:
-- such a function is planned anew in every statement that calls it.)
create function pipeline.notify_queues_v1(p_queues text[], p_since timestamptz) returns void
language plpgsql as $$
begin
    perform pg_notify('pipeline_jobs',
                      queue || ' ' || (floor(extract(epoch from p_since) * 10) * 100)::bigint)
    from (select distinct unnest(p_queues) as queue) as told;
end $$;
