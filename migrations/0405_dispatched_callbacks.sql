-- Callbacks that were enqueued: once in a round.
create table pipeline.dispatched_callbacks (
    run      bigint  not null,
    round    integer not null,
    position integer not null,
    job      bigint  not null,
    primary key (run, round, position)
);
