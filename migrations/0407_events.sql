-- What happened, in order: append only. `status` is that of the step, or without one the run's.
create table pipeline.events (
    run     bigint      not null,
    no      integer     not null,
    at      timestamptz not null,
    step    integer,
    attempt smallint,
    status  text        not null,
    primary key (run, no)
);
