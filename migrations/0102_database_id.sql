-- Returns the identity of the database: its name, and the start of its server. Two databases never have the
-- same identity; one database has another identity after a restart.
create function pipeline.database_id_v1() returns text
language sql stable as $$
    select current_database() || ' ' || extract(epoch from pg_postmaster_start_time())
$$;
