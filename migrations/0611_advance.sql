-- A step that has ended in this transaction.
create type pipeline.ended_step as (
    run        bigint,
    no         integer,  -- null: no step has ended, and the run is only checked
    graph      bigint,
    status     pipeline.step_status,
    is_ignored boolean,  -- it failed with strategy Ignore
    is_halting boolean,  -- it failed with strategy Halt
    fails_run  boolean,  -- it failed and is not optional
    attempt    smallint, -- the attempt that ended it; null: no attempt did
    end_index  integer,  -- of that attempt's end
    skips_arms boolean,  -- a branch: its arms are skipped, except `kept_arm`
    kept_arm   integer,  -- null: every arm is skipped
    out_edges  pipeline.out_edge[]
);

-- A step that can start, with what its queue row and its worker need.
create type pipeline.released_step as (
    run          bigint,
    no           integer,
    end_index    integer,        -- the end whose output is its only input; null: not known
    takes        pipeline.takes, -- what it takes of that output
    params       json,
    job_type     text,
    queue        text,
    priority     smallint,
    max_attempts smallint,
    lease_ms     integer,
    delay_ms     bigint,
    key          text,
    options      jsonb,
    shape        json
);

-- The free slots of a worker for one of its queue patterns.
create type pipeline.slot_offer as (
    pattern      text,    -- the name of a queue, or a prefix followed by `*`
    free         integer,
    min_priority smallint -- steps of a lower priority have to queue
);

-- A step that starts at once in the worker that offered a slot, with its input: see load_inputs_v1.
create type pipeline.started_step as (
    id           bigint,
    token        bigint,
    job_type     text,
    queue        text,
    priority     smallint,
    max_attempts smallint,
    lease_ms     integer,
    end_index    integer, -- the input is the output of this end; `outputs` is null
    params       text,
    options      text,
    shape        text,
    takes        text[],
    outputs      text[],
    failed       text[],
    classes      text[],
    messages     text[],
    is_cancelled boolean,
    key          text,
    round        integer,
    size         bigint
);

-- A run that has ended in this transaction.
create type pipeline.ended_run as (
    id     bigint,
    status text,
    graph  bigint
);

-- Ends attempts of steps and advances their runs: the whole transaction of a worker in one call.
--
-- No statement waits for a lock. Runs, queue rows and chained runs are locked with SKIP LOCKED; every other row that
-- is written belongs to a run that this transaction has locked. If a chained run is held, PB001 is raised: see
-- settle_chains_v1. The runs are locked by the first statement, and each later statement of a volatile function has
-- its own snapshot, so that it reads what the last holder of a run has committed.
--
--   p_runs: the runs of p_ends, each once
--   p_offers, p_job_types: the free slots of the worker, and the job types that it knows
--   p_input_limit, p_input_total: see load_inputs_v1
--   p_asynchronous_commit: if no run ends, commit without waiting until the WAL is on disk
--   stale, held, failed: see end_jobs_v1
--   held_runs: runs that another transaction holds, or whose request has its turn: their ends changed no row
--   queues: the queues that received jobs
--   started: the steps that this worker starts now
--   ended_runs: the runs that have ended
create function pipeline.advance_v1(
    p_runs bigint[], p_ends pipeline.attempt_end[], p_worker bigint, p_offers pipeline.slot_offer[],
    p_job_types text[], p_unknown_ms bigint, p_input_limit bigint, p_input_total bigint,
    p_asynchronous_commit boolean,
    out stale integer[], out held integer[], out held_runs bigint[], out failed pipeline.failed_job[],
    out queues text[], out started pipeline.started_step[], out ended_runs pipeline.ended_run[]
)
language plpgsql as $$
declare
    v_now timestamptz := pipeline.now();
    v_count bigint;
    v_ends pipeline.attempt_end[] := p_ends;
    v_deleted bigint[];         -- the tokens of attempts that succeeded
    v_others record;
    v_moved record;
    v_needs_input boolean;      -- whether a step starts whose input is not the output of one of these ends
begin
    perform from pipeline.runs r
    where r.id = any (p_runs)
      -- Read before the lock: a run whose request has its turn must not be locked, not even briefly.
      and not exists (select from pipeline.requests q where q.run = r.id and pipeline.has_turn(q.turn_until, v_now))
    order by r.id for no key update of r skip locked;
    get diagnostics v_count = row_count;
    if v_count < cardinality(p_runs) then
        held_runs := pipeline.held_runs_v1(p_runs);
        v_ends := array(select e from unnest(p_ends) as e where pipeline.run_of(e.job) <> all (held_runs));
        if cardinality(v_ends) = 0 then
            return;
        end if;
    end if;

    with locked as materialized (
        select j.row from unnest(v_ends) as e
        cross join lateral (
            select j.ctid as row from pipeline.jobs j where j.id = e.job and j.token = e.token
            for update skip locked
        ) as j
        where e.outcome in ('succeeded', 'ended_run')
    ), deleted as (
        delete from pipeline.jobs j using locked where j.ctid = locked.row
        returning j.token
    )
    select array_agg(d.token) into v_deleted from deleted d;
    if v_deleted is null or cardinality(v_deleted) < cardinality(v_ends) then
        v_others := pipeline.end_other_steps_v1(v_ends, v_deleted, p_unknown_ms);
        stale := v_others.stale;
        held := v_others.held;
        failed := v_others.failed;
        v_ends := v_others.ends;
        if cardinality(v_ends) = 0 then
            return;
        end if;
    end if;

    v_moved := pipeline.advance_runs_v1(v_ends, p_worker, p_offers, p_job_types);
    queues := v_moved.queues;
    started := v_moved.started;
    ended_runs := v_moved.ended_runs;
    if cardinality(started) = 1 then
        v_needs_input := (started[1]).end_index is null;
    else
        v_needs_input := exists (select from unnest(started) as s where s.end_index is null);
    end if;
    if v_needs_input then
        v_others := pipeline.load_started_inputs_v1(started, p_input_limit, p_input_total);
        started := v_others.started;
        queues := queues || v_others.queues;
    end if;
    if p_asynchronous_commit and ended_runs is null then
        perform set_config('synchronous_commit', 'off', true);
    end if;
end $$;
