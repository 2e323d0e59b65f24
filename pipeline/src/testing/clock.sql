-- Replaces the clock: the server's time, or the time at which the clock was stopped, plus the time by which the test
-- has moved it.
select pg_advisory_xact_lock(hashtextextended('pipeline_test', 0));
create schema if not exists pipeline_test;
create table if not exists pipeline_test.clock (
    ahead    interval not null,
    stopped  timestamptz,
    original text     not null                     -- the definition of the replaced function
);
insert into pipeline_test.clock (ahead, original)
select '0', pg_get_functiondef('pipeline.now()'::regprocedure)
where not exists (select from pipeline_test.clock);

create or replace function pipeline.now() returns timestamptz
language sql stable parallel safe
as $$ select coalesce(stopped, statement_timestamp()) + ahead from pipeline_test.clock $$;
