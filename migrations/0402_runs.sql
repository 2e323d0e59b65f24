-- Runs and their steps. The row in `steps` is authoritative; the queue row only delivers the job.

create type pipeline.run_status as enum
    ('pending', 'running', 'cancelling', 'succeeded', 'failed', 'halted', 'cancelled', 'skipped');

-- The reason why a run is being stopped; the first reason counts.
create type pipeline.stop_reason as enum ('cancel', 'deadline');

-- Which events of a run are stored; each level includes the one before.
create type pipeline.event_level as enum (
    'none',
    'runs',             -- the start and the end of the run
    'steps',            -- the end of each step
    'all'               -- the start of each step
);

create sequence pipeline.run_ids;

create table pipeline.runs (
    id                      bigint               primary key,
    graph                   bigint               not null,
    created_at              timestamptz          not null,
    started_at              timestamptz, -- of this round
    ended_at                timestamptz,
    deadline_at             timestamptz,
    callbacks_dispatched_at timestamptz, -- of this round
    rerun_of                bigint,
    nonce                   bigint,      -- drawn at random by the start that made it
    live_steps              integer              not null, -- steps that have not ended
    events                  integer              not null default 0, -- the number of the last one
    round                   integer              not null default 1,
    status                  pipeline.run_status  not null,
    event_level             pipeline.event_level not null, -- which events are stored
    halt_triggered          boolean              not null default false, -- a step failed under Halt
    is_failed               boolean              not null default false, -- a step failed that is not optional
    stop_reason             pipeline.stop_reason,
    pipeline                text                 not null,
    actor                   text,
    key                     text,
    params_hash             bytea,       -- of what the key stands for
    params                  json,
    callbacks               json,        -- the params of its callbacks
    tags                    text[]
) with (fillfactor = 40);
-- Lists page by time and id, because ids follow neither time nor commit. A list reads each status separately, so that
-- these two indexes serve every list, also a list of a status that few runs have.
create index runs_by_status on pipeline.runs (status, created_at, id);
create index runs_by_pipeline on pipeline.runs (pipeline, status, created_at, id);
create index runs_by_tag on pipeline.runs using gin (tags) where tags is not null;
create index runs_by_deadline on pipeline.runs (deadline_at)
    where deadline_at is not null and status = 'running';
create unique index runs_by_key on pipeline.runs (pipeline, key)
    where key is not null;
