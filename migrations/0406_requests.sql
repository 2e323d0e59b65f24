-- Changes to runs that are executed later, because the run could not be locked when they were requested. A worker, or
-- the client that inserted the request, executes each of them in a transaction of its own.
--   cancel    cancel the run
--   chain     begin the run, or skip it, if the runs before it have ended
--   deadline  drain the run, because its deadline has passed
--   withdraw  delete the queue rows of a cancelling run that were held when it was cancelled
create table pipeline.requests (
    id         bigint      primary key,
    run        bigint      not null,
    created_at timestamptz not null,
    -- The time of the next try. It is postponed when the run is held or the database refuses, so that the other
    -- requests come first.
    next_at    timestamptz not null default '-infinity',
    -- Until this time, advances do not lock the run, so that the request can.
    turn_until timestamptz not null default '-infinity',
    -- The round of the run in which the request was made: a cancel or a deadline of an earlier round is dropped.
    round      integer,
    kind       text        not null check (kind in ('cancel', 'chain', 'deadline', 'withdraw'))
);
create index requests_of on pipeline.requests (run);
create index requests_due on pipeline.requests (next_at, id) where kind <> 'deadline';
-- A separate index for deadlines: other requests cannot delay them.
create index requests_of_deadlines on pipeline.requests (next_at, id) where kind = 'deadline';
create unique index requests_one_deadline on pipeline.requests (run) where kind = 'deadline';
