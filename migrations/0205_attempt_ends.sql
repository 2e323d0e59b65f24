-- How an attempt ended, as its worker reports it.
create type pipeline.attempt_outcome as enum (
    'succeeded',
    'ended_run',        -- it succeeded and called cx.end_run(): the run ends early
    'retryable',        -- it failed, and another attempt may follow
    'failed',           -- it failed for good
    'discarded',        -- it failed for good, because it asked to be discarded
    'snoozed',          -- it asked to run again later: the attempt does not count
    'handed_back',      -- its worker stops: the attempt does not count
    'unknown_type',     -- its worker does not know the job's type or version: the attempt does not count
    'lease_lost',       -- its worker did not renew the lease in time
    'cancelled'         -- never sent by a worker: the run is being cancelled, so that no attempt follows
);

-- The end of one attempt.
create type pipeline.attempt_end as (
    job           bigint,
    token         bigint,
    outcome       pipeline.attempt_outcome,
    attempt       smallint,
    ran_ms        integer,
    wait_ms       bigint, -- the delay before the next attempt
    output        json,
    error_class   text,
    error_message text,
    end_index     integer -- names this end in the answer; unique in a call
);

-- A job that has failed for good.
create type pipeline.failed_job as (
    end_index     integer, -- of its end
    job_type      text,
    key           text,    -- of the job, or of the run that it is a step of
    error_class   text,
    error_message text,
    run           bigint,  -- the run and the step that it is; null: none
    step          text,
    is_optional   boolean
);
