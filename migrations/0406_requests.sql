-- Changes to a run that were asked for without its lock: a worker, or the client that asked, takes each of
-- them up in a transaction of its own.
--   cancel    cancel the run
--   chain     begin the run, or skip it, if the runs before it have ended
--   deadline  drain the run, because its deadline has passed
--   withdraw  delete the queue rows of a cancelling run that were held when it was cancelled
create table pipeline.requests (
    id         bigint      primary key,
    run        bigint      not null,
    created_at timestamptz not null,
    -- When a worker may try it. It moves away each time the run is held or the database refuses, so that a
    -- request that cannot be done now stands behind the others.
    next_at    timestamptz not null default '-infinity',
    -- Until then every advance leaves the run alone, so that the request can lock it.
    turn_until timestamptz not null default '-infinity',
    -- The round of the run in which the request was made: a cancel or a deadline of an earlier round is dropped.
    round      integer,
    kind       text        not null check (kind in ('cancel', 'chain', 'deadline', 'withdraw'))
);
create index requests_of on pipeline.requests (run);
create index requests_due on pipeline.requests (next_at, id) where kind <> 'deadline';
-- Deadlines have a list of their own: they are never behind any number of other requests.
create index requests_of_deadlines on pipeline.requests (next_at, id) where kind = 'deadline';
create unique index requests_one_deadline on pipeline.requests (run) where kind = 'deadline';
