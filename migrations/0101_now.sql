-- The one clock. Every time the system stores or compares comes from here, never from a process;
-- a test database replaces this function by one that can be moved.
create function pipeline.now() returns timestamptz
language sql stable parallel safe
as $$ select statement_timestamp() $$;

comment on function pipeline.now() is 'the time by which everything in this schema happens';
