set transaction isolation level read committed;
set local search_path to pg_catalog;
-- Waiting for another process's migration must not fail because of the application's timeouts.
set local statement_timeout to 0;
set local lock_timeout to 0;
