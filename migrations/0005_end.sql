-- Ends attempts. p_ends says how each attempt ended:
--   0 succeeded  1 retry  2 fail  3 discard  4 snooze  5 hand back  6 type unknown  7 lease lost
-- Returns positions in the arrays:
--   stale   the row does not exist or has another token: the end changed no row
--   held    another transaction has locked the row: the end changed no row, send it again
--   failed  the job failed for good; `classes` and `messages` have the error, `kinds` and `keys` the job
-- Never waits for a lock. The caller sorts the ends by id. The row of a succeeded step (an even id) is
-- deleted even if p_keep is set; the failed attempts of a step stay, because they are its history.
create function pipeline.end_v1(
    p_ids bigint[], p_tokens bigint[], p_ends smallint[], p_waits bigint[],
    p_classes text[], p_messages text[], p_keep boolean, p_unknown_ms bigint,
    out stale integer[], out held integer[], out failed integer[], out classes text[], out messages text[],
    out kinds text[], out keys text[]
)
language plpgsql
set enable_seqscan to off set enable_bitmapscan to off set enable_hashjoin to off
set enable_mergejoin to off
set plan_cache_mode to force_generic_plan
as $$
declare
    v_now timestamptz := pipeline.now();
    v_locked integer[];         -- positions whose rows are locked by this transaction
    v_ended integer[] := '{}';
    v_moved integer[];
    v_retried bigint[];
begin
    with locked as materialized (
        select e.ord::integer as ord
        from unnest(p_ids, p_tokens) with ordinality as e (id, token, ord)
        join pipeline.jobs j on j.id = e.id and j.token = e.token
        for update of j skip locked
    )
    select coalesce(array_agg(locked.ord), '{}') into v_locked from locked;
    if cardinality(v_locked) < cardinality(p_ids) then
        select array_agg(e.ord) filter (where j.id is null),
               array_agg(e.ord) filter (where j.id is not null)
        into stale, held
        from (
            select e.id, e.token, e.ord::integer as ord
            from unnest(p_ids, p_tokens) with ordinality as e (id, token, ord)
            where e.ord <> all (v_locked)
        ) as e
        left join pipeline.jobs j on j.id = e.id and j.token = e.token;
        -- From here on, the arrays hold only the ends whose rows are locked; `v_locked` has their positions.
        select array_agg(e.id order by e.ord), array_agg(e.token order by e.ord),
               array_agg(e.kind order by e.ord), array_agg(e.wait order by e.ord),
               array_agg(e.class order by e.ord), array_agg(e.message order by e.ord),
               array_agg(e.ord::integer order by e.ord)
        into p_ids, p_tokens, p_ends, p_waits, p_classes, p_messages, v_locked
        from unnest(p_ids, p_tokens, p_ends, p_waits, p_classes, p_messages) with ordinality
             as e (id, token, kind, wait, class, message, ord)
        where e.ord = any (v_locked);
        if p_ids is null then
            return;
        end if;
    else
        v_locked := null;       -- all rows are locked: positions are unchanged
    end if;

    if 0 = any (p_ends) then
        with gone as (
            delete from pipeline.jobs j
            using unnest(p_ids, p_ends) with ordinality as e (id, kind, ord)
            where e.kind = 0 and (not p_keep or e.id % 2 = 0) and j.id = e.id
            returning e.ord::integer, j.id, j.attempt
        )
        select coalesce(array_agg(gone.ord), '{}'),
               array_agg(gone.id) filter (where gone.attempt > 1 and gone.id % 2 = 1)
        into v_ended, v_retried from gone;
        -- The failed attempts of a succeeded job are deleted.
        if v_retried is not null then
            delete from pipeline.attempts where job = any (v_retried);
        end if;
    end if;

    if p_keep or 0 <> any (p_ends) then
        with e as (
            select * from unnest(p_ids, p_tokens, p_ends, p_waits, p_classes, p_messages)
                with ordinality as e (id, token, kind, wait, class, message, ord)
            where e.kind <> 0 or p_keep and e.id % 2 = 1
        ), moved as (
            update pipeline.jobs j
            set status = next.status::pipeline.job_status,
                token = null,
                lease_until = null,
                run_at = v_now + next.wait * interval '1 ms',
                attempt = j.attempt - next.refund,
                ended_at = case when next.status in ('succeeded', 'failed', 'discarded') then v_now end,
                unknown_since = case when e.kind = 6 then coalesce(j.unknown_since, v_now) end,
                error_class = coalesce(next.class, j.error_class),
                error_message = coalesce(next.message, j.error_message)
            from e
            cross join lateral pipeline.next_state_v1(e.kind, e.wait, e.class, e.message, e.id,
                                                      v_now, p_unknown_ms) as next
            where j.id = e.id and (e.kind <> 7 or j.lease_until < v_now)
            returning e.ord::integer, j.id, e.token, j.attempt, j.worker, next.status as came_to,
                      next.class, next.message, next.refund, j.kind, j.unique_key
        ), kept as (
            insert into pipeline.attempts (job, token, attempt, worker, outcome, error_class,
                                           error_message, ended_at)
            select moved.id, moved.token, moved.attempt, moved.worker,
                   case when moved.came_to in ('ready', 'later') then 'retried' else moved.came_to end,
                   moved.class, moved.message, v_now
            from moved where moved.refund = 0 and moved.came_to <> 'succeeded'
        )
        select array_agg(moved.ord) filter (where moved.came_to in ('failed', 'discarded')),
               array_agg(moved.class) filter (where moved.came_to in ('failed', 'discarded')),
               array_agg(moved.message) filter (where moved.came_to in ('failed', 'discarded')),
               array_agg(moved.kind) filter (where moved.came_to in ('failed', 'discarded')),
               array_agg(moved.unique_key) filter (where moved.came_to in ('failed', 'discarded')),
               coalesce(array_agg(moved.ord), '{}')
        into failed, classes, messages, kinds, keys, v_moved from moved;
        if v_locked is not null then
            select array_agg(v_locked[f.ord] order by f.place) into failed
            from unnest(failed) with ordinality as f (ord, place);
        end if;
        v_ended := v_ended || v_moved;
    end if;

    -- Ends that changed no row are stale: the lease was renewed meanwhile, or the end was given twice.
    if cardinality(v_ended) < cardinality(p_ids) then
        select stale || array_agg(coalesce(v_locked[e.ord], e.ord)) into stale
        from generate_series(1, cardinality(p_ids)) as e (ord)
        where e.ord <> all (v_ended);
    end if;
end $$;

-- Returns the new state of a job's row after an attempt that ended as p_end says.
create function pipeline.next_state_v1(
    p_end smallint, p_wait bigint, p_class text, p_message text, p_id bigint,
    p_now timestamptz, p_unknown_ms bigint,
    out status text, out wait bigint, out refund smallint, out class text, out message text
)
language plpgsql stable as $$
declare
    v_job record;
    v_known timestamptz;
begin
    wait := greatest(p_wait, 0);
    refund := case when p_end in (4, 5, 6) then 1 else 0 end;
    class := p_class;
    message := p_message;
    status := case p_end
        when 0 then 'succeeded' when 2 then 'failed' when 3 then 'discarded'
        else case when wait > 0 then 'later' else 'ready' end
    end;
    if p_end = 6 then
        select j.kind, coalesce(j.unknown_since, p_now) as since,
               coalesce((j.options ->> 'version')::integer, step.version, 1) as version
        into v_job
        from pipeline.jobs j
        left join lateral (
            select n.version from pipeline.runs r
            join pipeline.nodes n on n.graph = r.graph and n.no = pipeline.no_of(j.id)
            where j.id % 2 = 0 and r.id = pipeline.run_of(j.id)
        ) as step on true
        where j.id = p_id;
        select greatest(v_job.since, max(w.seen_at)) into v_known
        from pipeline.workers w
        where exists (
            select from unnest(w.kinds, w.versions) as known (kind, version)
            where known.kind = v_job.kind and known.version >= v_job.version
        );
        if p_now - v_known >= p_unknown_ms * interval '1 ms' then
            status := 'failed';
            refund := 0;
            class := 'NoHandler';
            message := format('no live worker has known the job type `%s`%s since %s: register it '
                              'with a worker, then %s', v_job.kind,
                              case when v_job.version > 1 then format(' in version %s', v_job.version)
                                   else '' end,
                              v_known,
                              case when p_id % 2 = 0 then 'reopen the run' else 'retry the job' end);
        else
            -- The longer no worker has known the type, the longer the pause before the next attempt.
            wait := least(greatest(extract(epoch from p_now - v_job.since) * 500, 250), 30000);
            status := 'later';
        end if;
    elsif p_end = 7 then
        select j.attempt, j.attempts, j.worker into v_job from pipeline.jobs j where j.id = p_id;
        class := 'WorkerDied';
        message := format('the worker that ran attempt %s (worker %s) did not renew its lease: it died, '
                          'or could not reach the database; see its log', v_job.attempt, v_job.worker);
        status := case when v_job.attempt < v_job.attempts then 'ready' else 'failed' end;
    end if;
end $$;
