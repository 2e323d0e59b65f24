-- Returns how many entries of the index jobs_ready this transaction has visited, including dead ones. Volatile, as the
-- function that it calls: a stable one would not be inlined, and be parsed again in each claim.
create function pipeline.visited_entries_v1() returns bigint
language sql volatile as $$
    select pg_stat_get_xact_tuples_returned('pipeline.jobs_ready'::regclass)
$$;
