-- The queue. A row is a delivery: narrow, because every byte of it is written several times; gone
-- when it has succeeded, unless the worker was told to keep it.

create type pipeline.job_status as enum
    ('later', 'ready', 'running', 'succeeded', 'failed', 'discarded');

-- Odd numbers. The even ones are the steps of runs: each has the id that its run and its place there
-- give it, see step_id.
create sequence pipeline.ids increment by 2;

create table pipeline.jobs (
    id            bigint              primary key,
    token         bigint,                          -- the attempt that runs, if one does; random
    run_at        timestamptz         not null,    -- not before
    created_at    timestamptz         not null,
    claimed_at    timestamptz,                     -- when the attempt that runs, or ran last, was claimed
    lease_until   timestamptz,                     -- while it runs
    ended_at      timestamptz,
    unknown_since timestamptz,                     -- since when nobody who took it has known its type
    batch         bigint,
    worker        bigint,                          -- who has it, or had it last
    lease_ms      integer             not null,
    bytes         integer,                         -- the size of large args as text; null: small
    status        pipeline.job_status not null,
    attempt       smallint            not null default 0, -- how many have begun
    attempts      smallint            not null,           -- how many may
    priority      smallint            not null,
    queue         text collate "C"    not null,    -- names that begin alike must lie side by side
    kind          text                not null,    -- the job type's name
    args          json                not null,    -- as it was given: jsonb writes numbers out in full
    input         jsonb,                           -- what it is given besides
    options       jsonb,                           -- what one enqueueing changed: backoff, timeout
    unique_key    text,
    error_class   text,
    error_message text,
    constraint running_has_token check ((status = 'running') = (token is not null)),
    constraint running_has_lease check
        (status <> 'running' or lease_until is not null and claimed_at is not null),
    constraint ended_has_time check
        ((status in ('succeeded', 'failed', 'discarded')) = (ended_at is not null)),
    -- What no claim could take would stop the queue behind it.
    constraint waiting_has_attempts check
        (status not in ('later', 'ready') or (0 <= attempt and attempt < attempts)),
    constraint run_at_is_a_time check (isfinite(run_at) and run_at < '262143-01-01 00:00:00+00')
);

-- Rows that left one of these three indexes keep their entries there while an open transaction may
-- still see them. Every look therefore begins at a position in the index's order, beyond entries that
-- are known to be dead: docs/decisions/0011-low-water-marks.md. The rank is the priority negated, so
-- that all columns ascend and one row comparison can begin and end a scan.
create index jobs_ready on pipeline.jobs (queue, (- priority::integer), run_at, id)
    where status = 'ready';
create index jobs_later on pipeline.jobs (run_at) where status = 'later';
-- By a time that a renewal does not change: renewing a lease touches no index.
create index jobs_running on pipeline.jobs (claimed_at) where status = 'running';
create index jobs_ended on pipeline.jobs (ended_at, id) where ended_at is not null;
create unique index jobs_unique on pipeline.jobs (kind, unique_key)
    where unique_key is not null and status in ('later', 'ready', 'running');

-- The size of args in memory if they are large: claims are bounded by it. Read without unpacking them.
create function pipeline.large_v1(p_args json) returns integer
language sql stable as $$
    select case when pg_column_size(p_args) > 8192 then pg_column_size(p_args) end
$$;

-- Attempts that did not succeed, and why.
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

-- Jobs that finish as one.
create table pipeline.batch_sets (
    id            bigint      primary key,
    created_at    timestamptz not null,
    sealed_at     timestamptz,
    finished_at   timestamptz,
    total         integer     not null default 0,
    ended         integer     not null default 0,
    failed        integer     not null default 0,
    callback      json,                            -- the job that is enqueued when it finishes
    constraint counts_add_up check (0 <= failed and failed <= ended and ended <= total),
    constraint finishes_sealed check (finished_at is null or (sealed_at is not null and ended = total))
);

-- Only queues that somebody has said something about.
create table pipeline.queues (
    name      text        primary key,
    paused_at timestamptz
);

create table pipeline.workers (
    id         bigint      primary key,
    name       text        not null,
    host       text        not null,
    pid        integer     not null,
    queues     jsonb       not null,               -- pattern and slots of each
    kinds      text[]      not null,               -- the job types it knows
    versions   integer[]   not null,               -- and which version of each
    takes_steps boolean    not null,               -- or only jobs that are no steps of runs
    started_at timestamptz not null,
    seen_at    timestamptz not null,
    stopped_at timestamptz
);

-- Tells workers that rows of these queues became ready whose `run_at` is p_since or later. The time is
-- rounded down to 100 ms: many calls of one transaction are then a few notifications.
create function pipeline.announce_v1(p_queues text[], p_since timestamptz) returns void
language sql as $$
    select pg_notify('pipeline_jobs',
                     queue || ' ' || (floor(extract(epoch from p_since) * 10) * 100)::bigint)
    from (select distinct unnest(p_queues) as queue) as told
$$;
