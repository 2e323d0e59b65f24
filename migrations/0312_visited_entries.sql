-- Returns how many entries of the index jobs_ready this transaction has visited, including dead ones.
create function pipeline.visited_entries_v1() returns bigint
language sql stable as $$
    select pg_stat_get_xact_tuples_returned('pipeline.jobs_ready'::regclass)
$$;
