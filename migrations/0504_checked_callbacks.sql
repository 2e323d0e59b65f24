-- Returns the params of callbacks unchanged, or raises an error. When the run ends, enqueue_callbacks_v1 reads single elements
-- of this array, which fails for some valid json values. Clients check the callbacks; this check refuses a run
-- that could never end.
create function pipeline.checked_callbacks(p_callbacks json) returns json
language sql immutable as $$
    select case when p_callbacks is null or jsonb_typeof(p_callbacks::jsonb) is not null then p_callbacks end
$$;
