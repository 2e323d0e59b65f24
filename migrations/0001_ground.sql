-- The one clock. Every time the system stores or compares comes from here, never from a process;
-- a test database replaces this function by one that can be moved.
create function pipeline.now() returns timestamptz
language sql stable parallel safe
as $$ select statement_timestamp() $$;

comment on function pipeline.now() is 'the time by which everything in this schema happens';

-- Returns the identity of the database: its name, and the start of its server. Two databases never have the
-- same identity; one database has another identity after a restart.
create function pipeline.database_v1() returns text
language sql stable as $$
    select current_database() || ' ' || extract(epoch from pg_postmaster_start_time())
$$;
