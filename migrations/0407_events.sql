-- Events of runs, append-only. `status` is the status of the step, or, without a step, of the run.
create table pipeline.events (
    run     bigint      not null,
    no      integer     not null,
    at      timestamptz not null,
    step    integer,
    attempt smallint,
    status  text        not null,
    primary key (run, no)
);
