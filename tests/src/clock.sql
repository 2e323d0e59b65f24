-- Time in a test database: the server's, and as far ahead as the test has moved it.
create schema pipeline_test;
create table pipeline_test.clock (ahead interval not null);
insert into pipeline_test.clock values ('0');

create or replace function pipeline.now() returns timestamptz
language sql stable parallel safe
as $$ select statement_timestamp() + (select ahead from pipeline_test.clock) $$;
