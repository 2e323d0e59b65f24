set transaction isolation level read committed;
set local search_path to pg_catalog;
-- Whoever waits for another process's migration must not be cut short by the application's limits.
set local statement_timeout to 0;
set local lock_timeout to 0;
