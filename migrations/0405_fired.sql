-- Callbacks that were enqueued: once in a round.
create table pipeline.fired (
    run   bigint  not null,
    round integer not null,
    pos   integer not null,
    job   bigint  not null,
    primary key (run, round, pos)
);
