create type pipeline.step_status as enum
    ('pending', 'enqueued', 'waiting', 'succeeded', 'failed', 'ended_run', 'cancelled', 'skipped',
     'skipped_by_branch');

-- The reason for a step's status, if another step or the run caused it; `steps.cause` is that step.
create type pipeline.step_reason as enum (
    'first',            -- after_any: the upstream that succeeded first
    'broken',           -- an upstream failed or was skipped
    'not_chosen',       -- a branch around it chose another arm
    'no_failure',       -- it comes after a failure that did not happen
    'none_succeeded',   -- after_any: no upstream did
    'none_taken',       -- after_any: every upstream is skipped_by_branch
    'halted_by',        -- a step failed under Halt
    'ended_by',         -- a step called cx.end_run()
    'cancelled',        -- the run was
    'deadline',         -- the run's has passed
    'run_skipped'       -- the run was
);

create table pipeline.steps (
    run           bigint               not null,
    token         bigint,                        -- the attempt that ended it
    enqueued_at   timestamptz,
    ended_at      timestamptz,
    no            integer              not null,
    open_edges    integer              not null, -- edges whose upstream has not ended
    ran_ms        integer,                       -- how long its last attempt took
    arm           integer,                       -- of a branch: the one it chose
    cause         integer,                       -- a step; see step_reason
    output_bytes  integer,                       -- the size of a large output; null: small
    attempt       smallint             not null default 0,
    is_broken     boolean              not null default false, -- an upstream step broke its edge; see any_edge_effect
    is_not_taken  boolean              not null default false, -- it waits for a failure that did not happen
    status        pipeline.step_status not null,
    reason        pipeline.step_reason,
    params        json,
    output        json,
    error_class   text,
    error_message text,
    primary key (run, no)
) with (fillfactor = 50);
