-- Returns the stored size of args if they are large, without decompressing them. Claims are bounded by the
-- sum of these sizes.
create function pipeline.large_size_v1(p_args json) returns integer
language sql stable as $$
    select case when pg_column_size(p_args) > 8192 then pg_column_size(p_args) end
$$;
