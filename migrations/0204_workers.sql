create table pipeline.workers (
    id          bigint      primary key,
    name        text        not null,
    host        text        not null,
    pid         integer     not null,
    queues      jsonb       not null, -- the pattern and slots of each queue
    job_types   text[]      not null, -- the job types that it knows
    versions    integer[]   not null, -- the version of each job type
    takes_steps boolean     not null, -- false: only jobs that are no steps of runs
    started_at  timestamptz not null,
    seen_at     timestamptz not null,
    stopped_at  timestamptz
);
