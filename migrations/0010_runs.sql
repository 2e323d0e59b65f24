-- Runs and their steps. A step's row is the truth about it; its row in the queue is a delivery.

create type pipeline.run_status as enum
    ('pending', 'running', 'cancelling', 'succeeded', 'failed', 'halted', 'cancelled', 'skipped');
create type pipeline.step_status as enum
    ('pending', 'enqueued', 'waiting', 'succeeded', 'failed', 'halted', 'cancelled', 'skipped',
     'skipped_by_branch');
-- Why a step ended, or began, that did not by itself; `steps.cause` is the step it is about.
create type pipeline.step_reason as enum (
    'first',            -- after_any: the upstream that succeeded first
    'broken',           -- an upstream failed or was skipped
    'not_chosen',       -- a branch around it chose another arm
    'no_failure',       -- it comes after a failure that did not happen
    'none_succeeded',   -- after_any: no upstream did
    'halted_by',        -- a step failed under Halt
    'ended_by',         -- a step called cx.halt()
    'cancelled',        -- the run was
    'deadline',         -- the run's has passed
    'run_skipped'       -- the run was
);

-- Why a run is being drained: the first reason counts.
create type pipeline.drain as enum ('cancel', 'deadline');

create sequence pipeline.run_ids;

create table pipeline.runs (
    id              bigint              primary key,
    graph           bigint              not null,
    created_at      timestamptz         not null,
    started_at      timestamptz,                   -- of this round
    ended_at        timestamptz,
    deadline_at     timestamptz,
    callbacks_dispatched_at timestamptz,           -- of this round
    rerun_of        bigint,
    nonce           bigint,                        -- drawn at random by the start that made it
    live            integer             not null,  -- steps that have not ended
    events          integer             not null default 0, -- the number of the last one
    round           integer             not null default 1,
    status          pipeline.run_status not null,
    history         smallint            not null,  -- what is kept as events: 0 none, 1 runs, 2 steps, 3 all
    halt            boolean             not null default false, -- a step failed under Halt
    is_failed       boolean             not null default false, -- a step failed that is not optional
    drain           pipeline.drain,
    pipeline        text                not null,
    actor           text,
    idempotency_key text,
    params_hash     bytea,                         -- of what the key stands for
    chained         bigint[],                      -- runs that the key stands for besides, in their order
    params          json,
    callbacks       json,                          -- the params of its callbacks
    tags            text[]
) with (fillfactor = 40);
-- Lists page by time and id; ids alone follow neither time nor commit. They go through each status by
-- itself, so that these two serve every list, also one of few runs in a status among many others.
create index runs_by_status on pipeline.runs (status, created_at, id);
create index runs_by_pipeline on pipeline.runs (pipeline, status, created_at, id);
create index runs_by_tag on pipeline.runs using gin (tags) where tags is not null;
create index runs_by_deadline on pipeline.runs (deadline_at)
    where deadline_at is not null and status = 'running';
create unique index runs_by_key on pipeline.runs (pipeline, idempotency_key)
    where idempotency_key is not null;

create table pipeline.steps (
    run           bigint               not null,
    token         bigint,                          -- the attempt that ended it
    enqueued_at   timestamptz,
    ended_at      timestamptz,
    no            integer              not null,
    waits         integer              not null,   -- edges whose upstream has not ended
    ran_ms        integer,                         -- how long its last attempt took
    arm           integer,                         -- of a branch: the one it chose
    cause         integer,                         -- a step; see step_reason
    output_bytes  integer,                         -- the size of a large output; null: small
    attempt       smallint             not null default 0,
    is_broken     boolean              not null default false, -- an upstream step broke its edge
    is_not_taken  boolean              not null default false, -- it waits for a failure that did not happen
    status        pipeline.step_status not null,
    reason        pipeline.step_reason,
    params        json,
    output        json,
    error_class   text,
    error_message text,
    primary key (run, no)
) with (fillfactor = 60);

-- "After" between two runs.
create table pipeline.chains (
    up   bigint not null,
    down bigint not null,
    primary key (up, down)
);
create index chains_of on pipeline.chains (down, up);

-- Callbacks that were enqueued: once in a round.
create table pipeline.fired (
    run   bigint  not null,
    round integer not null,
    pos   integer not null,
    job   bigint  not null,
    primary key (run, round, pos)
);

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
    kind       text        not null check (kind in ('cancel', 'chain', 'deadline', 'withdraw'))
);
create index requests_of on pipeline.requests (run);
create index requests_due on pipeline.requests (next_at, id) where kind <> 'deadline';
-- Deadlines have a list of their own: they are never behind any number of other requests.
create index requests_of_deadlines on pipeline.requests (next_at, id) where kind = 'deadline';
create unique index requests_one_deadline on pipeline.requests (run) where kind = 'deadline';

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

-- A step is a job, and the only one of its batch: the three have one id, an even number.
create function pipeline.step_id(p_run bigint, p_no integer) returns bigint
language sql immutable parallel safe
as $$ select (p_run << 18) + 2 * p_no $$;
create function pipeline.run_of(p_id bigint) returns bigint
language sql immutable parallel safe
as $$ select p_id >> 18 $$;
create function pipeline.no_of(p_id bigint) returns integer
language sql immutable parallel safe
as $$ select ((p_id & 262143) >> 1)::integer $$;

-- Every batch there is: those that were made as such, and those of the steps.
create view pipeline.batches as
select b.id, b.created_at, b.sealed_at, b.finished_at, b.total, b.ended, b.failed,
       null::bigint as run, null::text as step
from pipeline.batch_sets b
union all
select pipeline.step_id(s.run, s.no), s.enqueued_at, s.enqueued_at, s.ended_at, 1,
       (s.ended_at is not null)::integer, (s.status = 'failed')::integer, s.run, n.key
from pipeline.steps s
join pipeline.runs r on r.id = s.run
join pipeline.nodes n on n.graph = r.graph and n.no = s.no
where s.enqueued_at is not null;

-- Steps as people read them.
create view pipeline.run_steps as
select s.run, r.pipeline, s.no, n.key as step, n.kind::text as kind, n.job, n.queue, s.status::text,
       s.attempt, n.attempts, s.reason::text, cause.key as cause, s.error_class, s.error_message,
       s.enqueued_at, s.ended_at, s.ran_ms, n.arms[s.arm + 1] as arm,
       pipeline.step_id(s.run, s.no) as batch
from pipeline.steps s
join pipeline.runs r on r.id = s.run
join pipeline.nodes n on n.graph = r.graph and n.no = s.no
left join pipeline.nodes cause on cause.graph = r.graph and cause.no = s.cause;

-- Jobs as people read them: the params of a step lie with it, and its batch is its own.
create view pipeline.all_jobs as
select j.id, j.kind, j.queue, j.status, j.priority, j.attempt, j.attempts,
       case when s.run is null then j.batch else j.id end as batch,
       case when s.run is null then j.args::json else coalesce(s.params, 'null') end as args,
       j.error_class, j.error_message, j.created_at, j.run_at, j.ended_at, j.worker
from pipeline.jobs j
left join pipeline.steps s
       on j.id % 2 = 0 and s.run = pipeline.run_of(j.id) and s.no = pipeline.no_of(j.id);
