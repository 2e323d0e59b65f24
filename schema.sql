-- The schema as it is now. Made from migrations/ by bin/schema; not applied by anything.

CREATE SCHEMA pipeline;

CREATE TYPE pipeline.attempt_outcome AS ENUM (
    'succeeded',
    'ended_run',
    'retryable',
    'failed',
    'discarded',
    'snoozed',
    'handed_back',
    'unknown_type',
    'lease_lost',
    'cancelled'
);

CREATE TYPE pipeline.attempt_end AS (
	job bigint,
	token bigint,
	outcome pipeline.attempt_outcome,
	attempt smallint,
	ran_ms integer,
	wait_ms bigint,
	output json,
	error_class text,
	error_message text,
	end_index integer
);

CREATE TYPE pipeline.edge_effect AS ENUM (
    'satisfied',
    'broken',
    'not_taken'
);

CREATE TYPE pipeline.ended_run AS (
	id bigint,
	status text,
	graph bigint
);

CREATE TYPE pipeline.takes AS ENUM (
    'value',
    'maybe',
    'outcome',
    'failure',
    'order',
    'ended'
);

CREATE TYPE pipeline.out_edge AS (
	no integer,
	takes pipeline.takes
);

CREATE TYPE pipeline.step_status AS ENUM (
    'pending',
    'enqueued',
    'waiting',
    'succeeded',
    'failed',
    'ended_run',
    'cancelled',
    'skipped',
    'skipped_by_branch'
);

CREATE TYPE pipeline.ended_step AS (
	run bigint,
	no integer,
	graph bigint,
	status pipeline.step_status,
	is_ignored boolean,
	is_halting boolean,
	fails_run boolean,
	attempt smallint,
	end_index integer,
	skips_arms boolean,
	kept_arm integer,
	out_edges pipeline.out_edge[]
);

CREATE TYPE pipeline.event_level AS ENUM (
    'none',
    'runs',
    'steps',
    'all'
);

CREATE TYPE pipeline.failed_job AS (
	end_index integer,
	job_type text,
	key text,
	error_class text,
	error_message text,
	run bigint,
	step text,
	is_optional boolean
);

CREATE TYPE pipeline.job_status AS ENUM (
    'scheduled',
    'ready',
    'running',
    'succeeded',
    'failed',
    'discarded'
);

CREATE TYPE pipeline.new_run AS (
	id bigint,
	nonce bigint,
	rerun_of bigint,
	event_level pipeline.event_level,
	key text,
	params_hash bytea,
	actor text,
	params json,
	callbacks json,
	tags text[]
);

CREATE TYPE pipeline.new_step AS (
	run bigint,
	token bigint,
	no integer,
	open_edges integer,
	params json
);

CREATE TYPE pipeline.node_kind AS ENUM (
    'job',
    'branch',
    'merge',
    'barrier',
    'each',
    'child',
    'timer',
    'signal'
);

CREATE TYPE pipeline.released_step AS (
	run bigint,
	no integer,
	end_index integer,
	takes pipeline.takes,
	params json,
	job_type text,
	queue text,
	priority smallint,
	max_attempts smallint,
	lease_ms integer,
	delay_ms bigint,
	key text,
	options jsonb,
	shape json
);

CREATE TYPE pipeline.run_status AS ENUM (
    'pending',
    'running',
    'cancelling',
    'succeeded',
    'failed',
    'halted',
    'cancelled',
    'skipped'
);

CREATE TYPE pipeline.slot_offer AS (
	pattern text,
	free integer,
	min_priority smallint
);

CREATE TYPE pipeline.start_outcome AS ENUM (
    'new',
    'sent',
    'same',
    'other'
);

CREATE TYPE pipeline.start_result AS ENUM (
    'started',
    'no_graph',
    'ids_taken',
    'key_conflict'
);

CREATE TYPE pipeline.started_step AS (
	id bigint,
	token bigint,
	job_type text,
	queue text,
	priority smallint,
	max_attempts smallint,
	lease_ms integer,
	end_index integer,
	params text,
	options text,
	shape text,
	takes text[],
	outputs text[],
	failed text[],
	classes text[],
	messages text[],
	is_cancelled boolean,
	key text,
	round integer,
	size bigint
);

CREATE TYPE pipeline.step_reason AS ENUM (
    'first',
    'broken',
    'not_chosen',
    'no_failure',
    'none_succeeded',
    'none_taken',
    'halted_by',
    'ended_by',
    'cancelled',
    'deadline',
    'run_skipped'
);

CREATE TYPE pipeline.stop_reason AS ENUM (
    'cancel',
    'deadline'
);

CREATE TYPE pipeline.strategy AS ENUM (
    'halt',
    'continue',
    'ignore'
);

CREATE FUNCTION pipeline.advance_runs_v1(p_ends pipeline.attempt_end[], p_worker bigint, p_offers pipeline.slot_offer[], p_job_types text[], OUT queues text[], OUT started pipeline.started_step[], OUT ended_runs pipeline.ended_run[]) RETURNS record
    LANGUAGE plpgsql
    AS $$
declare
    v_ended pipeline.ended_step[];
    v_decided record;
    v_finished record;
begin
    v_ended := pipeline.end_steps_v1(p_ends);
    v_decided := pipeline.decide_downstream_v1(v_ended);
    v_finished := pipeline.finish_advance_v1(v_decided.ended, v_decided.released, p_worker, p_offers, p_job_types, false);
    queues := v_finished.queues;
    started := v_finished.started;
    ended_runs := v_finished.ended_runs;
end $$;

CREATE FUNCTION pipeline.advance_v1(p_runs bigint[], p_ends pipeline.attempt_end[], p_worker bigint, p_offers pipeline.slot_offer[], p_job_types text[], p_unknown_ms bigint, p_input_limit bigint, p_input_total bigint, p_asynchronous_commit boolean, OUT stale integer[], OUT held integer[], OUT held_runs bigint[], OUT failed pipeline.failed_job[], OUT queues text[], OUT started pipeline.started_step[], OUT ended_runs pipeline.ended_run[]) RETURNS record
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_memoize TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
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

CREATE FUNCTION pipeline.any_edge_effect(p_status pipeline.step_status) RETURNS pipeline.edge_effect
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select case p_status
        when 'succeeded' then 'satisfied'::pipeline.edge_effect
        when 'skipped_by_branch' then 'not_taken'
        else 'broken'
    end
$$;

CREATE FUNCTION pipeline.cancel_run_v1(p_run bigint, p_stop_reason pipeline.stop_reason, OUT refused text, OUT queues text[], OUT ended_runs pipeline.ended_run[], OUT asked bigint[]) RETURNS record
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS $$
declare
    v_now timestamptz := pipeline.now();
    v_run pipeline.runs;
    v_withdrawn record;
begin
    select * into v_run from pipeline.runs where id = p_run;
    if not found or v_run.status in ('cancelling', 'cancelled') then
        return;
    elsif v_run.status not in ('pending', 'running')
          or p_stop_reason = 'deadline' and (v_run.status <> 'running' or v_run.deadline_at is null
                                       or v_run.deadline_at > v_now) then
        refused := v_run.status;
        return;
    end if;
    -- A run that waits in a chain has no running steps, and is cancelled at once.
    update pipeline.runs
    set stop_reason = p_stop_reason,
        status = case when status = 'running' then 'cancelling' else status end::pipeline.run_status,
        events = events + (event_level <> 'none' and status = 'running')::integer
    where id = p_run;
    if v_run.status = 'running' and v_run.event_level <> 'none' then
        insert into pipeline.events (run, no, at, status)
        values (p_run, v_run.events + 1, v_now, 'cancelling');
    end if;
    v_withdrawn := pipeline.withdraw_steps_v1(p_run);
    queues := v_withdrawn.queues;
    ended_runs := v_withdrawn.ended_runs;
    asked := v_withdrawn.asked;
    if v_withdrawn.is_left then
        insert into pipeline.requests (id, run, created_at, next_at, kind)
        values (nextval('pipeline.ids'), p_run, v_now, v_now, 'withdraw');
    end if;
end $$;

CREATE FUNCTION pipeline.chain_effect(p_upstream pipeline.run_status) RETURNS pipeline.edge_effect
    LANGUAGE sql IMMUTABLE
    AS $$
    select case
        when p_upstream is null then 'broken'::pipeline.edge_effect
        when p_upstream = 'succeeded' then 'satisfied'
        when p_upstream in ('failed', 'halted', 'cancelled', 'skipped') then 'broken'
    end
$$;

CREATE FUNCTION pipeline.checked_callbacks(p_callbacks json) RETURNS json
    LANGUAGE sql IMMUTABLE
    AS $$
    select case when p_callbacks is null or jsonb_typeof(p_callbacks::jsonb) is not null then p_callbacks end
$$;

CREATE FUNCTION pipeline.claim_jobs_v1(p_worker bigint, p_token bigint, p_patterns text[], p_limits integer[], p_bytes bigint, p_job_types text[], p_steps boolean, p_lines integer[], p_queues text[], p_to_queues text[], p_ranks integer[], p_times timestamp with time zone[], p_ids bigint[], p_to_ranks integer[]) RETURNS TABLE(line integer, id bigint, token bigint, queue text, job_type text, attempt smallint, max_attempts smallint, priority smallint, run_at timestamp with time zone, waited_ms bigint, lease_ms integer, batch bigint, args text, input text, options text, claimed_at timestamp with time zone, bytes integer, range integer, step integer, after_queue text, after_rank integer, rank integer, visited bigint, held bigint)
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_material TO 'off'
    SET enable_memoize TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
#variable_conflict use_column
declare
    -- Stepping over fewer dead entries than this costs less than remembering a stretch.
    c_many constant bigint := 256;
    v_now timestamptz := pipeline.now();
    v_paused text[] := (select array_agg(q.name) from pipeline.queues q where q.paused_at is not null);
    v_wild boolean := array_position(p_lines, null) is not null;
    -- The ranges of the index to claim from, with their lines.
    v_lines integer[] := p_lines;
    v_queues text[] := p_queues;
    v_ranks integer[] := p_ranks;
    v_times timestamptz[] := p_times;
    v_ids bigint[] := p_ids;
    v_to_ranks integer[] := p_to_ranks;
    v_head record;
    v_before bigint;
    v_got bigint;
    v_taken bigint := 0;
begin
    if v_wild then
        -- Across several queues, the highest priority comes first, then the job that has waited longest.
        for v_head in
            select h.*, (
                select min(o.line)::integer from unnest(p_patterns) with ordinality as o (pattern, line)
                where h.queue = o.pattern
                   or right(o.pattern, 1) = '*' and starts_with(h.queue, left(o.pattern, -1))
            ) as line
            from pipeline.queue_heads_v1(p_queues, p_to_queues, p_ranks, p_times, p_ids, p_to_ranks) as h
            where p_lines[h.range] is null
            order by h.rank, h.run_at, h.id
        loop
            if v_head.queue is not null and p_limits[v_head.line] > 0 then
                v_lines := v_lines || v_head.line;
                v_queues := v_queues || v_head.queue;
                v_ranks := v_ranks || v_head.rank;
                v_times := v_times || v_head.run_at;
                v_ids := v_ids || v_head.id;
                v_to_ranks := v_to_ranks || v_head.rank + 1;
            end if;
            if v_head.visited >= c_many then
                line := 0;
                queue := v_head.queue;
                rank := v_head.rank;
                run_at := v_head.run_at;
                id := v_head.id;
                range := v_head.range;
                step := v_head.step;
                after_queue := v_head.after_queue;
                after_rank := v_head.after_rank;
                visited := v_head.visited;
                claimed_at := v_now;
                return next;
            end if;
        end loop;
    end if;

    v_before := pipeline.visited_entries_v1();
    for i in 1 .. cardinality(p_patterns) loop
        continue when p_limits[i] <= 0;
        return query
        with picked as materialized (
            select j.id, j.bytes
            from unnest(v_lines, v_queues, v_ranks, v_times, v_ids, v_to_ranks)
                 as h (line, queue, rank, run_at, id, to_rank)
            cross join lateral (
                select j.id, j.bytes from pipeline.jobs j
                where j.status = 'ready' and j.queue = h.queue collate "C"
                  and (- j.priority::integer, j.run_at, j.id) >= (h.rank, h.run_at, h.id)
                  and - j.priority::integer < h.to_rank
                  and (p_job_types is null or j.job_type like any (p_job_types))
                  and (p_steps or j.id % 2 = 1)
                order by j.queue, - j.priority::integer, j.run_at, j.id
                limit p_limits[i]
                for update skip locked
            ) as j
            where h.line = i and (v_paused is null or h.queue <> all (v_paused))
            limit p_limits[i]
        )
        update pipeline.jobs j
        set status = 'running', token = p_token # j.id, attempt = j.attempt + 1,
            worker = p_worker, claimed_at = v_now,
            lease_until = v_now + j.lease_ms * interval '1 ms'
        from picked
        where j.id = picked.id
          -- The subquery runs only if a large job was picked.
          and (picked.bytes is null or picked.id in (
              select fits.id from (
                  select large.id, row_number() over so_far as no, sum(large.bytes) over so_far as bytes
                  from picked as large where large.bytes is not null
                  window so_far as (rows unbounded preceding)
              ) as fits
              where fits.no = 1 or fits.bytes <= p_bytes
          ))
        returning i, j.id, j.token, j.queue, j.job_type, j.attempt, j.max_attempts, j.priority,
                  j.run_at, (extract(epoch from v_now - j.run_at) * 1000)::bigint, j.lease_ms,
                  j.batch, j.args::text, j.input::text, j.options::text, v_now, j.bytes,
                  null::integer, null::integer, null::text, null::integer, null::integer, null::bigint,
                  null::bigint;
        get diagnostics v_got = row_count;
        v_taken := v_taken + v_got;
    end loop;

    v_before := pipeline.visited_entries_v1() - v_before - v_taken;
    if v_before >= c_many then
        return query
        select 0, h.id, null::bigint, h.queue, null::text, null::smallint, null::smallint,
               null::smallint, h.run_at, null::bigint, null::integer, null::bigint, null::text,
               null::text, null::text, v_now, null::integer, h.range, h.step, h.after_queue,
               h.after_rank, h.rank, h.visited, null::bigint
        from pipeline.queue_heads_v1(p_queues, p_to_queues, p_ranks, p_times, p_ids, p_to_ranks) as h
        where p_lines[h.range] is not null and h.visited >= c_many;
        get diagnostics v_got = row_count;
        if v_got = 0 and v_taken > 0 then
            -- The dead entries lie behind ready rows that other transactions have locked.
            return query
            select 0, f.id, null::bigint, f.queue, null::text, null::smallint, null::smallint,
                   null::smallint, f.run_at, null::bigint, null::integer, null::bigint, null::text,
                   null::text, null::text, v_now, null::integer, f.range, 1, null::text,
                   null::integer, f.rank, v_before, f.held
            from pipeline.held_heads_v1(p_token, v_now, p_queues, p_to_queues, p_ranks, p_times, p_ids,
                                        p_to_ranks) as f;
        end if;
    end if;
end $$;

CREATE FUNCTION pipeline.copy_merged_outputs_v1(p_ended pipeline.ended_step[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    update pipeline.steps s set output = value.output, output_bytes = value.output_bytes
    from unnest(p_ended) as e
    join pipeline.nodes n on n.graph = e.graph and n.no = e.no and n.kind = 'merge'
    join pipeline.steps branch on branch.run = e.run and branch.no = n.branch
    join pipeline.steps value on value.run = e.run and value.no = n.returns[branch.arm + 1]
    where e.status = 'succeeded' and s.run = e.run and s.no = e.no;
end $$;

CREATE FUNCTION pipeline.count_ended_steps_v1(p_ended pipeline.ended_step[], p_released pipeline.released_step[]) RETURNS pipeline.ended_run[]
    LANGUAGE plpgsql
    AS $$
declare
    v_now timestamptz := pipeline.now();
    v_ended_runs pipeline.ended_run[];
    v_level pipeline.event_level;       -- the most that one of these runs keeps
    v_has_several boolean;              -- whether several steps of one run have ended
begin
    with counted as (
        select e.run, count(e.no)::integer as ended, coalesce(bool_or(e.is_halting), false) as is_halting,
               coalesce(bool_or(e.fails_run), false) as fails_run,
               -- The step, if only one of the run has ended.
               min(e.no) as no, min(e.attempt) as attempt, min(e.status) as status
        from unnest(p_ended) as e
        group by e.run
    ), moved as (
        update pipeline.runs r
        set live_steps = r.live_steps - c.ended,
            is_failed = r.is_failed or c.fails_run,
            halt_triggered = r.halt_triggered or c.is_halting,
            status = case when r.live_steps = c.ended
                          then pipeline.final_run_status(r.status, r.stop_reason, r.is_failed or c.fails_run,
                                                         r.halt_triggered or c.is_halting)
                          else r.status end,
            ended_at = case when r.live_steps = c.ended then v_now end,
            events = r.events + case when r.event_level >= 'steps' then c.ended else 0 end
                              + case when r.event_level <> 'none' and r.live_steps = c.ended then 1 else 0 end
        from counted c
        cross join lateral (
            select b.ctid as row from pipeline.runs b where b.id = c.run offset 0
        ) as b
        where r.ctid = b.row
        returning r.id, r.status, r.graph, r.live_steps, r.event_level, r.events, c.ended, c.no, c.attempt,
                  c.status as step_status
    ), written as (
        insert into pipeline.events (run, no, at, step, attempt, status)
        -- The event of the run's end is the last one.
        select m.id, m.events - (m.live_steps = 0)::integer, v_now, m.no, m.attempt, m.step_status::text
        from moved m where m.ended = 1 and m.event_level >= 'steps'
        union all
        select m.id, m.events, v_now, null, null, m.status::text
        from moved m where m.live_steps = 0 and m.event_level <> 'none'
    )
    select array_agg(row(m.id, m.status::text, m.graph)::pipeline.ended_run) filter (where m.live_steps = 0),
           max(m.event_level), bool_or(m.ended > 1)
    into v_ended_runs, v_level, v_has_several from moved m;

    if v_has_several and v_level >= 'steps' then
        insert into pipeline.events (run, no, at, step, attempt, status)
        select e.run, r.events - (r.ended_at is not null)::integer - e.after, v_now, e.no, e.attempt,
               e.status::text
        from (
            select e.run, e.no, e.attempt, e.status, count(*) over (partition by e.run) as ended,
                   row_number() over (partition by e.run order by e.ord desc)::integer - 1 as after
            from unnest(p_ended) with ordinality
                 as e (run, no, graph, status, is_ignored, is_halting, fails_run, attempt, end_index, skips_arms, kept_arm,
                       out_edges, ord)
            where e.no is not null
        ) as e
        cross join lateral (
            select r.events, r.ended_at from pipeline.runs r
            where r.id = e.run and r.event_level >= 'steps' offset 0
        ) as r
        where e.ended > 1;
    end if;
    if v_level = 'all' and p_released is not null then
        perform pipeline.insert_released_events_v1(p_released);
    end if;
    return v_ended_runs;
end $$;

CREATE FUNCTION pipeline.count_problems_v1(p_count integer) RETURNS void
    LANGUAGE sql
    AS $$
    update pipeline.reconciler set found = found + p_count, found_at = pipeline.now()
$$;

CREATE FUNCTION pipeline.database_id_v1() RETURNS text
    LANGUAGE sql STABLE
    AS $$
    select current_database() || ' ' || extract(epoch from pg_postmaster_start_time())
$$;

CREATE FUNCTION pipeline.decide_downstream_v1(p_ended pipeline.ended_step[], OUT ended pipeline.ended_step[], OUT released pipeline.released_step[]) RETURNS record
    LANGUAGE plpgsql
    AS $$
declare
    v_now timestamptz := pipeline.now();
    v_level pipeline.ended_step[] := p_ended;
    v_next record;
    v_skips_arms boolean;       -- whether a step of the level is a branch whose other arms are skipped
    v_has_edges boolean;        -- whether edges lead away from the level
    v_has_any boolean := false; -- whether a step starts after any one of its upstream steps
    -- Appending copies an array, so that a long line of steps would take quadratic time: the results of the last
    -- levels are kept apart, and appended when there are many.
    c_many constant integer := 256;
    v_ended pipeline.ended_step[];
    v_released pipeline.released_step[];
begin
    while v_level is not null loop
        if cardinality(v_level) = 1 then
            -- Without a query: a lone end is the common case, and starting a query costs more than its work.
            v_skips_arms := (v_level[1]).skips_arms;
            v_has_edges := (v_level[1]).out_edges is not null;
        else
            select bool_or(e.skips_arms), bool_or(e.out_edges is not null) into v_skips_arms, v_has_edges
            from unnest(v_level) as e;
        end if;
        if v_skips_arms then
            v_level := pipeline.skip_arms_v1(v_level);
            v_has_edges := true;
        end if;
        v_ended := v_ended || v_level;
        if cardinality(v_ended) >= c_many then
            ended := ended || v_ended;
            v_ended := null;
        end if;

        -- Usually the last steps of their runs.
        exit when v_has_edges is not true;
        with touched as (
            select e.run, e.graph, o.no, count(*)::integer as count,
                   bool_or(e.status = 'succeeded') as has_success,
                   bool_or(effect.is = 'broken') as is_broken,
                   bool_or(pipeline.any_edge_effect(e.status) = 'broken') as is_broken_for_any,
                   bool_or(effect.is = 'not_taken') as is_not_taken,
                   min(e.no) filter (where effect.is <> 'satisfied') as cause,
                   min(e.end_index) filter (where e.status = 'succeeded') as end_index, min(o.takes) as takes
            from unnest(v_level) as e
            cross join lateral unnest(e.out_edges) as o
            cross join lateral (
                select pipeline.edge_effect(e.status, e.is_ignored, o.takes) as is
            ) as effect
            group by e.run, e.graph, o.no
        ), decided as (
            update pipeline.steps s
            set open_edges = s.open_edges - t.count,
                is_broken = effects.is_broken,
                is_not_taken = s.is_not_taken or t.is_not_taken,
                status = next.status,
                enqueued_at = case when next.status = 'enqueued' then v_now end,
                ended_at = case when next.status not in ('pending', 'enqueued') then v_now end,
                reason = case next.status
                    when 'enqueued' then case when n.is_any then 'first'::pipeline.step_reason end
                    when 'skipped_by_branch' then case when n.is_any then 'none_taken'::pipeline.step_reason
                                                  else 'no_failure' end
                    when 'skipped' then case when n.is_any then 'none_succeeded'::pipeline.step_reason
                                        else 'broken' end
                end,
                cause = case when next.status = 'succeeded' or n.is_any then null
                             else coalesce(s.cause, t.cause) end
            from touched t
            cross join lateral (
                select n.* from pipeline.nodes n where n.graph = t.graph and n.no = t.no offset 0
            ) as n
            cross join lateral (
                select b.ctid as row, b.open_edges, b.is_broken, b.is_not_taken from pipeline.steps b
                where b.run = t.run and b.no = t.no and b.status = 'pending' offset 0
            ) as b
            cross join lateral (
                select b.is_broken or case when n.is_any then t.is_broken_for_any else t.is_broken end as is_broken
            ) as effects
            cross join lateral (
                select pipeline.step_status_after(
                    b.open_edges - t.count, n.is_any, n.kind, t.has_success, effects.is_broken,
                    b.is_not_taken or t.is_not_taken
                ) as status
            ) as next
            where s.ctid = b.row
            returning s.run, s.no, t.graph, s.status, s.params, n.kind, n.is_any, n.out_edges, n.job_type, n.queue,
                      n.priority, n.max_attempts, n.lease_ms, n.delay_ms, n.key, n.options, n.input,
                      case when n.in_edges = 1 and coalesce(pg_column_size(s.params), 0) <= 2000
                           then t.end_index end as end_index,
                      t.takes
        )
        select array_agg(row(
                   d.run, d.no, d.graph, d.status, false, false, false, null, null,
                   d.kind = 'branch' and d.status = 'skipped_by_branch', null, d.out_edges
               )::pipeline.ended_step) filter (where d.status not in ('pending', 'enqueued')) as ended,
               array_agg(row(
                   d.run, d.no, d.end_index, d.takes, d.params, d.job_type, d.queue, d.priority, d.max_attempts, d.lease_ms,
                   d.delay_ms, d.key, d.options, d.input
               )::pipeline.released_step) filter (where d.status = 'enqueued') as released,
               bool_or(d.kind = 'merge' and d.status = 'succeeded') as has_merge,
               bool_or(d.is_any and d.status = 'enqueued') as has_any
        into v_next from decided d;
        v_level := v_next.ended;
        if v_next.has_merge then
            perform pipeline.copy_merged_outputs_v1(v_level);
        end if;
        v_has_any := v_has_any or coalesce(v_next.has_any, false);
        if v_next.released is not null then
            v_released := v_released || v_next.released;
            if cardinality(v_released) >= c_many then
                released := released || v_released;
                v_released := null;
            end if;
        end if;
    end loop;
    ended := ended || v_ended;
    released := released || v_released;
    if v_has_any then
        perform pipeline.set_first_cause_v1(released);
    end if;
end $$;

CREATE FUNCTION pipeline.defer_request_v1(p_id bigint, p_is_own boolean, p_is_refused boolean, p_turn boolean) RETURNS bigint
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    AS $$
declare
    v_now timestamptz := pipeline.now();
    v_wait interval;
begin
    select case when p_is_refused
                then least(greatest(v_now - q.created_at, interval '1 s'), interval '10 min')
                else least(greatest((v_now - q.created_at) / 4, interval '10 ms'), interval '1 s') end
    into v_wait
    from pipeline.requests q where q.id = p_id for update skip locked;
    update pipeline.requests q
    set next_at = v_now + case when p_is_own then interval '2 s' else v_wait end,
        turn_until = case when p_is_refused then '-infinity' when p_turn then v_now + interval '2 s'
                          else q.turn_until end
    where q.id = p_id and v_wait is not null;
    return ceil(extract(epoch from v_wait) * 1000);
end $$;

CREATE FUNCTION pipeline.delete_job_v1(p_job bigint) RETURNS text
    LANGUAGE plpgsql
    AS $$
declare
    v_job pipeline.jobs;
begin
    perform from pipeline.batch_sets b
    where b.id = (select batch from pipeline.jobs where id = p_job)
    for no key update;
    select * into v_job from pipeline.jobs where id = p_job for update;
    if not found then
        return null;
    elsif v_job.status = 'running' then
        return v_job.status::text;
    end if;
    delete from pipeline.jobs where id = p_job;
    delete from pipeline.attempts where job = p_job;
    if v_job.status in ('scheduled', 'ready') and v_job.batch is not null then
        -- For its batch, a deleted job counts as failed.
        perform pipeline.notify_queues_v1(
            pipeline.settle_batches_v1(array[v_job.batch], array[1], array[1]), pipeline.now()
        );
    end if;
    return 'done';
end $$;

CREATE FUNCTION pipeline.downstream_runs_v1(p_runs bigint[]) RETURNS bigint[]
    LANGUAGE plpgsql
    AS $$
begin
    return coalesce((
        with recursive reached (id) as (
            select c.downstream from pipeline.chains c where c.upstream = any (p_runs)
            union
            select c.downstream from reached join pipeline.chains c on c.upstream = reached.id
        )
        select array_agg(id order by id) from reached
    ), '{}');
end $$;

CREATE FUNCTION pipeline.due_maintenance_v1(p_worker bigint, OUT stop bigint[], OUT is_overdue boolean, OUT is_requested boolean) RETURNS record
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
begin
    stop := pipeline.jobs_to_stop_v1(p_worker);
    is_overdue := exists (select from pipeline.overdue_runs_v1(1));
    is_requested := exists (select from pipeline.requests q
                            where q.kind <> 'deadline' and q.next_at <= pipeline.now())
                 or exists (select from pipeline.requests q
                            where q.kind = 'deadline' and q.next_at <= pipeline.now());
end $$;

CREATE FUNCTION pipeline.due_requests_v1(p_limit integer) RETURNS TABLE(id bigint, run bigint, kind text)
    LANGUAGE sql STABLE
    SET enable_seqscan TO 'off'
    AS $$
    (
        select q.id, q.run, q.kind from pipeline.requests q
        where q.kind = 'deadline' and q.next_at <= pipeline.now()
        order by q.next_at, q.id limit p_limit
    )
    union all
    (
        select q.id, q.run, q.kind from pipeline.requests q
        where q.kind <> 'deadline' and q.next_at <= pipeline.now()
        order by q.next_at, q.id limit p_limit
    )
$$;

CREATE FUNCTION pipeline.edge_effect(p_status pipeline.step_status, p_is_ignored boolean, p_takes pipeline.takes) RETURNS pipeline.edge_effect
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select case
        when p_takes = 'ended' then 'satisfied'::pipeline.edge_effect
        when p_takes = 'failure'
            then case when p_status = 'failed' then 'satisfied'::pipeline.edge_effect else 'not_taken' end
        when p_status in ('skipped', 'cancelled') or p_status = 'failed' and not p_is_ignored then 'broken'
        else 'satisfied'
    end
$$;

CREATE FUNCTION pipeline.end_jobs_v1(p_ends pipeline.attempt_end[], p_keep boolean, p_unknown_ms bigint, OUT stale integer[], OUT held integer[], OUT failed pipeline.failed_job[]) RETURNS record
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_memoize TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
declare
    v_now timestamptz := pipeline.now();
    v_ended integer[];          -- places of the ends that changed a row
    v_retried bigint[];         -- succeeded jobs with earlier attempts
    v_moved integer[];
begin
    with locked as materialized (
        select e.end_index, j.row
        from unnest(p_ends) as e
        cross join lateral (
            select j.ctid as row from pipeline.jobs j where j.id = e.job and j.token = e.token
            for update skip locked
        ) as j
        where e.outcome in ('succeeded', 'ended_run') and (not p_keep or e.job % 2 = 0)
    ), deleted as (
        delete from pipeline.jobs j using locked where j.ctid = locked.row
        returning locked.end_index, j.id, j.attempt
    )
    select coalesce(array_agg(d.end_index), '{}'),
           array_agg(d.id) filter (where d.attempt > 1 and d.id % 2 = 1)
    into v_ended, v_retried from deleted d;
    if v_retried is not null then
        delete from pipeline.attempts where job = any (v_retried);
    end if;
    if cardinality(v_ended) = cardinality(p_ends) then
        return;
    end if;

    -- The other ends keep their rows.
    with locked as materialized (
        select e.*, j.row
        from unnest(p_ends) as e
        cross join lateral (
            select j.ctid as row from pipeline.jobs j where j.id = e.job and j.token = e.token
            for update skip locked
        ) as j
        where e.outcome not in ('succeeded', 'ended_run') or p_keep and e.job % 2 = 1
    ), moved as (
        update pipeline.jobs j
        set status = next.status,
            token = null,
            lease_until = null,
            run_at = v_now + next.wait_ms * interval '1 ms',
            attempt = j.attempt - next.is_refunded::integer,
            ended_at = case when next.status in ('succeeded', 'failed', 'discarded') then v_now end,
            unknown_since = case when e.outcome = 'unknown_type'
                                 then coalesce(j.unknown_since, v_now) end,
            error_class = coalesce(next.error_class, j.error_class),
            error_message = coalesce(next.error_message, j.error_message)
        from locked e
        cross join lateral pipeline.job_after_v1(
            e.job, e.outcome, e.wait_ms, e.error_class, e.error_message, v_now, p_unknown_ms
        ) as next
        where j.ctid = e.row and (e.outcome <> 'lease_lost' or j.lease_until < v_now)
        returning e.end_index, j.id, e.token, j.attempt, j.worker, next.status,
                  next.is_refunded, next.error_class, next.error_message, j.job_type, j.key
    ), recorded as (
        insert into pipeline.attempts (job, token, attempt, worker, outcome, error_class,
                                       error_message, ended_at)
        select m.id, m.token, m.attempt, m.worker,
               case when m.status in ('ready', 'scheduled') then 'retried' else m.status::text end,
               m.error_class, m.error_message, v_now
        from moved m where not m.is_refunded and m.status <> 'succeeded'
    )
    select coalesce(array_agg(m.end_index), '{}'),
           array_agg(row(m.end_index, m.job_type, m.key, m.error_class, m.error_message, null, null, false)
                     ::pipeline.failed_job) filter (where m.status in ('failed', 'discarded'))
    into v_moved, failed from moved m;
    v_ended := v_ended || v_moved;
    if cardinality(v_ended) = cardinality(p_ends) then
        return;
    end if;

    -- An end is also stale if the lease that it reports as lost was renewed meanwhile, or if it was sent twice.
    select array_agg(e.end_index) filter (where j.id is null),
           array_agg(e.end_index) filter (where j.id is not null)
    into stale, held
    from (
        select e.job, e.token, e.outcome, e.end_index from unnest(p_ends) as e
        where e.end_index <> all (v_ended)
    ) as e
    left join lateral (
        select j.id from pipeline.jobs j
        where j.id = e.job and j.token = e.token and (e.outcome <> 'lease_lost' or j.lease_until < v_now)
        offset 0
    ) as j on true;
end $$;

CREATE FUNCTION pipeline.end_other_steps_v1(p_ends pipeline.attempt_end[], p_deleted bigint[], p_unknown_ms bigint, OUT stale integer[], OUT held integer[], OUT failed pipeline.failed_job[], OUT ends pipeline.attempt_end[]) RETURNS record
    LANGUAGE plpgsql
    AS $$
declare
    v_rest pipeline.attempt_end[];
    v_unwritten integer[];
    v_last pipeline.attempt_end[];
begin
    -- Each attempt once: a second end of the same attempt is stale, and so is the end of an earlier one. The
    -- subqueries are hashed: a group may have thousands of ends.
    ends := array(
        select distinct on (e.token) e from unnest(p_ends) as e
        where e.token in (select unnest(p_deleted))
        order by e.token
    );
    v_rest := array(
        select e from unnest(p_ends) as e
        where e.end_index not in (select d.end_index from unnest(ends) as d)
        order by e.job
    );
    select e.stale, e.held, e.failed into stale, held, failed
    from pipeline.end_jobs_v1(v_rest, false, p_unknown_ms) as e;
    v_unwritten := coalesce(stale, '{}') || coalesce(held, '{}');
    if failed is not null then
        failed := pipeline.name_failed_steps_v1(failed, v_rest);
    end if;

    with last as materialized (
        select e.*, outcome.of_step, f.error_class as decided_class, f.error_message as decided_message
        from unnest(v_rest) as e
        left join unnest(failed) as f on f.end_index = e.end_index
        join pipeline.runs r on r.id = pipeline.run_of(e.job)
        cross join lateral (
            select pipeline.step_outcome_after(
                e.outcome, f.end_index is not null, coalesce(f.error_class, e.error_class), r.status, r.stop_reason
            ) as of_step
        ) as outcome
        where e.end_index <> all (v_unwritten) and outcome.of_step is not null
    ), deleted as (
        -- The row was locked when the attempt was ended.
        delete from pipeline.jobs j using last where j.id = last.job
        returning j.id, j.error_class, j.error_message
    ), recorded as (
        -- The attempt was recorded as one that is retried, before its run was asked.
        update pipeline.attempts a set outcome = last.of_step::text
        from last where a.job = last.job and a.token = last.token and a.outcome = 'retried'
    )
    select array_agg(row(
        l.job, l.token, l.of_step, l.attempt, l.ran_ms, l.wait_ms,
        case when l.of_step in ('succeeded', 'ended_run') then l.output end,
        -- A step that was stopped has the error of its attempt before.
        coalesce(l.decided_class, l.error_class, d.error_class),
        coalesce(l.decided_message, l.error_message, d.error_message), l.end_index
    )::pipeline.attempt_end) into v_last
    from last l left join deleted d on d.id = l.job;
    ends := ends || v_last;
end $$;

CREATE FUNCTION pipeline.end_steps_v1(p_ends pipeline.attempt_end[]) RETURNS pipeline.ended_step[]
    LANGUAGE plpgsql
    AS $$
declare
    v_now timestamptz := pipeline.now();
    v_ended pipeline.ended_step[];
    v_is_unusual boolean;       -- whether an end halts its run or ends it early
begin
    with ended as (
        update pipeline.steps s
        set status = e.status,
            reason = case when e.status = 'cancelled'
                          then case when e.stop_reason = 'deadline' then 'deadline'::pipeline.step_reason
                                    else 'cancelled' end
                          else s.reason end,
            token = e.token, attempt = e.attempt, ended_at = v_now,
            -- The worker measures from before its claim was sent, which may be before the step was enqueued.
            -- Null if the worker did not say: `least` would take the time since the step was enqueued instead, which
            -- may be longer than an integer can say.
            ran_ms = case when e.ran_ms is not null
                          then least(e.ran_ms, greatest(floor(extract(epoch from v_now - s.enqueued_at) * 1000), 0))
                          end::integer,
            output = e.output,
            -- Four bytes of the stored size are its header.
            output_bytes = case when pg_column_size(e.output) > 4096
                                then pg_column_size(e.output) - 4 end,
            arm = e.arm,
            error_class = e.error_class,
            error_message = e.error_message
        from (
            select s.row, e.token, e.attempt, e.ran_ms, e.end_index, r.graph, r.stop_reason, n.kind, n.strategy, n.is_optional, n.out_edges, arm.chosen as arm,
                   case when arm.is_none then 'failed'::pipeline.step_status
                        when e.outcome = 'ended_run' then 'ended_run'
                        when e.outcome = 'succeeded' then 'succeeded'
                        when e.outcome = 'cancelled' then 'cancelled'
                        else 'failed' end as status,
                   case when e.outcome in ('succeeded', 'ended_run') and not arm.is_none
                        then e.output end as output,
                   case when arm.is_none then 'NotAnArm' else e.error_class end as error_class,
                   case when arm.is_none
                        then format('step `%s` chose %s, which is none of its arms: %s', n.key, e.output,
                                    array_to_string(n.arms, ', '))
                        else e.error_message end as error_message
            from unnest(p_ends) as e
            cross join lateral (
                select r.graph, r.stop_reason from pipeline.runs r where r.id = pipeline.run_of(e.job) offset 0
            ) as r
            cross join lateral (
                select n.kind, n.strategy, n.is_optional, n.key, n.arms, n.out_edges from pipeline.nodes n
                where n.graph = r.graph and n.no = pipeline.no_of(e.job) offset 0
            ) as n
            cross join lateral (
                select s.ctid as row from pipeline.steps s
                where s.run = pipeline.run_of(e.job) and s.no = pipeline.no_of(e.job)
                  and s.status = 'enqueued' offset 0
            ) as s
            cross join lateral (
                select chosen, n.kind = 'branch' and e.outcome = 'succeeded' and chosen is null as is_none
                from (
                    select case when n.kind = 'branch' and e.outcome = 'succeeded'
                                then array_position(n.arms, e.output #>> '{}') - 1 end as chosen
                ) as arm
            ) as arm
        ) as e
        where s.ctid = e.row
        returning s.run, s.no, e.graph, s.status, e.strategy, e.stop_reason, e.is_optional, s.attempt, e.end_index, s.arm,
                  e.kind, e.out_edges
    )
    select array_agg(row(
               e.run, e.no, e.graph, e.status, e.strategy = 'ignore',
               e.status = 'failed' and e.strategy = 'halt' and e.stop_reason is null,
               e.status = 'failed' and not e.is_optional, e.attempt, e.end_index,
               e.kind = 'branch' and e.status = 'succeeded', e.arm, e.out_edges
           )::pipeline.ended_step),
           bool_or(e.status = 'ended_run' or e.status = 'failed' and e.strategy = 'halt' and e.stop_reason is null)
    into v_ended, v_is_unusual
    from ended e;
    if not v_is_unusual then
        return v_ended;
    end if;

    -- If several steps of a run have ended, the ends that halt the run come first: that is one of the possible
    -- orders.
    with halted as (
        select e.run, e.graph, bool_or(e.status = 'ended_run') as is_early,
               coalesce(min(e.no) filter (where e.status = 'ended_run'), min(e.no)) as cause
        from unnest(v_ended) as e
        where e.status = 'ended_run' or e.is_halting
        group by e.run, e.graph
    ), skipped as (
        update pipeline.steps s
        set status = 'skipped', ended_at = v_now, cause = h.cause,
            reason = case when h.is_early then 'ended_by'::pipeline.step_reason else 'halted_by' end
        from halted h
        cross join lateral (
            select b.ctid as row, b.no from pipeline.steps b
            where b.run = h.run and b.status in ('pending', 'waiting') offset 0
        ) as b
        cross join lateral (
            select n.is_exempt, n.out_edges from pipeline.nodes n where n.graph = h.graph and n.no = b.no offset 0
        ) as n
        where s.ctid = b.row and (h.is_early or not n.is_exempt)
        returning s.run, s.no, h.graph, n.out_edges
    )
    select v_ended || array_agg(row(s.run, s.no, s.graph, 'skipped', false, false, false, null, null, false, null,
                                    s.out_edges)::pipeline.ended_step)
    into v_ended from skipped s;
    return v_ended;
end $$;

CREATE FUNCTION pipeline.ended_with_run(p_run bigint, p_no integer, p_status pipeline.step_status, p_attempt smallint) RETURNS pipeline.ended_step
    LANGUAGE sql IMMUTABLE
    AS $$
    select row(p_run, p_no, null, p_status, false, false, false, p_attempt, null, false, null, null)::pipeline.ended_step
$$;

CREATE FUNCTION pipeline.enqueue_callbacks_v1(p_runs bigint[]) RETURNS text[]
    LANGUAGE plpgsql
    AS $$
declare
    v_now timestamptz := pipeline.now();
    v_queues text[];
begin
    with ended as (
        update pipeline.runs r set callbacks_dispatched_at = v_now
        where r.id = any (p_runs) and r.callbacks is not null and r.callbacks_dispatched_at is null
        returning r.*
    ), due as (
        select nextval('pipeline.ids') as id, r.id as run, r.round, c.position, c.job_type, c.queue, c.priority,
               c.max_attempts, c.lease_ms, c.options, r.callbacks -> c.position as args,
               jsonb_build_object(
                   'run', r.id, 'pipeline', r.pipeline, 'status', r.status, 'round', r.round,
                   'deadline_exceeded', r.stop_reason is not distinct from 'deadline',
                   'failed', pipeline.steps_with_errors_v1(r.id, r.graph, 'failed'),
                   'cancelled', pipeline.steps_with_errors_v1(r.id, r.graph, 'cancelled')
               ) as input
        from ended r
        join pipeline.callbacks c on c.graph = r.graph
        where c.fires = 'complete' or c.fires = 'success' and r.status = 'succeeded'
           or c.fires = 'failure' and r.status in ('failed', 'halted')
    ), dispatched_callbacks as (
        insert into pipeline.dispatched_callbacks (run, round, position, job)
        select due.run, due.round, due.position, due.id from due
    ), put as (
        insert into pipeline.jobs (id, status, run_at, created_at, job_type, queue, priority, max_attempts,
                                   lease_ms, args, bytes, input, options)
        select due.id, 'ready', v_now, v_now, due.job_type, due.queue, due.priority, due.max_attempts,
               due.lease_ms, due.args, pipeline.large_size_v1(due.args), due.input, due.options
        from due
        returning queue
    )
    select array_agg(distinct put.queue) into v_queues from put;
    return v_queues;
end $$;

CREATE FUNCTION pipeline.enqueue_jobs_v1(p_job_types text[], p_queues text[], p_priorities smallint[], p_attempts smallint[], p_leases integer[], p_args json[], p_options jsonb[], p_unique text[], p_delays bigint[], p_times timestamp with time zone[], p_batch bigint) RETURNS TABLE(ord bigint, id bigint, is_new boolean, has_other_data boolean)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    v_now timestamptz := pipeline.now();
    v_keyed record;
    v_id bigint;
    v_other_data boolean;
    v_tries integer;
begin
    return query
    insert into pipeline.jobs (id, status, run_at, created_at, job_type, queue, priority, max_attempts,
                               lease_ms, args, bytes, options, batch)
    select nextval('pipeline.ids'),
           case when at <= v_now then 'ready' else 'scheduled' end::pipeline.job_status, at, v_now,
           job_type, queue, priority, max_attempts, lease, args, pipeline.large_size_v1(args), options, p_batch
    from (
        select e.*, coalesce(time, v_now + delay * interval '1 ms') as at
        from unnest(p_job_types, p_queues, p_priorities, p_attempts, p_leases, p_args, p_options,
                    p_unique, p_delays, p_times)
             with ordinality as e (job_type, queue, priority, max_attempts, lease, args, options, key,
                                   delay, time, ord)
        where key is null
        order by e.ord
    ) as plain
    -- Ids ascend in the order of the arrays.
    returning null::bigint, id, true, false;

    -- Sorted by key: two transactions that enqueue the same keys lock them in the same order and cannot
    -- deadlock. Collation "C" compares bytes, as the client does when it sorts jobs into pages.
    for v_keyed in
        select e.*, coalesce(time, v_now + delay * interval '1 ms') as at
        from unnest(p_job_types, p_queues, p_priorities, p_attempts, p_leases, p_args, p_options,
                    p_unique, p_delays, p_times)
             with ordinality as e (job_type, queue, priority, max_attempts, lease, args, options, key,
                                   delay, time, ord)
        where key is not null
        order by job_type collate "C", key collate "C", e.ord
    loop
        v_tries := 0;
        loop
            insert into pipeline.jobs (id, status, run_at, created_at, job_type, queue, priority,
                                       max_attempts, lease_ms, args, bytes, options, batch, key)
            values (nextval('pipeline.ids'),
                    case when v_keyed.at <= v_now then 'ready' else 'scheduled' end::pipeline.job_status,
                    v_keyed.at, v_now, v_keyed.job_type, v_keyed.queue, v_keyed.priority,
                    v_keyed.max_attempts, v_keyed.lease, v_keyed.args, pipeline.large_size_v1(v_keyed.args),
                    v_keyed.options, p_batch, v_keyed.key)
            on conflict (job_type, key)
                where key is not null and status in ('scheduled', 'ready', 'running')
                do nothing
            returning id into v_id;
            if found then
                return query values (v_keyed.ord, v_id, true, false);
                exit;
            end if;
            -- As jsonb, neither spaces nor the order of fields make a difference; most often the texts are equal.
            select j.id,
                   case when j.args::text = v_keyed.args::text then false
                        else j.args::jsonb <> v_keyed.args::jsonb end
            into v_id, v_other_data
            from pipeline.jobs j
            where j.job_type = v_keyed.job_type and j.key = v_keyed.key
              and j.status in ('scheduled', 'ready', 'running');
            if found then
                return query values (v_keyed.ord, v_id, false, v_other_data);
                exit;
            end if;
            -- The other job ended between the two statements: the key is free again.
            v_tries := v_tries + 1;
            if v_tries = 100 then
                raise serialization_failure using message = format(
                    'the key of job type %s was taken and given back 100 times meanwhile',
                    v_keyed.job_type);
            end if;
        end loop;
    end loop;

    perform pipeline.notify_queues_v1(p_queues, least(v_now, (select min(time) from unnest(p_times) as time)));
end $$;

CREATE FUNCTION pipeline.enqueue_steps_v1(p_released pipeline.released_step[], p_worker bigint, p_offers pipeline.slot_offer[], p_job_types text[], OUT queues text[], OUT started pipeline.started_step[]) RETURNS record
    LANGUAGE plpgsql
    AS $$
declare
    v_now timestamptz := pipeline.now();
begin
    with placed as materialized (
        select p.*, pipeline.step_id(p.run, p.no) as id,
               -- Random, so that no token is used twice, even after a crash.
               case when p.line <= p.free then (random() * 9e18)::bigint end as token
        from (
            select e.*, offer.free,
                   row_number() over (partition by offer.pattern order by e.priority desc, e.run, e.no) as line
            from unnest(p_released) as e
            left join lateral (
                select o.pattern, o.free, o.min_priority from unnest(p_offers) as o
                where e.queue = o.pattern
                   or right(o.pattern, 1) = '*' and starts_with(e.queue, left(o.pattern, -1))
                order by e.queue = o.pattern desc, length(o.pattern) desc
                limit 1
            ) as offer on e.delay_ms = 0 and e.priority >= offer.min_priority and e.job_type = any (p_job_types)
                      and not exists (select from pipeline.queues q
                                      where q.name = e.queue and q.paused_at is not null)
        ) as p
    ), enqueued as (
        insert into pipeline.jobs (id, status, token, attempt, worker, claimed_at, lease_until, run_at,
                                   created_at, job_type, queue, priority, max_attempts, lease_ms, args)
        select p.id,
               case when p.token is not null then 'running'::pipeline.job_status
                    when p.delay_ms > 0 then 'scheduled' else 'ready' end,
               p.token, (p.token is not null)::integer, case when p.token is not null then p_worker end,
               case when p.token is not null then v_now end,
               case when p.token is not null then v_now + p.lease_ms * interval '1 ms' end,
               v_now + p.delay_ms * interval '1 ms', v_now, p.job_type, p.queue, p.priority, p.max_attempts, p.lease_ms,
               'null'
        from placed p
    )
    select array_agg(distinct p.queue) filter (where p.token is null),
           array_agg(row(
               p.id, p.token, p.job_type, p.queue, p.priority, p.max_attempts, p.lease_ms, p.end_index,
               p.params::text, p.options::text, p.shape::text, array[p.takes::text], null, null, null, null,
               false, p.key, null, null
           )::pipeline.started_step) filter (where p.token is not null)
    into queues, started from placed p;
end $$;

CREATE FUNCTION pipeline.fill_batch_v1(p_batch bigint, p_count integer, p_seal boolean) RETURNS text[]
    LANGUAGE plpgsql
    AS $$
begin
    update pipeline.batch_sets
    set total = total + p_count,
        sealed_at = case when p_seal then coalesce(sealed_at, pipeline.now()) else sealed_at end
    where id = p_batch;
    return pipeline.finish_batches_v1(array[p_batch]);
end $$;

CREATE FUNCTION pipeline.final_run_status(p_status pipeline.run_status, p_stop_reason pipeline.stop_reason, p_is_failed boolean, p_is_halted boolean) RETURNS pipeline.run_status
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select case
        when p_stop_reason = 'deadline' then 'failed'::pipeline.run_status
        when p_stop_reason = 'cancel' then 'cancelled'
        when p_status = 'pending' then 'skipped'
        when not p_is_failed then 'succeeded'
        when p_is_halted then 'halted'
        else 'failed'
    end
$$;

CREATE FUNCTION pipeline.finish_advance_v1(p_ended pipeline.ended_step[], p_released pipeline.released_step[], p_worker bigint, p_offers pipeline.slot_offer[], p_job_types text[], p_is_chain_locked boolean, OUT queues text[], OUT started pipeline.started_step[], OUT ended_runs pipeline.ended_run[]) RETURNS record
    LANGUAGE plpgsql
    AS $$
declare
    v_enqueued record;
    v_ended_runs pipeline.ended_run[];
    v_ids bigint[];
    v_chain record;
    v_begun record;
    v_is_locked boolean := p_is_chain_locked;
begin
    if p_released is not null then
        v_enqueued := pipeline.enqueue_steps_v1(p_released, p_worker, p_offers, p_job_types);
        queues := v_enqueued.queues;
        started := v_enqueued.started;
    end if;
    if p_ended is null and p_released is null then
        return;
    end if;
    v_ended_runs := pipeline.count_ended_steps_v1(p_ended, p_released);
    ended_runs := v_ended_runs;
    while v_ended_runs is not null loop
        v_ids := array(select o.id from unnest(v_ended_runs) as o);
        if exists (select from pipeline.runs r where r.id = any (v_ids) and r.callbacks is not null) then
            queues := queues || pipeline.enqueue_callbacks_v1(v_ids);
        end if;
        exit when not exists (select from pipeline.chains c where c.upstream = any (v_ids));
        -- Level by level: a skipped run decides the runs that are chained to it.
        v_chain := pipeline.settle_chains_v1(v_ids, v_is_locked);
        v_is_locked := true;
        v_ended_runs := null;
        if v_chain.skipped is not null then
            v_ended_runs := pipeline.count_ended_steps_v1(v_chain.skipped, null);
            ended_runs := ended_runs || v_ended_runs;
        end if;
        if v_chain.ready is not null then
            v_begun := pipeline.start_chained_runs_v1(v_chain.ready, true);
            queues := queues || v_begun.queues;
            ended_runs := ended_runs || v_begun.ended_runs;
        end if;
    end loop;
end $$;

CREATE FUNCTION pipeline.finish_batches_v1(p_batches bigint[]) RETURNS text[]
    LANGUAGE plpgsql
    AS $$
declare
    v_now timestamptz := pipeline.now();
    v_queues text[];
begin
    with finished as (
        update pipeline.batch_sets b set finished_at = v_now
        where b.id = any (p_batches) and b.finished_at is null and b.sealed_at is not null
          and b.ended = b.total
        returning b.*
    ), callbacks as (
        insert into pipeline.jobs (id, status, run_at, created_at, job_type, queue, priority, max_attempts,
                                   lease_ms, args, bytes, options, input)
        select nextval('pipeline.ids'), 'ready', v_now, v_now, callback ->> 'job_type',
               callback ->> 'queue', (callback ->> 'priority')::smallint,
               (callback ->> 'max_attempts')::smallint, (callback ->> 'lease_ms')::integer,
               callback -> 'args', pipeline.large_size_v1(callback -> 'args'),
               (callback ->> 'options')::jsonb,
               jsonb_build_object('batch', id, 'total', total, 'failed', failed)
        from finished where callback is not null
        returning queue
    )
    select coalesce(array_agg(distinct queue), '{}') into v_queues from callbacks;
    return v_queues;
end $$;

CREATE FUNCTION pipeline.has_turn(p_turn_until timestamp with time zone, p_now timestamp with time zone) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    AS $$
    select p_turn_until > p_now and p_turn_until <= p_now + interval '2 s'
$$;

CREATE FUNCTION pipeline.held_heads_v1(p_token bigint, p_claimed_at timestamp with time zone, p_queues text[], p_to_queues text[], p_ranks integer[], p_times timestamp with time zone[], p_ids bigint[], p_to_ranks integer[]) RETURNS TABLE(range integer, queue text, rank integer, run_at timestamp with time zone, id bigint, held bigint)
    LANGUAGE sql STABLE
    AS $$
    select r.ord::integer, taken.queue, taken.rank, taken.run_at, taken.id, head.id
    from (
        select distinct on (j.queue, j.priority)
               j.queue, - j.priority::integer as rank, j.run_at, j.id
        from pipeline.jobs j
        where j.status = 'running' and j.claimed_at = p_claimed_at and j.token = p_token # j.id
        order by j.queue, j.priority, j.run_at, j.id
    ) as taken
    cross join lateral (
        select r.* from unnest(p_queues, p_to_queues, p_ranks, p_times, p_ids, p_to_ranks)
             with ordinality as r (queue, to_queue, rank, run_at, id, to_rank, ord)
        where r.to_queue is null and r.queue = taken.queue and taken.rank < r.to_rank
          and (r.rank, r.run_at, r.id) <= (taken.rank, taken.run_at, taken.id)
           or r.queue collate "C" <= taken.queue and taken.queue < r.to_queue collate "C"
        order by r.ord desc limit 1
    ) as r
    -- The scan starts at the range, or at the first entry of the rank. `rank = taken.rank` would make the scan start at
    -- the first entry of the rank in every case: an equality comes before a row comparison in the choice of the start.
    cross join lateral (
        select case when r.to_queue is null and r.rank = taken.rank then r.run_at else '-infinity' end as run_at,
               case when r.to_queue is null and r.rank = taken.rank then r.id else 0 end as id
    ) as start
    cross join lateral (
        select j.id from pipeline.jobs j
        where j.status = 'ready' and j.queue = taken.queue collate "C"
          and (- j.priority::integer, j.run_at, j.id) >= (taken.rank, start.run_at, start.id)
          and - j.priority::integer < taken.rank + 1
          and j.run_at <= taken.run_at and (j.run_at, j.id) < (taken.run_at, taken.id)
        order by j.queue, - j.priority::integer, j.run_at, j.id
        limit 1
    ) as head
$$;

CREATE FUNCTION pipeline.held_runs_v1(p_runs bigint[]) RETURNS bigint[]
    LANGUAGE plpgsql
    AS $$
declare
    v_now timestamptz := pipeline.now();
    v_locked bigint[];
begin
    -- A second lock of the same rows returns those that the first has locked, and perhaps more.
    with locked as (
        select r.id from pipeline.runs r
        where r.id = any (p_runs)
          and not exists (select from pipeline.requests q where q.run = r.id and pipeline.has_turn(q.turn_until, v_now))
        order by r.id for no key update of r skip locked
    )
    select coalesce(array_agg(l.id), '{}') into v_locked from locked l;
    return array(select r.id from pipeline.runs r where r.id = any (p_runs) and r.id <> all (v_locked));
end $$;

CREATE FUNCTION pipeline.insert_released_events_v1(p_released pipeline.released_step[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
    v_now timestamptz := pipeline.now();
begin
    with counted as (
        select e.run, count(*)::integer as count from unnest(p_released) as e group by e.run
    ), moved as (
        update pipeline.runs r set events = r.events + c.count
        from counted c where r.id = c.run and r.event_level = 'all'
        returning r.id, r.events - c.count as base
    )
    insert into pipeline.events (run, no, at, step, status)
    select e.run, m.base + row_number() over (partition by e.run), v_now, e.no, 'enqueued'
    from unnest(p_released) as e join moved m on m.id = e.run;
end $$;

CREATE FUNCTION pipeline.insert_steps_v1(p_graph bigint, p_chained boolean, p_steps pipeline.new_step[], p_worker bigint, p_database text) RETURNS boolean
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
declare
    v_now timestamptz := pipeline.now();
    v_here boolean := false;
begin
    if p_chained then
        insert into pipeline.steps (run, no, open_edges, status, params)
        select s.run, s.no, s.open_edges, 'pending', s.params from unnest(p_steps) as s;
        return false;
    end if;
    insert into pipeline.steps (run, no, open_edges, status, enqueued_at, params)
    select s.run, s.no, s.open_edges,
           case when s.open_edges = 0 then 'enqueued' else 'pending' end::pipeline.step_status,
           case when s.open_edges = 0 then v_now end, s.params
    from unnest(p_steps) as s;

    if p_worker is not null and p_database = pipeline.database_id_v1() then
        v_here := not exists (
            select from pipeline.queues q
            join pipeline.nodes n on n.graph = p_graph and n.in_edges = 0 and n.queue = q.name
            where q.paused_at is not null
        );
    end if;
    insert into pipeline.jobs (id, status, token, attempt, worker, claimed_at, lease_until, run_at,
                               created_at, job_type, queue, priority, max_attempts, lease_ms, args)
    select pipeline.step_id(s.run, s.no),
           case when claim.here then 'running' when n.delay_ms > 0 then 'scheduled' else 'ready'
           end::pipeline.job_status,
           case when claim.here then s.token end,
           claim.here::integer,
           case when claim.here then p_worker end,
           case when claim.here then v_now end,
           case when claim.here then v_now + n.lease_ms * interval '1 ms' end,
           v_now + n.delay_ms * interval '1 ms', v_now, n.job_type, n.queue, n.priority, n.max_attempts,
           n.lease_ms, 'null'
    from unnest(p_steps) as s
    cross join lateral (select v_here and s.token is not null as here) as claim
    cross join lateral (
        select n.job_type, n.queue, n.priority, n.max_attempts, n.lease_ms, n.delay_ms from pipeline.nodes n
        where n.graph = p_graph and n.no = s.no offset 0
    ) as n
    where s.open_edges = 0;
    if not found then
        return false;
    end if;

    if not v_here or exists (select from unnest(p_steps) as s where s.open_edges = 0 and s.token is null) then
        perform pipeline.notify_queues_v1(
            array(select n.queue from pipeline.nodes n where n.graph = p_graph and n.in_edges = 0), v_now
        );
    end if;
    return v_here;
end $$;

CREATE FUNCTION pipeline.job_after_v1(p_job bigint, p_outcome pipeline.attempt_outcome, p_wait_ms bigint, p_class text, p_message text, p_now timestamp with time zone, p_unknown_ms bigint, OUT status pipeline.job_status, OUT wait_ms bigint, OUT is_refunded boolean, OUT error_class text, OUT error_message text) RETURNS record
    LANGUAGE plpgsql STABLE
    AS $$
declare
    v_job record;
    v_known_at timestamptz;
begin
    wait_ms := greatest(p_wait_ms, 0);
    is_refunded := p_outcome in ('snoozed', 'handed_back', 'unknown_type');
    error_class := p_class;
    error_message := p_message;
    status := case p_outcome
        when 'succeeded' then 'succeeded'
        when 'ended_run' then 'succeeded'
        when 'failed' then 'failed'
        when 'discarded' then 'discarded'
        else case when wait_ms > 0 then 'scheduled' else 'ready' end
    end;
    if p_outcome = 'unknown_type' then
        select j.job_type, coalesce(j.unknown_since, p_now) as since,
               coalesce((j.options ->> 'version')::integer, step.version, 1) as version
        into v_job
        from pipeline.jobs j
        left join lateral (
            select n.version from pipeline.runs r
            join pipeline.nodes n on n.graph = r.graph and n.no = pipeline.no_of(j.id)
            where j.id % 2 = 0 and r.id = pipeline.run_of(j.id)
        ) as step on true
        where j.id = p_job;
        select greatest(v_job.since, max(w.seen_at)) into v_known_at
        from pipeline.workers w
        where exists (
            select from unnest(w.job_types, w.versions) as known (job_type, version)
            where known.job_type = v_job.job_type and known.version >= v_job.version
        );
        if p_now - v_known_at >= p_unknown_ms * interval '1 ms' then
            status := 'failed';
            is_refunded := false;
            error_class := 'NoHandler';
            error_message := format(
                'no live worker has known the job type `%s`%s since %s: register it with a worker, then %s',
                v_job.job_type,
                case when v_job.version > 1 then format(' in version %s', v_job.version) else '' end,
                v_known_at, case when p_job % 2 = 0 then 'reopen the run' else 'retry the job' end
            );
        else
            -- The longer no worker has known the type, the longer the pause before the next attempt.
            wait_ms := least(greatest(extract(epoch from p_now - v_job.since) * 500, 250), 30000);
            status := 'scheduled';
        end if;
    elsif p_outcome = 'lease_lost' then
        select j.attempt, j.max_attempts, j.worker into v_job from pipeline.jobs j where j.id = p_job;
        error_class := 'WorkerDied';
        error_message := format(
            'the worker that ran attempt %s (worker %s) did not renew its lease: it died, could not '
            'reach the database, or stopped while its end could not be written; see its log',
            v_job.attempt, v_job.worker
        );
        status := case when v_job.attempt < v_job.max_attempts then 'ready' else 'failed' end;
    end if;
end $$;

CREATE FUNCTION pipeline.jobs_to_stop_v1(p_worker bigint) RETURNS bigint[]
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
begin
    return (
        select array_agg(j.id)
        from pipeline.runs r
        cross join lateral (
            select j.id, j.worker from pipeline.jobs j
            where j.id >= pipeline.step_id(r.id, 0) and j.id < pipeline.step_id(r.id + 1, 0)
              and j.status = 'running' offset 0
        ) as j
        where r.status = 'cancelling' and j.worker = p_worker and j.id % 2 = 0
    );
end $$;

CREATE FUNCTION pipeline.large_size_v1(p_args json) RETURNS integer
    LANGUAGE sql STABLE
    AS $$
    select case when pg_column_size(p_args) > 8192 then pg_column_size(p_args) end
$$;

CREATE FUNCTION pipeline.load_inputs_v1(p_ids bigint[], p_limit bigint, p_total bigint) RETURNS TABLE(id bigint, job_type text, queue text, priority smallint, max_attempts smallint, lease_ms integer, params text, options text, shape text, takes text[], outputs text[], failed text[], classes text[], messages text[], cancelled boolean, key text, round integer, size bigint, put_off boolean)
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_memoize TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
#variable_conflict use_column
declare
    -- Above these limits, inputs are measured first.
    c_params constant integer := 2000;
    c_edges constant integer := 16;
    v_count bigint;
begin
    -- Small inputs, in one query: small outputs have no stored size.
    return query
    select e.id, n.job_type, n.queue, n.priority, n.max_attempts, n.lease_ms, s.params::text, n.options::text,
           n.input::text, given.takes, given.outputs, given.failed, given.classes, given.messages,
           r.status = 'cancelling', n.key, r.round, null::bigint, false
    from unnest(p_ids) as e (id)
    cross join lateral (
        select r.id, r.graph, r.status, r.round from pipeline.runs r
        where r.id = pipeline.run_of(e.id) offset 0
    ) as r
    cross join lateral (
        select n.* from pipeline.nodes n
        where n.graph = r.graph and n.no = pipeline.no_of(e.id) offset 0
    ) as n
    cross join lateral (
        select s.params, s.cause from pipeline.steps s where s.run = r.id and s.no = n.no offset 0
    ) as s
    left join lateral (
        select array_agg(element.takes) as takes, array_agg(element.output) as outputs,
               array_agg(element.failed) as failed, array_agg(element.error_class) as classes,
               array_agg(element.error_message) as messages, max(element.output_bytes) as large
        from (
            select d.takes::text as takes, up.output_bytes, up.error_class, up.error_message,
                   case when up.output_bytes is null then up.output::text end as output,
                   case when up.status = 'failed' then (
                       select node.key from pipeline.nodes node
                       where node.graph = d.graph and node.no = d.upstream
                   ) end as failed
            from pipeline.dependencies d
            cross join lateral (
                select up.output, up.output_bytes, up.error_class, up.error_message, up.status
                from pipeline.steps up
                where up.run = r.id and up.no = d.upstream offset 0
            ) as up
            -- In WHERE: the join condition would be evaluated after the values were loaded.
            where n.in_edges <= c_edges
              and d.graph = r.graph and d.downstream = n.no and d.takes not in ('order', 'ended')
              and (not n.is_any or d.upstream = s.cause)
            order by d.position
        ) as element
    ) as given on n.in_edges > 0
    where given.large is null and n.in_edges <= c_edges
      and (s.params is null or pg_column_size(s.params) <= c_params);
    get diagnostics v_count = row_count;
    if v_count = cardinality(p_ids) then
        return;
    end if;

    -- Measure the remaining inputs.
    return query
    with measured as materialized (
        select e.ord, e.id, r.id as run, r.graph, r.status, r.round, n.no, n.in_edges, n.is_any, s.cause,
               coalesce(octet_length(s.params::text), 0) + coalesce(given.size, 0) as size
        from unnest(p_ids) with ordinality as e (id, ord)
        cross join lateral (
            select r.id, r.graph, r.status, r.round from pipeline.runs r
            where r.id = pipeline.run_of(e.id) offset 0
        ) as r
        cross join lateral (
            select n.no, n.in_edges, n.is_any from pipeline.nodes n
            where n.graph = r.graph and n.no = pipeline.no_of(e.id) offset 0
        ) as n
        cross join lateral (
            select s.params, s.cause from pipeline.steps s where s.run = r.id and s.no = n.no offset 0
        ) as s
        left join lateral (
            select sum(coalesce(up.output_bytes, octet_length(up.output::text), 0)
                       + coalesce(octet_length(up.error_message), 0))::bigint as size,
                   max(up.output_bytes) as large
            from pipeline.dependencies d
            cross join lateral (
                select up.output_bytes, up.error_message,
                       case when up.output_bytes is null then up.output end as output
                from pipeline.steps up
                where up.run = r.id and up.no = d.upstream offset 0
            ) as up
            where d.graph = r.graph and d.downstream = n.no and d.takes not in ('order', 'ended')
              and (not n.is_any or d.upstream = s.cause)
        ) as given on n.in_edges > 0
        where given.large is not null or n.in_edges > c_edges or pg_column_size(s.params) > c_params
    ), fitting as materialized (
        select m.*, m.size <= p_limit as within,
               m.size <= p_limit and m.so_far > p_total and m.so_far > m.size as beyond
        from (
            select m.*, sum(m.size) filter (where m.size <= p_limit)
                            over (order by m.ord rows unbounded preceding) as so_far
            from measured m
        ) as m
    )
    select m.id, n.job_type, n.queue, n.priority, n.max_attempts, n.lease_ms,
           case when loads.it then (
               select s.params::text from pipeline.steps s where s.run = m.run and s.no = m.no
           ) end,
           n.options::text, n.input::text, given.takes, given.outputs, given.failed, given.classes,
           given.messages, m.status = 'cancelling', n.key, m.round, m.size, coalesce(m.beyond, false)
    from fitting m
    cross join lateral (select m.within and not m.beyond as it offset 0) as loads
    cross join lateral (
        select n.* from pipeline.nodes n where n.graph = m.graph and n.no = m.no offset 0
    ) as n
    left join lateral (
        select array_agg(element.takes) as takes, array_agg(element.output) as outputs,
               array_agg(element.failed) as failed, array_agg(element.error_class) as classes,
               array_agg(element.error_message) as messages
        from (
            select d.takes::text as takes, up.output::text as output, up.error_class,
                   up.error_message,
                   case when up.status = 'failed' then (
                       select node.key from pipeline.nodes node
                       where node.graph = d.graph and node.no = d.upstream
                   ) end as failed
            from pipeline.dependencies d
            cross join lateral (
                select up.output, up.error_class, up.error_message, up.status from pipeline.steps up
                where up.run = m.run and up.no = d.upstream offset 0
            ) as up
            where loads.it and d.graph = m.graph and d.downstream = m.no and d.takes not in ('order', 'ended')
              and (not m.is_any or d.upstream = m.cause)
            order by d.position
        ) as element
    ) as given on m.in_edges > 0;
end $$;

CREATE FUNCTION pipeline.load_started_inputs_v1(p_started pipeline.started_step[], p_input_limit bigint, p_input_total bigint, OUT started pipeline.started_step[], OUT queues text[]) RETURNS record
    LANGUAGE plpgsql
    AS $$
declare
    v_loaded pipeline.started_step[];
    v_put_off bigint[];
    v_tokens bigint[];
begin
    select array_agg(row(
               i.id, s.token, i.job_type, i.queue, i.priority, i.max_attempts, i.lease_ms, null, i.params, i.options,
               i.shape, i.takes, i.outputs, i.failed, i.classes, i.messages, i.cancelled, i.key, i.round, i.size
           )::pipeline.started_step) filter (where not i.put_off),
           array_agg(i.id) filter (where i.put_off), array_agg(s.token) filter (where i.put_off),
           array_agg(distinct i.queue) filter (where i.put_off)
    into v_loaded, v_put_off, v_tokens, queues
    from pipeline.load_inputs_v1(
        array(select s.id from unnest(p_started) as s where s.end_index is null), p_input_limit, p_input_total
    ) as i
    join unnest(p_started) as s on s.id = i.id;
    if v_put_off is not null then
        perform pipeline.release_claims_v1(v_put_off, v_tokens);
    end if;
    started := array(select s from unnest(p_started) as s where s.end_index is not null) || v_loaded;
end $$;

CREATE FUNCTION pipeline.lock_runs_v1(p_runs bigint[], OUT locked boolean, OUT held bigint[]) RETURNS record
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    AS $$
declare
    v_wanted bigint[];
    v_mine bigint[];
begin
    select coalesce(array_agg(r.id), '{}') into v_wanted
    from (
        select e.id from unnest(p_runs) as e (id)
        union select e.id from unnest(pipeline.downstream_runs_v1(p_runs)) as e (id)
    ) as e
    cross join lateral (
        select r.id from pipeline.runs r
        where r.id = e.id and (r.status in ('pending', 'skipped') or e.id = any (p_runs)) offset 0
    ) as r;
    with mine as (
        select r.id from pipeline.runs r where r.id = any (v_wanted)
        order by r.id for no key update skip locked
    )
    select coalesce(array_agg(mine.id), '{}') into v_mine from mine;
    locked := cardinality(v_mine) >= cardinality(v_wanted);
    held := array(select unnest(v_wanted) except select unnest(v_mine));
end $$;

CREATE FUNCTION pipeline.name_failed_steps_v1(p_failed pipeline.failed_job[], p_ends pipeline.attempt_end[]) RETURNS pipeline.failed_job[]
    LANGUAGE plpgsql
    AS $$
begin
    return (
        select array_agg(row(f.end_index, f.job_type, r.key, f.error_class, f.error_message, r.id, n.key,
                             coalesce(n.is_optional, false))::pipeline.failed_job)
        from unnest(p_failed) as f
        join unnest(p_ends) as e on e.end_index = f.end_index
        left join pipeline.runs r on r.id = pipeline.run_of(e.job)
        left join pipeline.nodes n on n.graph = r.graph and n.no = pipeline.no_of(e.job)
    );
end $$;

CREATE FUNCTION pipeline.next_page_v1(p_graph bigint, p_first integer, p_units bigint, OUT last integer, OUT units bigint, OUT is_end boolean) RETURNS record
    LANGUAGE plpgsql STABLE
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    AS $$
begin
    select max(n.no), sum(1 + n.in_edges) into last, units
    from (
        select n.no, n.in_edges, sum(1 + n.in_edges) over (order by n.no) as until
        from (
            select n.no, n.in_edges from pipeline.nodes n
            where n.graph = p_graph and n.no >= p_first
            order by n.no limit p_units
        ) as n
    ) as n
    where n.until <= p_units or n.no = p_first;
    last := coalesce(last, p_first);
    units := coalesce(units, 1);
    is_end := not exists (select from pipeline.nodes n where n.graph = p_graph and n.no > last);
end $$;

CREATE FUNCTION pipeline.no_of(p_id bigint) RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ select ((p_id & 262143) >> 1)::integer $$;

CREATE FUNCTION pipeline.notify_queues_v1(p_queues text[], p_since timestamp with time zone) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    perform pg_notify('pipeline_jobs',
                      queue || ' ' || (floor(extract(epoch from p_since) * 10) * 100)::bigint)
    from (select distinct unnest(p_queues) as queue) as told;
end $$;

CREATE FUNCTION pipeline.now() RETURNS timestamp with time zone
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$ select statement_timestamp() $$;

COMMENT ON FUNCTION pipeline.now() IS 'the time by which everything in this schema happens';

CREATE FUNCTION pipeline.only_ignored_failures_v1(p_run bigint, p_named text[]) RETURNS text[]
    LANGUAGE plpgsql STABLE
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS $$
begin
    if cardinality(pipeline.steps_to_reset_v1(p_run, p_named)) > 0 then
        return null;
    end if;
    return (
        select array_agg(n.key order by n.no)
        from pipeline.runs r
        join pipeline.steps s on s.run = r.id and s.status = 'failed'
        join pipeline.nodes n on n.graph = r.graph and n.no = s.no and not n.is_optional
        where r.id = p_run
    );
end $$;

CREATE FUNCTION pipeline.overdue_runs_v1(p_limit integer) RETURNS SETOF bigint
    LANGUAGE sql STABLE
    SET enable_seqscan TO 'off'
    AS $$
    select r.id from pipeline.runs r
    where r.deadline_at <= pipeline.now() and r.deadline_at is not null and r.status = 'running'
      and not exists (select from pipeline.requests q where q.run = r.id and q.kind = 'deadline')
    order by r.deadline_at
    limit p_limit
$$;

CREATE FUNCTION pipeline.plan_advance_v1() RETURNS void
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_memoize TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
begin
    perform pipeline.end_steps_v1('{}');
    perform pipeline.decide_downstream_v1('{}');
    perform pipeline.enqueue_steps_v1('{}', null, '{}', '{}');
    perform pipeline.count_ended_steps_v1('{}', null);
    perform pipeline.enqueue_callbacks_v1('{}');
end $$;

CREATE FUNCTION pipeline.process_request_v1(p_id bigint, p_is_own boolean, OUT state text, OUT refused text, OUT queues text[], OUT ended_runs pipeline.ended_run[], OUT asked bigint[], OUT wait_ms bigint) RETURNS record
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    AS $$
declare
    v_now timestamptz := pipeline.now();
    v_request pipeline.requests;
    v_runs bigint[];
    v_locked boolean := false;
    v_held bigint[] := '{}';
    v_left boolean := false;
begin
    select * into v_request from pipeline.requests q where q.id = p_id for update skip locked;
    if not found then
        state := case when exists (select from pipeline.requests q where q.id = p_id)
                      then 'held' else 'gone' end;
        return;
    end if;
    v_runs := array[v_request.run];
    if v_request.kind = 'chain' then
        v_runs := v_runs || array(select c.upstream from pipeline.chains c where c.downstream = v_request.run);
    end if;
    -- A `chain` request only reads upstream runs, and must not interrupt the turn of another request.
    if v_request.kind <> 'chain' or not exists (
        select from pipeline.requests q where q.run = any (v_runs) and pipeline.has_turn(q.turn_until, v_now)
    ) then
        select l.locked, l.held into v_locked, v_held from pipeline.lock_runs_v1(v_runs) as l;
    end if;
    if not v_locked then
        state := 'held';
        -- A turn only if the run itself is held: if only a chained run is held, the run may advance.
        wait_ms := pipeline.defer_request_v1(
            p_id, p_is_own, false,
            v_request.kind in ('cancel', 'deadline') and v_request.run = any (v_held)
        );
        return;
    end if;
    state := 'done';

    case v_request.kind
        when 'chain' then
            select s.queues, s.ended_runs into queues, ended_runs from pipeline.settle_chained_run_v1(v_request.run) as s;
        when 'withdraw' then
            if exists (select from pipeline.runs r
                       where r.id = v_request.run and r.status = 'cancelling') then
                select w.queues, w.ended_runs, w.asked, w.is_left into queues, ended_runs, asked, v_left
                from pipeline.withdraw_steps_v1(v_request.run) as w;
            end if;
        else
            if exists (
                select from pipeline.runs r where r.id = v_request.run and r.round > v_request.round
            ) then
                refused := 'reopened';
            else
                select c.refused, c.queues, c.ended_runs, c.asked into refused, queues, ended_runs, asked
                from pipeline.cancel_run_v1(v_request.run, v_request.kind::pipeline.stop_reason) as c;
            end if;
    end case;
    if v_left then
        state := 'held';
        wait_ms := pipeline.defer_request_v1(p_id, p_is_own, false, false);
        return;
    end if;
    if refused is not null and v_request.kind = 'cancel' and not p_is_own then
        -- The run, or its round, ended before the request could cancel it: an event records that.
        with told as (
            update pipeline.runs r set events = r.events + 1
            where r.id = v_request.run and r.event_level <> 'none'
            returning r.id, r.events
        )
        insert into pipeline.events (run, no, at, status)
        select told.id, told.events, v_now, 'cancel_came_too_late' from told;
    end if;
    delete from pipeline.requests q where q.id = p_id;
end $$;

CREATE FUNCTION pipeline.prune_batches_v1(p_age_ms bigint) RETURNS void
    LANGUAGE sql
    AS $$
    delete from pipeline.batch_sets b
    where b.finished_at < pipeline.now() - p_age_ms * interval '1 ms'
      and not exists (select from pipeline.jobs j where j.batch = b.id)
$$;

CREATE FUNCTION pipeline.prune_jobs_v1(p_age_ms bigint, p_limit integer) RETURNS bigint
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    AS $$
declare
    v_before timestamptz := pipeline.now() - p_age_ms * interval '1 ms';
    v_old bigint[];
begin
    select coalesce(array_agg(old.id), '{}') into v_old from (
        select j.id from pipeline.jobs j
        where j.ended_at < v_before and j.ended_at is not null
        order by j.ended_at, j.id
        limit p_limit
        for update skip locked
    ) as old;
    delete from pipeline.attempts a using unnest(v_old) as old (id) where a.job = old.id;
    delete from pipeline.jobs j using unnest(v_old) as old (id) where j.id = old.id;
    return cardinality(v_old);
end $$;

CREATE FUNCTION pipeline.prune_runs_v1(p_age_ms bigint, p_limit integer, p_steps bigint) RETURNS bigint
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    AS $$
declare
    v_before timestamptz := pipeline.now() - p_age_ms * interval '1 ms';
    v_run record;
    v_old bigint[] := '{}';
    v_steps bigint := 0;
begin
    for v_run in
        select r.id, g.size from pipeline.runs r
        join pipeline.graphs g on g.id = r.graph
        where r.status in ('succeeded', 'failed', 'halted', 'cancelled', 'skipped')
          -- `created_at` is indexed, and never later than `ended_at`.
          and r.created_at < v_before and r.ended_at < v_before
          and not exists (
              select from pipeline.chains c join pipeline.runs d on d.id = c.downstream
              where c.upstream = r.id and d.status = 'pending'
          )
        for update of r skip locked
    loop
        exit when v_old <> '{}' and v_steps + v_run.size > p_steps;
        v_old := v_old || v_run.id;
        v_steps := v_steps + v_run.size;
        exit when cardinality(v_old) >= p_limit;
    end loop;
    -- A run may have been chained to them before the lock; from now on none can be.
    select array_agg(old.id) into v_old from unnest(v_old) as old (id)
    where not exists (
        select from pipeline.chains c join pipeline.runs d on d.id = c.downstream
        where c.upstream = old.id and d.status = 'pending'
    );
    if v_old is null then
        return 0;
    end if;
    delete from pipeline.steps s where s.run = any (v_old);
    delete from pipeline.events e where e.run = any (v_old);
    delete from pipeline.dispatched_callbacks f where f.run = any (v_old);
    delete from pipeline.requests q where q.run = any (v_old);
    delete from pipeline.chains c where c.downstream = any (v_old);
    -- A run that is chained to one that did not succeed keeps the edge: if it is reopened, it is
    -- skipped, as it would be if that run were still there.
    delete from pipeline.chains c using pipeline.runs up
    where c.upstream = any (v_old) and up.id = c.upstream
      and (up.status = 'succeeded' or not exists (select from pipeline.runs d where d.id = c.downstream));
    delete from pipeline.attempts a
    using unnest(v_old) as old (run)
    where a.job >= pipeline.step_id(old.run, 0) and a.job < pipeline.step_id(old.run + 1, 0)
      and a.job % 2 = 0;  -- between them lie those of jobs that are no steps
    delete from pipeline.runs r where r.id = any (v_old);
    return cardinality(v_old);
end $$;

CREATE FUNCTION pipeline.queue_heads_v1(p_queues text[], p_to_queues text[], p_ranks integer[], p_times timestamp with time zone[], p_ids bigint[], p_to_ranks integer[]) RETURNS TABLE(range integer, step integer, after_queue text, after_rank integer, queue text, rank integer, run_at timestamp with time zone, id bigint, visited bigint)
    LANGUAGE sql STABLE
    AS $$
    with recursive head as (
        select r.ord::integer as range, 1 as step, null::text collate "C" as after_queue,
               null::integer as after_rank, r.to_queue, r.to_rank,
               h.queue, h.rank, h.run_at, h.id, pipeline.visited_entries_v1() - met.before as visited
        from unnest(p_queues, p_to_queues, p_ranks, p_times, p_ids, p_to_ranks)
             with ordinality as r (queue, to_queue, rank, run_at, id, to_rank, ord)
        cross join lateral (
            select pipeline.visited_entries_v1() as before where r.ord is not null offset 0
        ) as met
        left join lateral (
            (
                select j.queue, - j.priority::integer as rank, j.run_at, j.id from pipeline.jobs j
                where r.to_queue is null and j.status = 'ready' and j.queue = r.queue collate "C"
                  and (- j.priority::integer, j.run_at, j.id) >= (r.rank, r.run_at, r.id)
                  and - j.priority::integer < r.to_rank
                order by j.queue, - j.priority::integer, j.run_at, j.id
                limit 1
            ) union all (
                select j.queue, - j.priority::integer, j.run_at, j.id from pipeline.jobs j
                where r.to_queue is not null and j.status = 'ready'
                  and j.queue >= r.queue collate "C" and j.queue < r.to_queue collate "C"
                order by j.queue, - j.priority::integer, j.run_at, j.id
                limit 1
            )
        ) as h on true
        union all
        select head.range, head.step + 1, head.queue, head.rank, head.to_queue, head.to_rank,
               h.queue, h.rank, h.run_at, h.id, pipeline.visited_entries_v1() - met.before
        from head
        cross join lateral (
            select pipeline.visited_entries_v1() as before where head.id is not null offset 0
        ) as met
        left join lateral (
            (
                select j.queue, - j.priority::integer as rank, j.run_at, j.id from pipeline.jobs j
                where j.status = 'ready' and j.queue = head.queue collate "C"
                  and - j.priority::integer > head.rank and - j.priority::integer < head.to_rank
                order by j.queue, - j.priority::integer, j.run_at, j.id
                limit 1
            ) union all (
                select j.queue, - j.priority::integer, j.run_at, j.id from pipeline.jobs j
                where head.to_queue is not null and j.status = 'ready'
                  and j.queue > head.queue collate "C" and j.queue < head.to_queue collate "C"
                order by j.queue, - j.priority::integer, j.run_at, j.id
                limit 1
            )
            limit 1
        ) as h on true
    )
    select head.range, head.step, head.after_queue, head.after_rank, head.queue, head.rank, head.run_at,
           head.id, head.visited
    from head
$$;

CREATE FUNCTION pipeline.reconcile_runs_v1(p_worker bigint, p_every_ms bigint, p_limit integer, p_units bigint, OUT passed boolean, OUT checked integer, OUT runs bigint[], OUT firsts integer[], OUT lasts integer[], OUT is_end boolean[]) RETURNS record
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS $$
declare
    v_now timestamptz := pipeline.now();
    v_self pipeline.reconciler;
    v_run record;
    v_part record;
    v_first integer;
    v_left bigint := p_units;
    v_count integer := 0;
begin
    checked := 0;
    runs := '{}';
    firsts := '{}';
    lasts := '{}';
    is_end := '{}';
    -- A next_at far in the future was set before the clock was set back, or by a worker with a longer interval.
    select * into v_self from pipeline.reconciler r
    where r.next_at <= v_now or r.next_at > v_now + p_every_ms * interval '1 ms'
    for update skip locked;
    passed := found;
    if not passed then
        return;
    end if;

    -- The statuses of live runs come first.
    for v_run in
        select r.id, r.graph, true as is_rest, r.status, r.created_at from pipeline.runs r
        where r.id = v_self.part_run and r.status in ('pending', 'running', 'cancelling')
        union all
        (
            select r.id, r.graph, false, r.status, r.created_at from pipeline.runs r
            where r.status <= 'cancelling'
              and (r.status, r.created_at, r.id) > (v_self.at_status, v_self.at_time, v_self.at_run)
            order by r.status, r.created_at, r.id
            limit p_limit
        )
    loop
        exit when v_left <= 0;
        v_first := case when v_run.is_rest then v_self.part_from else 0 end;
        select * into v_part from pipeline.next_page_v1(v_run.graph, v_first, p_units);
        v_left := v_left - v_part.units;
        v_count := v_count + 1;
        checked := checked + v_part.is_end::integer;
        runs := runs || v_run.id;
        firsts := firsts || v_first;
        lasts := lasts || v_part.last;
        is_end := is_end || v_part.is_end;
        if not v_run.is_rest then
            v_self.at_status := v_run.status;
            v_self.at_time := v_run.created_at;
            v_self.at_run := v_run.id;
        end if;
        exit when not v_part.is_end;
    end loop;

    v_self.part_run := null;
    v_self.part_from := 0;
    if v_count > 0 and not is_end[v_count] then
        v_self.part_run := runs[v_count];
        v_self.part_from := lasts[v_count] + 1;
    elsif v_left > 0 and v_count < p_limit then
        -- After the last run, start over.
        v_self.at_status := 'pending';
        v_self.at_time := '-infinity';
        v_self.at_run := 0;
    end if;
    update pipeline.reconciler r
    set next_at = v_now + p_every_ms * 0.8 * interval '1 ms',
        at_status = v_self.at_status, at_time = v_self.at_time, at_run = v_self.at_run,
        part_run = v_self.part_run, part_from = v_self.part_from,
        acted_at = v_now, worker = p_worker, passes = r.passes + 1,
        checked = r.checked + reconcile_runs_v1.checked;
end $$;

CREATE FUNCTION pipeline.recount_open_edges_v1(p_run bigint, p_no integer) RETURNS void
    LANGUAGE sql
    AS $$
    update pipeline.steps s
    set open_edges = before.open, is_broken = before.is_broken, is_not_taken = before.is_not_taken
    from (
        select count(*) filter (where not ended)::integer as open,
               coalesce(bool_or(effect = 'broken') filter (where ended), false) as is_broken,
               coalesce(bool_or(effect = 'not_taken') filter (where ended), false) as is_not_taken
        from pipeline.runs r
        join pipeline.dependencies d on d.graph = r.graph and d.downstream = p_no
        join pipeline.nodes n on n.graph = r.graph and n.no = d.upstream
        join pipeline.nodes self on self.graph = r.graph and self.no = p_no
        join pipeline.steps up on up.run = r.id and up.no = d.upstream
        cross join lateral (
            select up.status not in ('pending', 'enqueued', 'waiting') as ended,
                   case when self.is_any then pipeline.any_edge_effect(up.status)
                        else pipeline.edge_effect(up.status, n.strategy = 'ignore', d.takes) end as effect
        ) as state
        where r.id = p_run
    ) as before
    where s.run = p_run and s.no = p_no and s.status = 'pending'
$$;

CREATE FUNCTION pipeline.release_claims_v1(p_ids bigint[], p_tokens bigint[]) RETURNS bigint
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
declare
    v_count bigint;
begin
    update pipeline.jobs j
    set status = 'ready', token = null, lease_until = null, attempt = j.attempt - 1
    from unnest(p_ids, p_tokens) as e (id, token)
    where j.id = e.id and j.token = e.token;
    get diagnostics v_count = row_count;
    return v_count;
end $$;

CREATE FUNCTION pipeline.release_unknown_claims_v1(p_worker bigint, p_known bigint[], p_within_ms bigint, OUT count bigint, OUT queues text[], OUT since timestamp with time zone) RETURNS record
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
declare
    v_unknown bigint[] := pipeline.unknown_claims_v1(p_worker, p_known, p_within_ms);
begin
    if v_unknown = '{}' then
        return;
    end if;
    with unheard as materialized (
        select j.id from pipeline.jobs j
        where j.id = any (v_unknown) and j.status = 'running' and j.worker = p_worker
        for update skip locked
    ), back as (
        update pipeline.jobs j
        set status = 'ready', token = null, lease_until = null, attempt = j.attempt - 1
        from unheard where j.id = unheard.id
        returning j.queue, j.run_at
    )
    select count(*), array_agg(distinct back.queue), min(back.run_at)
    into release_unknown_claims_v1.count, queues, since from back;
end $$;

CREATE FUNCTION pipeline.renew_leases_v1(p_ids bigint[], p_tokens bigint[], OUT lost bigint[], OUT held bigint[]) RETURNS record
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
declare
    v_now timestamptz := pipeline.now();
    v_renewed bigint[];
begin
    with ours as materialized (
        select j.id from pipeline.jobs j
        join unnest(p_ids, p_tokens) as e (id, token) on j.id = e.id and j.token = e.token
        for no key update of j skip locked
    ), renewed as (
        update pipeline.jobs j set lease_until = v_now + j.lease_ms * interval '1 ms'
        from ours where j.id = ours.id
        returning j.token
    )
    select coalesce(array_agg(token), '{}') into v_renewed from renewed;

    if cardinality(v_renewed) < cardinality(p_tokens) then
        select array_agg(e.token) filter (where j.id is null),
               array_agg(e.token) filter (where j.id is not null)
        into lost, held
        from unnest(p_ids, p_tokens) as e (id, token)
        left join pipeline.jobs j on j.id = e.id and j.token = e.token
        where e.token <> all (v_renewed);
    end if;
end $$;

CREATE FUNCTION pipeline.reopen_run_v1(p_run bigint, p_named text[], OUT refused text, OUT queues text[], OUT ended_runs pipeline.ended_run[], OUT left_pending bigint[]) RETURNS record
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS $$
declare
    v_run pipeline.runs;
    v_next bigint[];
    v_level bigint[];
    v_opened bigint[] := array[p_run];
begin
    select * into v_run from pipeline.runs where id = p_run;
    if v_run.status not in ('failed', 'halted', 'cancelled') then
        refused := v_run.status;
        return;
    end if;
    perform pipeline.reset_steps_v1(array[p_run], coalesce(p_named, '{}'));
    -- Follow the chains: a skipped run becomes pending again unless another upstream run blocks it. An upstream
    -- run that was pruned may block it too.
    v_level := array[p_run];
    loop
        select array_agg(distinct r.id) into v_next
        from pipeline.chains c
        join pipeline.runs r on r.id = c.downstream and r.status = 'skipped'
        where c.upstream = any (v_level)
          and not exists (
              select from pipeline.chains other left join pipeline.runs up on up.id = other.upstream
              where other.downstream = r.id and pipeline.chain_effect(up.status) = 'broken'
          );
        exit when v_next is null;
        perform pipeline.reset_steps_v1(v_next, '{}');
        v_opened := v_opened || v_next;
        v_level := v_next;
    end loop;
    if not exists (
        select from pipeline.chains c left join pipeline.runs up on up.id = c.upstream
        where c.downstream = p_run and pipeline.chain_effect(up.status) is distinct from 'satisfied'
    ) then
        select b.queues, b.ended_runs into queues, ended_runs from pipeline.start_chained_runs_v1(array[p_run]) as b;
    end if;
    with left_pending as (
        insert into pipeline.requests (id, run, created_at, next_at, kind)
        select nextval('pipeline.ids'), r.id, pipeline.now(), pipeline.now(), 'chain'
        from pipeline.runs r
        where r.id = any (v_opened) and r.status = 'pending'
        returning run
    )
    select array_agg(l.run) into left_pending from left_pending l;
    if left_pending is not null then
        perform pg_notify('pipeline_requests', '');
    end if;
end $$;

CREATE FUNCTION pipeline.repair_run_v1(p_run bigint, p_worker bigint, p_first integer, p_last integer, p_is_end boolean, OUT problems text[], OUT queues text[], OUT ended_runs pipeline.ended_run[]) RETURNS record
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS $$
declare
    v_now timestamptz := pipeline.now();
    v_found record;
    v_id bigint;
    v_message text;
    v_class text;
    v_ends pipeline.attempt_end[] := '{}';  -- of steps that fail
begin
    problems := '{}';
    perform from pipeline.runs r where r.id = p_run for no key update skip locked;
    if not found then
        return;
    end if;
    for v_found in
        select * from pipeline.run_problems_v1(array[p_run], array[p_first], array[p_last],
                                               array[p_is_end])
    loop
        v_id := pipeline.step_id(p_run, v_found.no);
        if v_found.problem = 'spoiled' then
            perform from pipeline.jobs j where j.id = v_id for update skip locked;
            continue when not found;
        end if;
        case v_found.problem
            when 'lost' then
                v_message := format('the queue row of step `%s` (job %s) is gone, and the step had not '
                                 'ended: somebody deleted it, or the server lost it; reopen the run '
                                 '(`run.reopen()`), and cancel a run instead of deleting its rows',
                                 v_found.key, v_id);
                v_class := 'QueueRowLost';
            when 'spoiled' then
                v_message := format('the queue row of step `%s` (job %s) was changed by somebody: %s, which '
                                 'no row of a live step can be; reopen the run (`run.reopen()`), and leave the '
                                 'rows of its steps alone', v_found.key, v_id, v_found.detail);
                v_class := 'QueueRowSpoiled';
                delete from pipeline.jobs j where j.id = v_id;
            when 'undecided' then
                v_message := format('all that step `%s` comes after has ended, and it was never decided: %s, '
                                 'so somebody changed its row or one before it; reopen the run '
                                 '(`run.reopen()`), and leave the rows of its steps alone',
                                 v_found.key, v_found.detail);
                v_class := 'StepUndecided';
                update pipeline.steps s set status = 'enqueued', enqueued_at = v_now
                where s.run = p_run and s.no = v_found.no;
            when 'open_edges' then
                v_message := format('step `%s`: %s and comes after %s that have not ended; set right',
                                 v_found.key, v_found.detail, v_found.fact);
                perform pipeline.recount_open_edges_v1(p_run, v_found.no);
            when 'forgotten' then
                v_message := format('run %s waits in its chain, and no run before it is on its way: somebody '
                                 'deleted or changed one; it is looked at once more', p_run);
                insert into pipeline.requests (id, run, created_at, kind)
                values (nextval('pipeline.ids'), p_run, v_now, 'chain');
                perform pg_notify('pipeline_requests', '');
            else
                v_message := format('run %s: %s and has %s; set right', p_run, v_found.detail, v_found.fact);
                update pipeline.runs r
                set live_steps = v_found.fact,
                    is_failed = exists (
                        select from pipeline.steps s
                        join pipeline.nodes n on n.graph = r.graph and n.no = s.no and not n.is_optional
                        where s.run = r.id and s.status = 'failed'
                    )
                where r.id = p_run;
        end case;
        problems := problems || v_message;
        if v_found.problem in ('lost', 'spoiled', 'undecided') then
            v_ends := v_ends || row(v_id, null, 'failed', v_found.attempt, null, 0, null, v_class, v_message,
                                    cardinality(v_ends))::pipeline.attempt_end;
        end if;
    end loop;

    if cardinality(v_ends) > 0 then
        select m.queues, m.ended_runs into queues, ended_runs
        from pipeline.advance_runs_v1(v_ends, p_worker, '{}', '{}') as m;
    elsif exists (select from pipeline.runs r where r.id = p_run and r.status <> 'pending'
                  and problems <> '{}') then
        -- A run without a live step ends here, unless it waits in a chain: settle_chained_run_v1 decides about that.
        select f.queues, f.ended_runs into queues, ended_runs
        from pipeline.finish_advance_v1(pipeline.unchanged_runs(array[p_run]), null, p_worker, '{}', '{}', false) as f;
    end if;
    if problems <> '{}' then
        perform pipeline.count_problems_v1(cardinality(problems));
    end if;
end $$;

CREATE FUNCTION pipeline.request_cancel_v1(p_run bigint, OUT is_missing boolean, OUT request bigint, OUT refused text, OUT queues text[], OUT ended_runs pipeline.ended_run[]) RETURNS record
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    AS $$
declare
    v_now timestamptz := pipeline.now();
    v_cancelled record;
begin
    is_missing := not exists (select from pipeline.runs r where r.id = p_run);
    if is_missing then
        return;
    elsif (select l.locked from pipeline.lock_runs_v1(array[p_run]) as l) then
        v_cancelled := pipeline.cancel_run_v1(p_run, 'cancel');
        refused := v_cancelled.refused;
        queues := v_cancelled.queues;
        ended_runs := v_cancelled.ended_runs;
    else
        request := nextval('pipeline.ids');
        insert into pipeline.requests (id, run, created_at, next_at, turn_until, round, kind)
        select request, p_run, v_now, v_now + interval '2 s', v_now + interval '2 s', r.round, 'cancel'
        from pipeline.runs r where r.id = p_run;
    end if;
end $$;

CREATE FUNCTION pipeline.request_deadlines_v1(p_limit integer) RETURNS void
    LANGUAGE sql
    AS $$
    insert into pipeline.requests (id, run, created_at, next_at, round, kind)
    select nextval('pipeline.ids'), r.id, pipeline.now(), pipeline.now(), r.round, 'deadline'
    from pipeline.overdue_runs_v1(p_limit) as overdue (run)
    join pipeline.runs r on r.id = overdue.run
    on conflict do nothing
$$;

CREATE FUNCTION pipeline.reset_steps_v1(p_runs bigint[], p_named text[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
    v_now timestamptz := pipeline.now();
begin
    update pipeline.steps s
    set status = 'pending', open_edges = n.in_edges, is_broken = false, is_not_taken = false,
        reason = null, cause = null, enqueued_at = null, ended_at = null, error_class = null, error_message = null, token = null,
        attempt = 0, ran_ms = null, arm = null, output = null, output_bytes = null
    from unnest(p_runs) as e (run)
    join pipeline.runs r on r.id = e.run
    cross join lateral unnest(pipeline.steps_to_reset_v1(e.run, p_named)) as again (no)
    cross join lateral (
        select b.ctid as row from pipeline.steps b where b.run = e.run and b.no = again.no offset 0
    ) as before
    cross join lateral (
        select n.in_edges from pipeline.nodes n where n.graph = r.graph and n.no = again.no offset 0
    ) as n
    where s.ctid = before.row;
    with opened as (
        update pipeline.runs r
        set status = 'pending', round = r.round + 1, halt_triggered = false, stop_reason = null, started_at = null,
            ended_at = null, deadline_at = null, callbacks_dispatched_at = null,
            events = r.events + (r.event_level <> 'none')::integer,
            live_steps = (select count(*) from pipeline.steps s
                    where s.run = r.id and s.ended_at is null),
            is_failed = exists (
                select from pipeline.steps s
                join pipeline.nodes n on n.graph = r.graph and n.no = s.no and not n.is_optional
                where s.run = r.id and s.status = 'failed'
            )
        where r.id = any (p_runs)
        returning r.id, r.events, r.event_level
    )
    insert into pipeline.events (run, no, at, status)
    select id, events, v_now, 'reopened' from opened where event_level <> 'none';
end $$;

CREATE FUNCTION pipeline.retry_job_v1(p_job bigint, OUT result text, OUT key text, OUT holder bigint) RETURNS record
    LANGUAGE plpgsql
    AS $$
declare
    v_job pipeline.jobs;
begin
    -- Locks the batch first, in the lock order of all functions.
    perform from pipeline.batch_sets b
    where b.id = (select batch from pipeline.jobs where id = p_job)
    for no key update;
    select * into v_job from pipeline.jobs where id = p_job for update;
    result := v_job.status;
    if v_job.status is null or v_job.status not in ('failed', 'discarded') then
        return;
    end if;
    select j.key, j.id into key, holder from pipeline.jobs j
    where j.job_type = v_job.job_type and j.key = v_job.key
      and j.status in ('scheduled', 'ready', 'running');
    if found then
        return;
    end if;
    begin
        -- A finished batch stays finished, and no longer counts this job.
        update pipeline.batch_sets set ended = ended - 1, failed = failed - 1
        where id = v_job.batch and finished_at is null;
        update pipeline.jobs
        set status = 'ready', run_at = pipeline.now(), attempt = 0, ended_at = null,
            unknown_since = null, batch = case when found then v_job.batch end
        where id = p_job;
    exception when unique_violation then
        -- The index has waited for a transaction that enqueued a job with the same key.
        select j.key, j.id into key, holder from pipeline.jobs j
        where j.job_type = v_job.job_type and j.key = v_job.key
          and j.status in ('scheduled', 'ready', 'running');
        if found then
            return;
        end if;
        raise;
    end;
    perform pipeline.notify_queues_v1(array[v_job.queue], pipeline.now());
    result := 'done';
end $$;

CREATE FUNCTION pipeline.run_of(p_id bigint) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ select p_id >> 18 $$;

CREATE FUNCTION pipeline.run_problems_v1(p_runs bigint[], p_first integer[], p_last integer[], p_is_end boolean[]) RETURNS TABLE(run bigint, no integer, key text, problem text, fact integer, attempt smallint, detail text)
    LANGUAGE sql STABLE
    AS $$
    select r.id, s.no, n.key, case when j.id is null then 'lost' else 'spoiled' end, null::integer,
           coalesce(j.attempt, (select max(a.attempt) from pipeline.attempts a
                                where a.job = pipeline.step_id(r.id, s.no)), 0::smallint),
           spoiled.detail
    from unnest(p_runs, p_first, p_last) as e (run, first, last)
    cross join lateral (
        select r.id, r.graph from pipeline.runs r
        where r.id = e.run and r.status in ('running', 'cancelling') offset 0
    ) as r
    cross join lateral (
        select s.no from pipeline.steps s
        where s.run = r.id and s.no between e.first and e.last and s.status = 'enqueued' offset 0
    ) as s
    cross join lateral (
        select n.key, n.job_type from pipeline.nodes n
        where n.graph = r.graph and n.no = s.no and n.kind in ('job', 'branch') offset 0
    ) as n
    left join lateral (
        select j.* from pipeline.jobs j where j.id = pipeline.step_id(r.id, s.no) offset 0
    ) as j on true
    cross join lateral (
        select case
            when j.status in ('succeeded', 'failed', 'discarded') then format('it is %s', j.status)
            when j.job_type <> n.job_type then format('its type is `%s` and not `%s`', j.job_type, n.job_type)
            when j.batch is not null then format('it is in batch %s', j.batch)
            when j.lease_ms <= 0 then format('its lease is %s ms long', j.lease_ms)
            when not isfinite(j.lease_until) then 'its lease never runs out'
        end as detail
    ) as spoiled
    where j.id is null or spoiled.detail is not null

    union all
    select r.id, s.no,
           (select n.key from pipeline.nodes n where n.graph = r.graph and n.no = s.no),
           case when open.count = 0 then 'undecided' else 'open_edges' end, open.count, s.attempt,
           format('it waits for %s', s.open_edges)
    from unnest(p_runs, p_first, p_last) as e (run, first, last)
    cross join lateral (
        select r.id, r.graph from pipeline.runs r
        where r.id = e.run and r.status = 'running' offset 0
    ) as r
    cross join lateral (
        select s.no, s.open_edges, s.attempt from pipeline.steps s
        where s.run = r.id and s.no between e.first and e.last and s.status = 'pending' offset 0
    ) as s
    cross join lateral (
        select count(*)::integer
        from (
            select d.upstream from pipeline.dependencies d where d.graph = r.graph and d.downstream = s.no offset 0
        ) as d
        cross join lateral (
            select from pipeline.steps up
            where up.run = r.id and up.no = d.upstream and up.status in ('pending', 'enqueued', 'waiting')
            offset 0
        ) as up
    ) as open
    where open.count = 0 or open.count <> s.open_edges

    union all
    select r.id, null, null, case when live.count = r.live_steps then 'not_ended' else 'live_steps' end, live.count, null,
           format('it counts %s live steps', r.live_steps)
    from unnest(p_runs, p_is_end) as e (run, is_end)
    join pipeline.runs r on e.is_end and r.id = e.run and r.status in ('pending', 'running', 'cancelling')
    cross join lateral (
        select count(*)::integer from pipeline.steps s
        where s.run = r.id and s.status in ('pending', 'enqueued', 'waiting')
    ) as live
    where live.count <> r.live_steps or live.count = 0 and r.status <> 'pending'

    union all
    select r.id, null, null, 'forgotten', null, null, null
    from unnest(p_runs, p_is_end) as e (run, is_end)
    join pipeline.runs r on e.is_end and r.id = e.run and r.status = 'pending'
    where not exists (
              select from pipeline.chains c join pipeline.runs up on up.id = c.upstream
              where c.downstream = r.id and up.status in ('pending', 'running', 'cancelling')
          )
      and not exists (select from pipeline.requests q where q.run = r.id)
$$;

CREATE FUNCTION pipeline.runs_to_check_v1(p_runs bigint[], p_first integer[], p_last integer[], p_is_end boolean[]) RETURNS bigint[]
    LANGUAGE plpgsql STABLE
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS $$
begin
    return (select array_agg(distinct p.run order by p.run)
            from pipeline.run_problems_v1(p_runs, p_first, p_last, p_is_end) as p);
end $$;

CREATE FUNCTION pipeline.set_first_cause_v1(p_released pipeline.released_step[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
    update pipeline.steps s set cause = first.upstream
    from unnest(p_released) as e
    join pipeline.runs r on r.id = e.run
    join pipeline.nodes n on n.graph = r.graph and n.no = e.no and n.is_any
    cross join lateral (
        select d.upstream from pipeline.dependencies d
        join pipeline.steps up on up.run = e.run and up.no = d.upstream and up.status = 'succeeded'
        where d.graph = r.graph and d.downstream = e.no
        order by d.position
        limit 1
    ) as first
    where s.run = e.run and s.no = e.no;
end $$;

CREATE FUNCTION pipeline.settle_batches_v1(p_batches bigint[], p_ended integer[], p_failed integer[]) RETURNS text[]
    LANGUAGE plpgsql
    AS $$
begin
    update pipeline.batch_sets b
    set ended = b.ended + e.ended, failed = b.failed + e.failed
    from unnest(p_batches, p_ended, p_failed) as e (id, ended, failed)
    where b.id = e.id;
    return pipeline.finish_batches_v1(p_batches);
end $$;

CREATE FUNCTION pipeline.settle_chained_run_v1(p_run bigint, OUT queues text[], OUT ended_runs pipeline.ended_run[]) RETURNS record
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS $$
declare
    v_now timestamptz := pipeline.now();
    v_up record;
    v_ended pipeline.ended_step[];
begin
    if not exists (select from pipeline.runs r where r.id = p_run and r.status = 'pending') then
        return;
    end if;
    -- Both are null if the run is not chained to any run.
    select bool_or(pipeline.chain_effect(up.status) = 'broken') as is_broken,
           bool_and(pipeline.chain_effect(up.status) is not distinct from 'satisfied') as is_satisfied
    into v_up
    from pipeline.chains c left join pipeline.runs up on up.id = c.upstream where c.downstream = p_run;
    if v_up.is_broken then
        with skipped as (
            update pipeline.steps s set status = 'skipped', ended_at = v_now, reason = 'run_skipped'
            where s.run = p_run and s.status = 'pending'
            returning s.run, s.no
        )
        select array_agg(pipeline.ended_with_run(s.run, s.no, 'skipped', null)) into v_ended from skipped s;
        select f.queues, f.ended_runs into queues, ended_runs
        from pipeline.finish_advance_v1(v_ended || pipeline.unchanged_runs(array[p_run]), null, 0, '{}', '{}', false)
             as f;
    elsif v_up.is_satisfied is not false then
        select b.queues, b.ended_runs into queues, ended_runs from pipeline.start_chained_runs_v1(array[p_run]) as b;
    end if;
end $$;

CREATE FUNCTION pipeline.settle_chains_v1(p_ended bigint[], p_locked boolean, OUT skipped pipeline.ended_step[], OUT ready bigint[]) RETURNS record
    LANGUAGE plpgsql
    AS $$
declare
    v_now timestamptz := pipeline.now();
    v_reached bigint[];
    v_mine bigint[];
    v_held bigint[];
    v_skipped bigint[];
begin
    v_reached := case when p_locked
        then array(select distinct c.downstream from pipeline.chains c where c.upstream = any (p_ended))
        else pipeline.downstream_runs_v1(p_ended) end;
    with mine as (
        select r.id from pipeline.runs r
        where r.id = any (v_reached) and r.status = 'pending'
        order by r.id for no key update skip locked
    )
    select coalesce(array_agg(mine.id), '{}') into v_mine from mine;
    if not p_locked and cardinality(v_mine) < cardinality(v_reached) then
        v_reached := array(select unnest(v_reached) except select unnest(v_mine));
        select array_agg(r.id) into v_held from pipeline.runs r
        where r.id = any (v_reached) and r.status = 'pending';
        if v_held is not null then
            raise exception using
                errcode = 'PB001',
                message = format('another transaction holds run %s, which waits in a chain behind a run that '
                                 'ends now; nothing was written: try again later', v_held[1]),
                detail = (
                    select string_agg(e.id::text, ',' order by e.id) from unnest(p_ended) as e (id)
                    where pipeline.downstream_runs_v1(array[e.id]) && v_held
                );
        end if;
    end if;

    select array_agg(d.id) filter (where d.is_broken),
           array_agg(d.id) filter (where d.is_satisfied)
    into v_skipped, ready
    from (
        select r.id, bool_or(pipeline.chain_effect(up.status) = 'broken') as is_broken,
               bool_and(pipeline.chain_effect(up.status) is not distinct from 'satisfied') as is_satisfied
        from (
            select c.downstream from pipeline.chains c where c.upstream = any (p_ended)
            intersect select unnest(v_mine)
        ) as touched
        join pipeline.runs r on r.id = touched.downstream and r.status = 'pending'
        join pipeline.chains c on c.downstream = r.id
        left join pipeline.runs up on up.id = c.upstream
        group by r.id
    ) as d;
    if v_skipped is not null then
        with changed as (
            update pipeline.steps s
            set status = 'skipped', ended_at = v_now, reason = 'run_skipped'
            where s.run = any (v_skipped) and s.status = 'pending'
            returning s.run, s.no
        )
        select array_agg(pipeline.ended_with_run(c.run, c.no, 'skipped', null)) into skipped from changed c;
    end if;
end $$;

CREATE FUNCTION pipeline.skip_arms_v1(p_ended pipeline.ended_step[]) RETURNS pipeline.ended_step[]
    LANGUAGE plpgsql
    AS $$
declare
    v_now timestamptz := pipeline.now();
    v_skipped pipeline.ended_step[];
begin
    with skipped as (
        update pipeline.steps s
        set status = 'skipped_by_branch', ended_at = v_now, cause = a.branch, reason = 'not_chosen'
        from unnest(p_ended) as e
        join pipeline.arms a on a.graph = e.graph and a.branch = e.no and a.arm is distinct from e.kept_arm
        cross join lateral (
            select n.out_edges from pipeline.nodes n where n.graph = a.graph and n.no = a.no offset 0
        ) as n
        where e.skips_arms and s.run = e.run and s.no = a.no and s.status = 'pending'
        returning s.run, s.no, e.graph, n.out_edges
    )
    select array_agg(row(s.run, s.no, s.graph, 'skipped_by_branch', false, false, false, null, null, false, null,
                         s.out_edges)::pipeline.ended_step)
    into v_skipped from skipped s;
    return p_ended || v_skipped;
end $$;

CREATE FUNCTION pipeline.start_chained_runs_v1(p_runs bigint[], p_is_chain_locked boolean DEFAULT false, OUT queues text[], OUT ended_runs pipeline.ended_run[]) RETURNS record
    LANGUAGE plpgsql
    AS $$
declare
    v_now timestamptz := pipeline.now();
    v_first pipeline.released_step[];
    v_before pipeline.ended_step[];     -- steps that ended in an earlier round
    v_decided record;
    v_ended pipeline.ended_step[];
    v_finished record;
begin
    with begun as (
        update pipeline.runs r
        set status = 'running', started_at = v_now, events = r.events + (r.event_level <> 'none')::integer,
            deadline_at = v_now + g.deadline_ms * interval '1 ms'
        from pipeline.graphs g
        where r.id = any (p_runs) and g.id = r.graph
        returning r.id, r.events, r.event_level
    )
    insert into pipeline.events (run, no, at, status)
    select id, events, v_now, 'running' from begun where event_level <> 'none';

    with first as (
        update pipeline.steps s set status = 'enqueued', enqueued_at = v_now
        from unnest(p_runs) as e (run)
        join pipeline.runs r on r.id = e.run
        join pipeline.nodes n on n.graph = r.graph
        where s.run = e.run and s.no = n.no and s.status = 'pending' and s.open_edges = 0
        returning s.run, s.no, s.params, n.job_type, n.queue, n.priority, n.max_attempts, n.lease_ms, n.delay_ms, n.key,
                  n.options, n.input
    )
    select array_agg(row(
        f.run, f.no, null, null, f.params, f.job_type, f.queue, f.priority, f.max_attempts, f.lease_ms, f.delay_ms, f.key,
        f.options, f.input
    )::pipeline.released_step) into v_first from first f;

    select array_agg(row(
        s.run, s.no, r.graph, s.status, n.strategy = 'ignore', false, false, null, null,
        n.kind = 'branch' and s.status in ('succeeded', 'skipped_by_branch'),
        case when s.status = 'succeeded' then s.arm end, n.out_edges
    )::pipeline.ended_step) into v_before
    from unnest(p_runs) as e (run)
    join pipeline.runs r on r.id = e.run
    cross join lateral (
        select s.run, s.no, s.status, s.arm from pipeline.steps s
        where s.run = e.run and s.ended_at is not null offset 0
    ) as s
    cross join lateral (
        select n.kind, n.strategy, n.out_edges from pipeline.nodes n
        where n.graph = r.graph and n.no = s.no offset 0
    ) as n;
    if v_before is not null then
        v_decided := pipeline.decide_downstream_v1(v_before);
        -- Without the given steps: the earlier round has counted them.
        v_ended := v_decided.ended[cardinality(v_before) + 1:];
        v_first := v_first || v_decided.released;
    end if;
    v_finished := pipeline.finish_advance_v1(v_ended || pipeline.unchanged_runs(p_runs), v_first, 0, '{}', '{}',
                                     p_is_chain_locked);
    queues := v_finished.queues;
    ended_runs := v_finished.ended_runs;
end $$;

CREATE FUNCTION pipeline.start_keyed_runs_v1(p_graph bigint, p_pipeline text, p_deadline_ms bigint, p_size integer, p_chained boolean, p_runs pipeline.new_run[], p_new bigint[], OUT result pipeline.start_result, OUT ids bigint[], OUT outcomes pipeline.start_outcome[]) RETURNS record
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
    v_now timestamptz := pipeline.now();
    v_new bigint[] := p_new;    -- the ids of the inserted runs
    v_taken boolean;
    v_keyed record;
    v_there record;
    v_outcome pipeline.start_outcome;
    v_tries integer;
begin
    -- Usually all runs without a key are new, or none of them: then no id is searched in the list.
    select array_agg(r.id order by r.ord),
           array_agg(case when r.key is not null then null
                          when r.all_new or r.id = any (v_new) then 'new'
                          else 'sent' end::pipeline.start_outcome order by r.ord),
           bool_or(r.key is null and not r.all_new and r.id <> all (v_new) and not exists (
               select from pipeline.runs t where t.id = r.id and t.nonce = r.nonce
           ))
    into ids, outcomes, v_taken
    from (
        select r.id, r.nonce, r.key, r.ord,
               count(*) filter (where r.key is null) over () = cardinality(v_new) as all_new
        from unnest(p_runs) with ordinality
             as r (id, nonce, rerun_of, event_level, key, params_hash, actor, params, callbacks, tags, ord)
    ) as r;
    if v_taken then
        delete from pipeline.runs r where r.id = any (v_new);
        select 'ids_taken' into result, ids, outcomes;
        return;
    end if;

    -- Sorted by key: two transactions that start runs with the same keys lock them in the same order and
    -- cannot deadlock. Keys compare by their bytes, as the client does when it sorts runs into pages.
    for v_keyed in
        select r.*
        from unnest(p_runs) with ordinality
             as r (id, nonce, rerun_of, event_level, key, params_hash, actor, params, callbacks, tags, ord)
        where r.key is not null
        order by r.key collate "C", r.ord
    loop
        v_tries := 0;
        v_outcome := null;
        while v_outcome is null loop
            insert into pipeline.runs (id, nonce, graph, created_at, started_at, deadline_at, rerun_of,
                                       live_steps, events, status, event_level, pipeline, actor, params, callbacks,
                                       tags, key, params_hash)
            values (v_keyed.id, v_keyed.nonce, p_graph, v_now, case when not p_chained then v_now end,
                    case when not p_chained then v_now + p_deadline_ms * interval '1 ms' end,
                    v_keyed.rerun_of, p_size, (v_keyed.event_level <> 'none')::integer,
                    case when p_chained then 'pending' else 'running' end::pipeline.run_status,
                    v_keyed.event_level, p_pipeline, v_keyed.actor, v_keyed.params,
                    pipeline.checked_callbacks(v_keyed.callbacks), v_keyed.tags, v_keyed.key,
                    v_keyed.params_hash)
            on conflict do nothing;
            if found then
                v_new := v_new || v_keyed.id;
                v_outcome := 'new';
                exit;
            end if;
            select r.id, r.nonce, r.params_hash into v_there from pipeline.runs r
            where r.pipeline = p_pipeline and r.key = v_keyed.key;
            if found then
                ids[v_keyed.ord] := v_there.id;
                v_outcome := case when v_there.nonce = v_keyed.nonce then 'sent'
                                  when v_there.params_hash = v_keyed.params_hash then 'same'
                                  else 'other' end;
                exit;
            end if;
            if exists (select from pipeline.runs r where r.id = v_keyed.id) then
                delete from pipeline.runs r where r.id = any (v_new);
                select 'ids_taken' into result, ids, outcomes;
                return;
            end if;
            -- The other run was deleted between the statements: the key, or the id, is free again.
            v_tries := v_tries + 1;
            if v_tries = 100 then
                raise serialization_failure using message = format(
                    'a key of pipeline %s was taken and given back 100 times meanwhile', p_pipeline);
            end if;
        end loop;
        outcomes[v_keyed.ord] := v_outcome;
    end loop;
    result := 'started';
    if 'other' = any (outcomes) then
        delete from pipeline.runs r where r.id = any (v_new);
        result := 'key_conflict';
    end if;
end $$;

CREATE FUNCTION pipeline.start_rerun_v1(p_run bigint, p_id bigint, p_nonce bigint) RETURNS TABLE(id bigint, result pipeline.start_result)
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
#variable_conflict use_column
declare
    v_now timestamptz := pipeline.now();
    v_graph bigint;
    v_outcomes pipeline.start_outcome[];
    v_count bigint;
begin
    -- Keeps the run from being pruned while its steps are copied.
    perform from pipeline.runs r where r.id = p_run for key share;
    select r.graph, p_id, s.result, s.outcomes into v_graph, id, result, v_outcomes
    from pipeline.runs r
    join pipeline.graphs g on g.id = r.graph
    cross join lateral pipeline.start_runs_v1(
        g.id, g.fingerprint, false,
        array[(p_id, p_nonce, r.id, r.event_level, null, null, r.actor, r.params, r.callbacks, r.tags)
              ::pipeline.new_run],
        '{}', null, null
    ) as s
    where r.id = p_run;
    if not found then
        return;
    end if;
    if result = 'started' and v_outcomes is null then
        -- Copied row by row, because the params of all steps together may be too large for one array.
        insert into pipeline.steps (run, no, open_edges, status, enqueued_at, params)
        select p_id, s.no, n.in_edges,
               case when n.in_edges = 0 then 'enqueued' else 'pending' end::pipeline.step_status,
               case when n.in_edges = 0 then v_now end, s.params
        from pipeline.steps s
        join pipeline.nodes n on n.graph = v_graph and n.no = s.no
        where s.run = p_run;
        get diagnostics v_count = row_count;
        if v_count <> (select g.size from pipeline.graphs g where g.id = v_graph) then
            raise exception using
                errcode = 'PB002',
                message = format('run %s has %s steps, which are not all of its graph: somebody deleted some; start the '
                                 'pipeline anew', p_run, v_count);
        end if;
        insert into pipeline.jobs (id, status, run_at, created_at, job_type, queue, priority, max_attempts,
                                   lease_ms, args)
        select pipeline.step_id(p_id, n.no),
               case when n.delay_ms > 0 then 'scheduled' else 'ready' end::pipeline.job_status,
               v_now + n.delay_ms * interval '1 ms', v_now, n.job_type, n.queue, n.priority, n.max_attempts,
               n.lease_ms, 'null'
        from pipeline.nodes n
        where n.graph = v_graph and n.in_edges = 0;
        perform pipeline.notify_queues_v1(
            array(select n.queue from pipeline.nodes n where n.graph = v_graph and n.in_edges = 0), v_now
        );
    end if;
    return next;
end $$;

CREATE FUNCTION pipeline.start_runs_v1(p_graph bigint, p_fingerprint bytea, p_chained boolean, p_runs pipeline.new_run[], p_steps pipeline.new_step[], p_worker bigint, p_database text, OUT result pipeline.start_result, OUT ids bigint[], OUT outcomes pipeline.start_outcome[], OUT handed_over boolean) RETURNS record
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
#variable_conflict use_column
declare
    v_now timestamptz := pipeline.now();
    v_graph record;
    v_new bigint[];             -- the ids of the inserted runs
    v_steps pipeline.new_step[] := p_steps;
begin
    handed_over := false;
    select g.size, g.pipeline, g.deadline_ms into v_graph from pipeline.graphs g
    where g.id = p_graph and g.fingerprint = p_fingerprint;
    if not found then
        result := 'no_graph';
        return;
    end if;
    result := 'started';

    with fresh as (
        insert into pipeline.runs (id, nonce, graph, created_at, started_at, deadline_at, rerun_of, live_steps,
                                   events, status, event_level, pipeline, actor, params, callbacks, tags)
        select r.id, r.nonce, p_graph, v_now, case when not p_chained then v_now end,
               case when not p_chained then v_now + v_graph.deadline_ms * interval '1 ms' end,
               r.rerun_of, v_graph.size, (r.event_level <> 'none')::integer,
               case when p_chained then 'pending' else 'running' end::pipeline.run_status, r.event_level,
               v_graph.pipeline, r.actor, r.params, pipeline.checked_callbacks(r.callbacks), r.tags
        from unnest(p_runs) as r
        where r.key is null
        on conflict (id) do nothing
        returning runs.id
    )
    select coalesce(array_agg(fresh.id), '{}') into v_new from fresh;

    if cardinality(v_new) < cardinality(p_runs) then
        select s.result, s.ids, s.outcomes into result, ids, outcomes
        from pipeline.start_keyed_runs_v1(p_graph, v_graph.pipeline, v_graph.deadline_ms, v_graph.size,
                                      p_chained, p_runs, v_new) as s;
        if result <> 'started' or 'new' <> all (outcomes) then
            return;
        end if;
        -- The steps of the other runs exist.
        select array_agg(i.id) filter (where i.outcome = 'new') into v_new
        from unnest(ids, outcomes) as i (id, outcome);
        select array_agg((s.run, s.token, s.no, s.open_edges, s.params)::pipeline.new_step order by s.ord)
        into v_steps
        from unnest(p_steps) with ordinality as s (run, token, no, open_edges, params, ord)
        where outcomes[(s.ord - 1) / v_graph.size + 1] = 'new';
    end if;

    insert into pipeline.events (run, no, at, status)
    select r.id, 1, v_now, r.status::text
    from unnest(v_new) as n (id)
    cross join lateral (
        select r.id, r.status from pipeline.runs r where r.id = n.id and r.event_level <> 'none' offset 0
    ) as r;

    handed_over := pipeline.insert_steps_v1(p_graph, p_chained, v_steps, p_worker, p_database);
end $$;

CREATE FUNCTION pipeline.step_id(p_run bigint, p_no integer) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ select (p_run << 18) + 2 * p_no $$;

CREATE FUNCTION pipeline.step_outcome_after(p_outcome pipeline.attempt_outcome, p_is_last boolean, p_error_class text, p_status pipeline.run_status, p_stop_reason pipeline.stop_reason) RETURNS pipeline.attempt_outcome
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select case
        when p_outcome in ('succeeded', 'ended_run') then p_outcome
        when p_is_last and p_status = 'cancelling'
             and (p_outcome = 'lease_lost' or p_error_class = 'RunCancelled')
            then 'cancelled'::pipeline.attempt_outcome
        when p_is_last then 'failed'
        when p_stop_reason is null then null
        when p_error_class is not null then 'failed'
        else 'cancelled'
    end
$$;

CREATE FUNCTION pipeline.step_status_after(p_open integer, p_is_any boolean, p_kind pipeline.node_kind, p_has_success boolean, p_is_broken boolean, p_is_not_taken boolean) RETURNS pipeline.step_status
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
    select case
        when p_is_any and p_has_success then 'enqueued'::pipeline.step_status
        when p_open > 0 then 'pending'
        when p_is_any and p_is_broken then 'skipped'
        when p_is_any or p_is_not_taken then 'skipped_by_branch'
        when p_is_broken then 'skipped'
        when p_kind in ('barrier', 'merge') then 'succeeded'
        else 'enqueued'
    end
$$;

CREATE FUNCTION pipeline.steps_to_reset_v1(p_run bigint, p_named text[]) RETURNS integer[]
    LANGUAGE plpgsql STABLE
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS $$
declare
    v_graph bigint;
    v_again integer[];
    v_left_out integer[] := '{}';       -- steps that cx.end_run() left out, and that are reset nevertheless
    v_more integer[];
begin
    select r.graph into v_graph from pipeline.runs r where r.id = p_run;
    loop
        with recursive again (no, is_path) as (
            select s.no, false
            from (
                select s.no, s.status, s.reason from pipeline.steps s
                where s.run = p_run and s.status in ('skipped', 'cancelled', 'failed') offset 0
            ) as s
            cross join lateral (
                select n.strategy, n.key from pipeline.nodes n where n.graph = v_graph and n.no = s.no offset 0
            ) as n
            where case s.status
                when 'failed' then n.strategy <> 'ignore' or n.key = any (p_named)
                else s.reason is distinct from 'ended_by' or s.no = any (v_left_out)
            end
            union
            select d.downstream, true
            from again a
            cross join lateral (
                select o.no as downstream from pipeline.nodes n cross join lateral unnest(n.out_edges) as o
                where n.graph = v_graph and n.no = a.no and (a.is_path or o.takes = 'failure') offset 0
            ) as d
            cross join lateral (
                select from pipeline.steps s
                where s.run = p_run and s.no = d.downstream
                  and (s.reason is distinct from 'ended_by' or s.no = any (v_left_out)) offset 0
            ) as s
        )
        select array_agg(distinct a.no) into v_again from again a;
        select array_agg(s.no) into v_more from pipeline.steps s
        where s.run = p_run and s.reason = 'ended_by' and s.no <> all (v_left_out)
          and s.cause in (select unnest(v_again));
        exit when v_more is null;
        v_left_out := v_left_out || v_more;
    end loop;
    return coalesce(v_again, '{}');
end $$;

CREATE FUNCTION pipeline.steps_with_errors_v1(p_run bigint, p_graph bigint, p_status pipeline.step_status) RETURNS jsonb
    LANGUAGE plpgsql
    AS $$
begin
    return coalesce((
        select jsonb_agg(jsonb_build_object('step', f.key, 'class', f.error_class,
                                            'message', f.error_message) order by f.no)
        from (
            select n.key, s.no, s.error_class, s.error_message
            from pipeline.steps s
            join pipeline.nodes n on n.graph = p_graph and n.no = s.no
            where s.run = p_run and s.status = p_status and s.error_class is not null
            order by s.no
            limit 100
        ) as f
    ), '[]');
end $$;

CREATE FUNCTION pipeline.store_graph_v1(p_fingerprint bytea, p_pipeline text, p_deadline_ms bigint, p_spec json, p_nodes json, p_edges json, p_arms json, p_callbacks json, p_alone boolean) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
declare
    v_graph bigint;
begin
    if p_alone then
        perform pg_advisory_xact_lock(
            ('x' || encode(substr(p_fingerprint, 1, 8), 'hex'))::bit(64)::bigint);
    end if;
    select id into v_graph from pipeline.graphs
    where fingerprint = p_fingerprint order by id limit 1;
    if found then
        return v_graph;
    end if;
    insert into pipeline.graphs (id, fingerprint, pipeline, size, deadline_ms, spec, created_at)
    values (nextval('pipeline.ids'), p_fingerprint, p_pipeline, json_array_length(p_nodes),
            p_deadline_ms, p_spec, pipeline.now())
    returning id into v_graph;
    insert into pipeline.nodes (graph, no, in_edges, lease_ms, delay_ms, version, branch, priority,
                                max_attempts, kind, strategy, is_any, is_optional, is_exempt, key, job_type, queue,
                                options, input, arms, returns, out_edges)
    select v_graph, n.no, n.in_edges, n.lease_ms, n.delay_ms, n.version, n.branch, n.priority,
           n.max_attempts, n.kind, n.strategy, n.is_any, n.is_optional, n.is_exempt, n.key, n.job_type, n.queue,
           n.options, n.input, n.arms, n.returns, o.out_edges
    from json_to_recordset(p_nodes) as n (
        no integer, in_edges integer, lease_ms integer, delay_ms bigint, version integer,
        branch integer, priority smallint, max_attempts smallint, kind pipeline.node_kind,
        strategy pipeline.strategy, is_any boolean, is_optional boolean, is_exempt boolean, key text,
        job_type text, queue text, options jsonb, input json, arms text[], returns integer[]
    )
    left join (
        select e.upstream,
               array_agg(row(e.downstream, e.takes)::pipeline.out_edge order by e.downstream, e.position) as out_edges
        from json_to_recordset(p_edges)
             as e (upstream integer, downstream integer, position integer, takes pipeline.takes)
        group by e.upstream
    ) as o on o.upstream = n.no;
    insert into pipeline.dependencies (graph, upstream, downstream, position, takes)
    select v_graph, e.upstream, e.downstream, e.position, e.takes
    from json_to_recordset(p_edges) as e (upstream integer, downstream integer, position integer, takes pipeline.takes);
    insert into pipeline.arms (graph, branch, arm, no)
    select v_graph, a.branch, a.arm, a.no
    from json_to_recordset(p_arms) as a (branch integer, arm integer, no integer);
    insert into pipeline.callbacks (graph, position, lease_ms, version, priority, max_attempts, fires, job_type,
                                    queue, options)
    select v_graph, c.position, c.lease_ms, c.version, c.priority, c.max_attempts, c.fires, c.job_type, c.queue,
           c.options
    from json_to_recordset(p_callbacks) as c (
        position integer, lease_ms integer, version integer, priority smallint, max_attempts smallint,
        fires text, job_type text, queue text, options jsonb
    );
    return v_graph;
end $$;

CREATE FUNCTION pipeline.sweep_ranges_v1(p_queues text[], p_ranks integer[], p_times timestamp with time zone[], p_to_times timestamp with time zone[], p_to_ids bigint[], p_range_queues text[], p_range_to_queues text[], p_range_ranks integer[], p_range_times timestamp with time zone[], p_range_ids bigint[], p_range_to_ranks integer[]) RETURNS TABLE(part integer, queue text, rank integer, run_at timestamp with time zone, id bigint, visited bigint)
    LANGUAGE plpgsql STABLE
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_material TO 'off'
    SET enable_memoize TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
#variable_conflict use_column
begin
    return query
    select s.ord::integer, h.queue, h.rank, h.run_at, h.id, pipeline.visited_entries_v1() - met.before
    from unnest(p_queues, p_ranks, p_times, p_to_times, p_to_ids) with ordinality
         as s (queue, rank, run_at, to_run_at, to_id, ord)
    cross join lateral (
        select pipeline.visited_entries_v1() as before where s.ord is not null offset 0
    ) as met
    left join lateral (
        select j.queue, - j.priority::integer as rank, j.run_at, j.id from pipeline.jobs j
        where j.status = 'ready' and j.queue = s.queue collate "C" and - j.priority::integer = s.rank
          and j.run_at >= s.run_at and j.run_at <= s.to_run_at
          and (j.run_at, j.id) < (s.to_run_at, s.to_id)
        order by j.queue, - j.priority::integer, j.run_at, j.id
        limit 1
    ) as h on true;

    if p_range_queues <> '{}' then
        return query
        select cardinality(p_queues) + h.range, h.queue, h.rank, h.run_at, h.id, h.visited
        from pipeline.queue_heads_v1(p_range_queues, p_range_to_queues, p_range_ranks, p_range_times,
                               p_range_ids, p_range_to_ranks) as h
        where h.step = 1;
    end if;
end $$;

CREATE FUNCTION pipeline.tick_v1(p_worker bigint, p_steps boolean, p_due_from timestamp with time zone, p_claimed_from timestamp with time zone, p_leased bigint[], p_queues text[], p_to_queues text[], p_ranks integer[], p_times timestamp with time zone[], p_ids bigint[], p_to_ranks integer[], OUT now timestamp with time zone, OUT due_from timestamp with time zone, OUT claimed_from timestamp with time zone, OUT due_ms bigint, OUT due_queues text[], OUT due_since timestamp with time zone[], OUT ready boolean, OUT lost_ids bigint[], OUT lost_tokens bigint[], OUT lost_attempts smallint[], OUT lost_batches bigint[], OUT lost_queues text[], OUT lost_job_types text[], OUT lost_runs bigint[], OUT lost_steps text[], OUT leased_ids bigint[], OUT leased_until timestamp with time zone[], OUT is_registered boolean) RETURNS record
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_material TO 'off'
    SET enable_memoize TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
declare
    -- The maximum number of jobs that one call moves, and of expired leases that it reports.
    c_page constant integer := 5000;
    -- The next scan starts at least this far back, because a transaction commits later than it enqueues or
    -- claims. Rows that are committed even later, or after the clock was set back, are found when the caller
    -- scans everything.
    v_seen timestamptz := pipeline.now() - interval '2 s';
    v_due_from timestamptz := least(coalesce(p_due_from, '-infinity'), v_seen);
    v_claimed_from timestamptz := least(coalesce(p_claimed_from, '-infinity'), v_seen);
    v_moved bigint;
    v_next timestamptz;
begin
    now := pipeline.now();
    with due as materialized (
        select j.id from pipeline.jobs j
        where j.status = 'scheduled' and j.run_at >= v_due_from and j.run_at <= now
        order by j.run_at limit c_page
        for update skip locked
    ), moved as (
        update pipeline.jobs j set status = 'ready' from due where j.id = due.id
        returning j.queue, j.run_at
    ), queues as (
        select moved.queue, min(moved.run_at) as since, count(*) as count from moved group by moved.queue
    )
    select array_agg(queues.queue), array_agg(queues.since), coalesce(sum(queues.count), 0)
    into due_queues, due_since, v_moved from queues;

    select j.run_at into v_next from pipeline.jobs j
    where j.status = 'scheduled' and j.run_at >= v_due_from
    order by j.run_at limit 1;
    -- Due rows that are left are held by other transactions, or exceed the page.
    due_from := greatest(v_due_from, least(v_next, v_seen));
    -- Due rows that another tick holds are moved by that tick, or by the next poll.
    due_ms := case when v_moved = c_page and v_next <= now then 0
                   else ceil(extract(epoch from v_next - now) * 1000) end;

    with looked_at as (
        select j.id, j.token, j.attempt, j.batch, j.queue, j.job_type, j.lease_until
        from pipeline.jobs j
        where j.status = 'running' and j.claimed_at >= v_claimed_from and (p_steps or j.id % 2 = 1)
        union all
        select j.id, j.token, j.attempt, j.batch, j.queue, j.job_type, j.lease_until
        from unnest(p_leased) as known (id)
        cross join lateral (
            select j.* from pipeline.jobs j where j.id = known.id offset 0
        ) as j
        where j.status = 'running' and j.claimed_at < v_claimed_from
    ), lost as (
        select l.*, step.run, step.key
        from (
            select l.* from looked_at l
            -- While another transaction holds the row, its worker cannot renew the lease.
            cross join lateral (
                select j.id from pipeline.jobs j where j.id = l.id and j.token = l.token
                for no key update skip locked
            ) as free
            where l.lease_until < now
            limit c_page
        ) as l
        left join lateral (
            select r.id as run, n.key from pipeline.runs r
            join pipeline.nodes n on n.graph = r.graph and n.no = pipeline.no_of(l.id)
            where l.id % 2 = 0 and r.id = pipeline.run_of(l.id) offset 0
        ) as step on true
    )
    -- A client cannot read a lease that never ends; the reconciler repairs it.
    select array_agg(l.id) filter (where isfinite(l.lease_until)),
           array_agg(l.lease_until) filter (where isfinite(l.lease_until)),
           (select array_agg(lost.id) from lost), (select array_agg(lost.token) from lost),
           (select array_agg(lost.attempt) from lost), (select array_agg(lost.batch) from lost),
           (select array_agg(lost.queue) from lost), (select array_agg(lost.job_type) from lost),
           (select array_agg(lost.run) from lost), (select array_agg(lost.key) from lost)
    into leased_ids, leased_until, lost_ids, lost_tokens, lost_attempts, lost_batches, lost_queues,
         lost_job_types, lost_runs, lost_steps
    from looked_at l;
    claimed_from := v_seen;

    ready := exists (
        select from pipeline.queue_heads_v1(p_queues, p_to_queues, p_ranks, p_times, p_ids, p_to_ranks) as h
        where h.queue is not null
          and not exists (select from pipeline.queues q
                          where q.name = h.queue and q.paused_at is not null)
    );

    update pipeline.workers w set seen_at = now
    where w.id = p_worker and w.seen_at < now - interval '5 s';
    is_registered := found or exists (select from pipeline.workers w where w.id = p_worker);
end $$;

CREATE FUNCTION pipeline.unchanged_runs(p_runs bigint[]) RETURNS pipeline.ended_step[]
    LANGUAGE sql STABLE
    AS $$
    select array_agg(row(r.id, null, null, null, null, null, null, null, null, null, null, null)::pipeline.ended_step)
    from unnest(p_runs) as r (id)
$$;

CREATE FUNCTION pipeline.unknown_claims_v1(p_worker bigint, p_known bigint[], p_within_ms bigint) RETURNS bigint[]
    LANGUAGE sql STABLE
    SET enable_nestloop TO 'off'
    SET enable_seqscan TO 'off'
    AS $$
    select coalesce(array_agg(j.id), '{}') from pipeline.jobs j
    where j.status = 'running' and j.worker = p_worker
      and j.claimed_at >= pipeline.now() - p_within_ms * interval '1 ms'
      and not exists (select from unnest(p_known) as known (token) where known.token = j.token)
$$;

CREATE FUNCTION pipeline.unknown_job_types_v1(p_run bigint, p_named text[]) RETURNS text[]
    LANGUAGE plpgsql STABLE
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS $$
begin
    return (
        select array_agg(distinct n.job_type || case when known.any_version
                                                then format(' (version %s)', n.version) else '' end)
        from pipeline.runs r
        cross join lateral unnest(pipeline.steps_to_reset_v1(p_run, p_named)) as s (no)
        join pipeline.nodes n on n.graph = r.graph and n.no = s.no
        cross join lateral (
            select coalesce(bool_or(w.job_type = n.job_type), false) as any_version,
                   coalesce(bool_or(w.job_type = n.job_type and w.version = n.version), false) as this_version
            from pipeline.workers worker
            cross join lateral unnest(worker.job_types, worker.versions) as w (job_type, version)
            where worker.takes_steps and worker.stopped_at is null and worker.seen_at > pipeline.now() - interval '30 s'
        ) as known
        where r.id = p_run and n.job_type is not null and not known.this_version
    );
end $$;

CREATE FUNCTION pipeline.visited_entries_v1() RETURNS bigint
    LANGUAGE sql
    AS $$
    select pg_stat_get_xact_tuples_returned('pipeline.jobs_ready'::regclass)
$$;

CREATE FUNCTION pipeline.withdraw_steps_v1(p_run bigint, OUT queues text[], OUT ended_runs pipeline.ended_run[], OUT asked bigint[], OUT is_left boolean) RETURNS record
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    AS $$
declare
    v_now timestamptz := pipeline.now();
    v_reason pipeline.step_reason;
    v_ended pipeline.ended_step[];
begin
    select case r.stop_reason when 'deadline' then 'deadline' else 'cancelled' end into v_reason
    from pipeline.runs r where r.id = p_run;
    -- Each step and each job is looked up by its key: the planner knows nothing of a run that is younger than the
    -- statistics, and would compare every step of the run with every job.
    with free as (
        select j.id
        from (select s.no from pipeline.steps s where s.run = p_run and s.status = 'enqueued' offset 0) as s
        cross join lateral (
            select j.id from pipeline.jobs j
            where j.id = pipeline.step_id(p_run, s.no) and j.status in ('scheduled', 'ready')
            for update skip locked
        ) as j
    ), withdrawn as (
        delete from pipeline.jobs j where j.id = any (array(select free.id from free))
        returning j.id, j.attempt, j.error_class, j.error_message
    ), ended as (
        -- A step that waited for a retry keeps its number of attempts and its last error.
        update pipeline.steps s
        set status = 'cancelled', ended_at = v_now, reason = v_reason, cause = null,
            attempt = w.attempt, error_class = w.error_class, error_message = w.error_message
        from withdrawn w
        cross join lateral (
            select b.ctid as row from pipeline.steps b
            where b.run = p_run and b.no = pipeline.no_of(w.id) offset 0
        ) as b
        where s.ctid = b.row
        returning s.no, s.attempt
    ), waiting as (
        update pipeline.steps s
        set status = 'cancelled', ended_at = v_now, reason = v_reason, cause = null
        where s.run = p_run and s.status in ('pending', 'waiting')
        returning s.no
    )
    select array_agg(pipeline.ended_with_run(p_run, e.no, 'cancelled', e.attempt)) into v_ended
    from (
        select ended.no, nullif(ended.attempt, 0) as attempt from ended
        union all select waiting.no, null from waiting
    ) as e;
    select array_agg(j.id), coalesce(bool_or(j.status in ('scheduled', 'ready')), false)
    into asked, is_left
    from (select s.no from pipeline.steps s where s.run = p_run and s.status = 'enqueued' offset 0) as s
    cross join lateral (
        select j.id, j.status from pipeline.jobs j where j.id = pipeline.step_id(p_run, s.no) offset 0
    ) as j;
    select f.queues, f.ended_runs into queues, ended_runs
    from pipeline.finish_advance_v1(v_ended || pipeline.unchanged_runs(array[p_run]), null, 0, '{}', '{}', false) as f;
end $$;

CREATE TABLE pipeline.jobs (
    id bigint NOT NULL,
    token bigint,
    run_at timestamp with time zone NOT NULL,
    created_at timestamp with time zone NOT NULL,
    claimed_at timestamp with time zone,
    lease_until timestamp with time zone,
    ended_at timestamp with time zone,
    unknown_since timestamp with time zone,
    batch bigint,
    worker bigint,
    lease_ms integer NOT NULL,
    bytes integer,
    status pipeline.job_status NOT NULL,
    attempt smallint DEFAULT 0 NOT NULL,
    max_attempts smallint NOT NULL,
    priority smallint NOT NULL,
    queue text NOT NULL COLLATE pg_catalog."C",
    job_type text NOT NULL,
    args json NOT NULL,
    input jsonb,
    options jsonb,
    key text,
    error_class text,
    error_message text
);

CREATE TABLE pipeline.steps (
    run bigint NOT NULL,
    token bigint,
    enqueued_at timestamp with time zone,
    ended_at timestamp with time zone,
    no integer NOT NULL,
    open_edges integer NOT NULL,
    ran_ms integer,
    arm integer,
    cause integer,
    output_bytes integer,
    attempt smallint DEFAULT 0 NOT NULL,
    is_broken boolean DEFAULT false NOT NULL,
    is_not_taken boolean DEFAULT false NOT NULL,
    status pipeline.step_status NOT NULL,
    reason pipeline.step_reason,
    params json,
    output json,
    error_class text,
    error_message text
)
WITH (fillfactor='50');

CREATE VIEW pipeline.all_jobs AS
 SELECT j.id,
    j.job_type,
    j.queue,
    j.status,
    j.priority,
    j.attempt,
    j.max_attempts,
        CASE
            WHEN (s.run IS NULL) THEN j.batch
            ELSE j.id
        END AS batch,
        CASE
            WHEN (s.run IS NULL) THEN j.args
            ELSE COALESCE(s.params, 'null'::json)
        END AS args,
    j.error_class,
    j.error_message,
    j.created_at,
    j.run_at,
    j.ended_at,
    j.worker
   FROM (pipeline.jobs j
     LEFT JOIN pipeline.steps s ON ((((j.id % (2)::bigint) = 0) AND (s.run = pipeline.run_of(j.id)) AND (s.no = pipeline.no_of(j.id)))));

CREATE TABLE pipeline.arms (
    graph bigint NOT NULL,
    branch integer NOT NULL,
    arm integer NOT NULL,
    no integer NOT NULL
);

CREATE TABLE pipeline.attempts (
    job bigint NOT NULL,
    token bigint NOT NULL,
    attempt smallint NOT NULL,
    worker bigint,
    outcome text NOT NULL,
    error_class text,
    error_message text,
    ended_at timestamp with time zone NOT NULL
);

CREATE TABLE pipeline.batch_sets (
    id bigint NOT NULL,
    created_at timestamp with time zone NOT NULL,
    sealed_at timestamp with time zone,
    finished_at timestamp with time zone,
    total integer DEFAULT 0 NOT NULL,
    ended integer DEFAULT 0 NOT NULL,
    failed integer DEFAULT 0 NOT NULL,
    callback json,
    CONSTRAINT counts_add_up CHECK (((0 <= failed) AND (failed <= ended) AND (ended <= total))),
    CONSTRAINT finishes_sealed CHECK (((finished_at IS NULL) OR ((sealed_at IS NOT NULL) AND (ended = total))))
);

CREATE TABLE pipeline.nodes (
    graph bigint NOT NULL,
    no integer NOT NULL,
    in_edges integer NOT NULL,
    lease_ms integer,
    delay_ms bigint DEFAULT 0 NOT NULL,
    version integer,
    branch integer,
    priority smallint,
    max_attempts smallint,
    kind pipeline.node_kind NOT NULL,
    strategy pipeline.strategy NOT NULL,
    is_any boolean NOT NULL,
    is_optional boolean NOT NULL,
    is_exempt boolean NOT NULL,
    key text NOT NULL,
    job_type text,
    queue text COLLATE pg_catalog."C",
    options jsonb,
    input json,
    arms text[],
    returns integer[],
    out_edges pipeline.out_edge[],
    CONSTRAINT jobs_have_options CHECK (((kind <> ALL (ARRAY['job'::pipeline.node_kind, 'branch'::pipeline.node_kind, 'each'::pipeline.node_kind])) OR (num_nulls(job_type, version, queue, priority, max_attempts, lease_ms) = 0)))
);

CREATE TABLE pipeline.runs (
    id bigint NOT NULL,
    graph bigint NOT NULL,
    created_at timestamp with time zone NOT NULL,
    started_at timestamp with time zone,
    ended_at timestamp with time zone,
    deadline_at timestamp with time zone,
    callbacks_dispatched_at timestamp with time zone,
    rerun_of bigint,
    nonce bigint,
    live_steps integer NOT NULL,
    events integer DEFAULT 0 NOT NULL,
    round integer DEFAULT 1 NOT NULL,
    status pipeline.run_status NOT NULL,
    event_level pipeline.event_level NOT NULL,
    halt_triggered boolean DEFAULT false NOT NULL,
    is_failed boolean DEFAULT false NOT NULL,
    stop_reason pipeline.stop_reason,
    pipeline text NOT NULL,
    actor text,
    key text,
    params_hash bytea,
    params json,
    callbacks json,
    tags text[]
)
WITH (fillfactor='40');

CREATE VIEW pipeline.batches AS
 SELECT b.id,
    b.created_at,
    b.sealed_at,
    b.finished_at,
    b.total,
    b.ended,
    b.failed,
    NULL::bigint AS run,
    NULL::text AS step
   FROM pipeline.batch_sets b
UNION ALL
 SELECT pipeline.step_id(s.run, s.no) AS id,
    s.enqueued_at AS created_at,
    s.enqueued_at AS sealed_at,
    s.ended_at AS finished_at,
    1 AS total,
    ((s.ended_at IS NOT NULL))::integer AS ended,
    ((s.status = 'failed'::pipeline.step_status))::integer AS failed,
    s.run,
    n.key AS step
   FROM ((pipeline.steps s
     JOIN pipeline.runs r ON ((r.id = s.run)))
     JOIN pipeline.nodes n ON (((n.graph = r.graph) AND (n.no = s.no))))
  WHERE (s.enqueued_at IS NOT NULL);

CREATE TABLE pipeline.callbacks (
    graph bigint NOT NULL,
    "position" integer NOT NULL,
    lease_ms integer NOT NULL,
    version integer NOT NULL,
    priority smallint NOT NULL,
    max_attempts smallint NOT NULL,
    fires text NOT NULL,
    job_type text NOT NULL,
    queue text NOT NULL COLLATE pg_catalog."C",
    options jsonb,
    CONSTRAINT callbacks_fires_check CHECK ((fires = ANY (ARRAY['complete'::text, 'success'::text, 'failure'::text])))
);

CREATE TABLE pipeline.chains (
    upstream bigint NOT NULL,
    downstream bigint NOT NULL
);

CREATE TABLE pipeline.dependencies (
    graph bigint NOT NULL,
    upstream integer NOT NULL,
    downstream integer NOT NULL,
    "position" integer NOT NULL,
    takes pipeline.takes NOT NULL
);

CREATE TABLE pipeline.dispatched_callbacks (
    run bigint NOT NULL,
    round integer NOT NULL,
    "position" integer NOT NULL,
    job bigint NOT NULL
);

CREATE TABLE pipeline.events (
    run bigint NOT NULL,
    no integer NOT NULL,
    at timestamp with time zone NOT NULL,
    step integer,
    attempt smallint,
    status text NOT NULL
);

CREATE TABLE pipeline.graphs (
    id bigint NOT NULL,
    fingerprint bytea NOT NULL,
    pipeline text NOT NULL,
    size integer NOT NULL,
    deadline_ms bigint,
    spec json NOT NULL,
    created_at timestamp with time zone NOT NULL
);

CREATE SEQUENCE pipeline.ids
    START WITH 1
    INCREMENT BY 2
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

CREATE TABLE pipeline.migrations (
    version bigint NOT NULL,
    description text NOT NULL,
    checksum bytea NOT NULL,
    applied_at timestamp with time zone DEFAULT statement_timestamp() NOT NULL
);

COMMENT ON TABLE pipeline.migrations IS 'what has been applied to this schema, by number';

CREATE TABLE pipeline.queues (
    name text NOT NULL,
    paused_at timestamp with time zone
);

CREATE TABLE pipeline.reconciler (
    only_one boolean DEFAULT true NOT NULL,
    next_at timestamp with time zone DEFAULT '-infinity'::timestamp with time zone NOT NULL,
    at_status pipeline.run_status DEFAULT 'pending'::pipeline.run_status NOT NULL,
    at_time timestamp with time zone DEFAULT '-infinity'::timestamp with time zone NOT NULL,
    at_run bigint DEFAULT 0 NOT NULL,
    part_run bigint,
    part_from integer DEFAULT 0 NOT NULL,
    acted_at timestamp with time zone,
    found_at timestamp with time zone,
    worker bigint,
    passes bigint DEFAULT 0 NOT NULL,
    checked bigint DEFAULT 0 NOT NULL,
    found bigint DEFAULT 0 NOT NULL,
    CONSTRAINT reconciler_only_one_check CHECK (only_one)
);

CREATE TABLE pipeline.requests (
    id bigint NOT NULL,
    run bigint NOT NULL,
    created_at timestamp with time zone NOT NULL,
    next_at timestamp with time zone DEFAULT '-infinity'::timestamp with time zone NOT NULL,
    turn_until timestamp with time zone DEFAULT '-infinity'::timestamp with time zone NOT NULL,
    round integer,
    kind text NOT NULL,
    CONSTRAINT requests_kind_check CHECK ((kind = ANY (ARRAY['cancel'::text, 'chain'::text, 'deadline'::text, 'withdraw'::text])))
);

CREATE SEQUENCE pipeline.run_ids
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

CREATE VIEW pipeline.run_steps AS
 SELECT s.run,
    r.pipeline,
    s.no,
    n.key AS step,
    (n.kind)::text AS kind,
    n.job_type,
    n.queue,
    (s.status)::text AS status,
    s.attempt,
    n.max_attempts,
    (s.reason)::text AS reason,
    cause.key AS cause,
    s.error_class,
    s.error_message,
    s.enqueued_at,
    s.ended_at,
    s.ran_ms,
    n.arms[(s.arm + 1)] AS arm,
    pipeline.step_id(s.run, s.no) AS batch
   FROM (((pipeline.steps s
     JOIN pipeline.runs r ON ((r.id = s.run)))
     JOIN pipeline.nodes n ON (((n.graph = r.graph) AND (n.no = s.no))))
     LEFT JOIN pipeline.nodes cause ON (((cause.graph = r.graph) AND (cause.no = s.cause))));

CREATE TABLE pipeline.workers (
    id bigint NOT NULL,
    name text NOT NULL,
    host text NOT NULL,
    pid integer NOT NULL,
    queues jsonb NOT NULL,
    job_types text[] NOT NULL,
    versions integer[] NOT NULL,
    takes_steps boolean NOT NULL,
    started_at timestamp with time zone NOT NULL,
    seen_at timestamp with time zone NOT NULL,
    stopped_at timestamp with time zone
);

ALTER TABLE ONLY pipeline.arms
    ADD CONSTRAINT arms_pkey PRIMARY KEY (graph, branch, arm, no);

ALTER TABLE ONLY pipeline.attempts
    ADD CONSTRAINT attempts_pkey PRIMARY KEY (job, token);

ALTER TABLE ONLY pipeline.batch_sets
    ADD CONSTRAINT batch_sets_pkey PRIMARY KEY (id);

ALTER TABLE ONLY pipeline.callbacks
    ADD CONSTRAINT callbacks_pkey PRIMARY KEY (graph, "position");

ALTER TABLE ONLY pipeline.chains
    ADD CONSTRAINT chains_pkey PRIMARY KEY (upstream, downstream);

ALTER TABLE ONLY pipeline.dependencies
    ADD CONSTRAINT dependencies_pkey PRIMARY KEY (upstream, graph, downstream, "position") INCLUDE (takes);

ALTER TABLE ONLY pipeline.dispatched_callbacks
    ADD CONSTRAINT dispatched_callbacks_pkey PRIMARY KEY (run, round, "position");

ALTER TABLE ONLY pipeline.events
    ADD CONSTRAINT events_pkey PRIMARY KEY (run, no);

ALTER TABLE ONLY pipeline.graphs
    ADD CONSTRAINT graphs_pkey PRIMARY KEY (id);

ALTER TABLE ONLY pipeline.jobs
    ADD CONSTRAINT jobs_pkey PRIMARY KEY (id);

ALTER TABLE ONLY pipeline.migrations
    ADD CONSTRAINT migrations_pkey PRIMARY KEY (version);

ALTER TABLE ONLY pipeline.nodes
    ADD CONSTRAINT nodes_key_graph_key UNIQUE (key, graph);

ALTER TABLE ONLY pipeline.nodes
    ADD CONSTRAINT nodes_pkey PRIMARY KEY (graph, no);

ALTER TABLE ONLY pipeline.queues
    ADD CONSTRAINT queues_pkey PRIMARY KEY (name);

ALTER TABLE ONLY pipeline.reconciler
    ADD CONSTRAINT reconciler_pkey PRIMARY KEY (only_one);

ALTER TABLE ONLY pipeline.requests
    ADD CONSTRAINT requests_pkey PRIMARY KEY (id);

ALTER TABLE ONLY pipeline.runs
    ADD CONSTRAINT runs_pkey PRIMARY KEY (id);

ALTER TABLE ONLY pipeline.steps
    ADD CONSTRAINT steps_pkey PRIMARY KEY (run, no);

ALTER TABLE ONLY pipeline.workers
    ADD CONSTRAINT workers_pkey PRIMARY KEY (id);

CREATE INDEX chains_of ON pipeline.chains USING btree (downstream, upstream);

CREATE UNIQUE INDEX dependencies_of ON pipeline.dependencies USING btree (graph, downstream, "position") INCLUDE (upstream, takes);

CREATE INDEX graphs_by_fingerprint ON pipeline.graphs USING btree (fingerprint);

CREATE UNIQUE INDEX jobs_by_key ON pipeline.jobs USING btree (job_type, key) WHERE ((key IS NOT NULL) AND (status = ANY (ARRAY['scheduled'::pipeline.job_status, 'ready'::pipeline.job_status, 'running'::pipeline.job_status])));

CREATE INDEX jobs_ended ON pipeline.jobs USING btree (ended_at, id) WHERE (ended_at IS NOT NULL);

CREATE INDEX jobs_ready ON pipeline.jobs USING btree (queue, ((- (priority)::integer)), run_at, id) WHERE (status = 'ready'::pipeline.job_status);

CREATE INDEX jobs_running ON pipeline.jobs USING btree (claimed_at) WHERE (status = 'running'::pipeline.job_status);

CREATE INDEX jobs_scheduled ON pipeline.jobs USING btree (run_at) WHERE (status = 'scheduled'::pipeline.job_status);

CREATE INDEX requests_due ON pipeline.requests USING btree (next_at, id) WHERE (kind <> 'deadline'::text);

CREATE INDEX requests_of ON pipeline.requests USING btree (run);

CREATE INDEX requests_of_deadlines ON pipeline.requests USING btree (next_at, id) WHERE (kind = 'deadline'::text);

CREATE UNIQUE INDEX requests_one_deadline ON pipeline.requests USING btree (run) WHERE (kind = 'deadline'::text);

CREATE INDEX runs_by_deadline ON pipeline.runs USING btree (deadline_at) WHERE ((deadline_at IS NOT NULL) AND (status = 'running'::pipeline.run_status));

CREATE UNIQUE INDEX runs_by_key ON pipeline.runs USING btree (pipeline, key) WHERE (key IS NOT NULL);

CREATE INDEX runs_by_pipeline ON pipeline.runs USING btree (pipeline, status, created_at, id);

CREATE INDEX runs_by_status ON pipeline.runs USING btree (status, created_at, id);

CREATE INDEX runs_by_tag ON pipeline.runs USING gin (tags) WHERE (tags IS NOT NULL);

ALTER TABLE ONLY pipeline.arms
    ADD CONSTRAINT arms_graph_fkey FOREIGN KEY (graph) REFERENCES pipeline.graphs(id) ON DELETE CASCADE;

ALTER TABLE ONLY pipeline.callbacks
    ADD CONSTRAINT callbacks_graph_fkey FOREIGN KEY (graph) REFERENCES pipeline.graphs(id) ON DELETE CASCADE;

ALTER TABLE ONLY pipeline.dependencies
    ADD CONSTRAINT dependencies_graph_fkey FOREIGN KEY (graph) REFERENCES pipeline.graphs(id) ON DELETE CASCADE;

ALTER TABLE ONLY pipeline.nodes
    ADD CONSTRAINT nodes_graph_fkey FOREIGN KEY (graph) REFERENCES pipeline.graphs(id) ON DELETE CASCADE;

