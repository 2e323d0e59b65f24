-- A step is a job, and the only one of its batch: the three have one id, an even number.
create function pipeline.step_id(p_run bigint, p_no integer) returns bigint
language sql immutable parallel safe
as $$ select (p_run << 18) + 2 * p_no $$;

create function pipeline.run_of(p_id bigint) returns bigint
language sql immutable parallel safe
as $$ select p_id >> 18 $$;

create function pipeline.no_of(p_id bigint) returns integer
language sql immutable parallel safe
as $$ select ((p_id & 262143) >> 1)::integer $$;
