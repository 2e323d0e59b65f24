-- The queue. A row is one job. Rows are narrow, because Postgres writes each byte several times, and are
-- deleted when the job has succeeded, unless the worker is configured to keep succeeded jobs.

create type pipeline.job_status as enum
    ('scheduled', 'ready', 'running', 'succeeded', 'failed', 'discarded');

-- Ids of jobs: odd numbers. Steps of runs have even ids, computed from the run's id and the step's number:
-- see step_id.
create sequence pipeline.ids increment by 2;

create table pipeline.jobs (
    id            bigint              primary key,
    token         bigint,                       -- of the running attempt, random; null: none runs
    run_at        timestamptz         not null, -- the job must not run before this time
    created_at    timestamptz         not null,
    claimed_at    timestamptz,                  -- when the running or last attempt was claimed
    lease_until   timestamptz,                  -- the end of the lease, while an attempt runs
    ended_at      timestamptz,
    unknown_since timestamptz,                  -- since when no worker that claimed it knew its type
    batch         bigint,
    worker        bigint,                       -- the worker of the running or last attempt
    lease_ms      integer             not null,
    bytes         integer,                      -- the size of large args as text; null: small
    status        pipeline.job_status not null,
    attempt       smallint            not null default 0, -- the number of attempts that have begun
    max_attempts  smallint            not null, -- the maximum number of attempts
    priority      smallint            not null,
    queue         text collate "C"    not null, -- "C": names with a common prefix are adjacent
    job_type      text                not null, -- the job type's name
    args          json                not null, -- unchanged: jsonb would write numbers out in full
    input         jsonb,                        -- input besides args
    options       jsonb,                        -- options set at enqueue: backoff, timeout
    key           text,
    error_class   text,
    error_message text
);
-- Rows that left one of these three indexes keep their entries there while an open transaction may
-- still see them. Every look therefore begins at a position in the index's order, beyond entries that
-- are known to be dead: docs/decisions/0011-low-water-marks.md. The rank is the priority negated, so
-- that all columns ascend and one row comparison can begin and end a scan.
create index jobs_ready on pipeline.jobs (queue, (- priority::integer), run_at, id)
    where status = 'ready';
create index jobs_scheduled on pipeline.jobs (run_at) where status = 'scheduled';
-- Indexed by claimed_at, which a renewal does not change: renewing a lease updates no index.
create index jobs_running on pipeline.jobs (claimed_at) where status = 'running';
create index jobs_ended on pipeline.jobs (ended_at, id) where ended_at is not null;
create unique index jobs_by_key on pipeline.jobs (job_type, key)
    where key is not null and status in ('scheduled', 'ready', 'running');

-- Attempts that did not succeed, with the reason.
create table pipeline.attempts (
    job           bigint      not null,
    token         bigint      not null,
    attempt       smallint    not null,
    worker        bigint,
    outcome       text        not null,
    error_class   text,
    error_message text,
    ended_at      timestamptz not null,
    primary key (job, token)
);
