create function pipeline.count_problems_v1(p_count integer) returns void
language sql
as $$
    update pipeline.reconciler set found = found + p_count, found_at = pipeline.now()
$$;
