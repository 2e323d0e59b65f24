-- Ends attempts. What each came to is in p_verbs:
--   0 succeeded  1 retry  2 fail  3 discard  4 snooze  5 hand back  6 type unknown  7 lease lost
-- Fenced: an attempt whose token the row no longer bears changes nothing, and its position is in
-- `stale`; `failed` are those that came to an end for good without success, with what is said of
-- them in `classes` and `messages`. The caller sorts by id. Of a step (an even id) no row is kept that
-- succeeded, and its failed attempts stay: they are its history.
create function pipeline.end_v1(
    p_ids bigint[], p_tokens bigint[], p_verbs smallint[], p_waits bigint[],
    p_classes text[], p_messages text[], p_keep boolean, p_unknown_ms bigint,
    out stale integer[], out failed integer[], out classes text[], out messages text[], out xid text
)
language plpgsql
set enable_seqscan to off set enable_bitmapscan to off set enable_hashjoin to off
set enable_mergejoin to off
set plan_cache_mode to force_generic_plan
as $$
declare
    v_now timestamptz := pipeline.now();
    v_ended integer[];
    v_other integer[];
    v_plain boolean := not p_keep and 0 = all (p_verbs);
    v_retried bigint[];
begin
    if not v_plain and 0 = any (p_verbs) then
        -- Two statements below: whoever ends the same jobs otherwise must meet us in one direction.
        perform from pipeline.jobs j where j.id = any (p_ids) order by j.id for update;
    end if;
    with gone as (
        delete from pipeline.jobs j
        using unnest(p_ids, p_tokens, p_verbs) with ordinality as e (id, token, verb, ord)
        where e.verb = 0 and (not p_keep or e.id % 2 = 0) and j.id = e.id and j.token = e.token
        returning e.ord::integer, j.id, j.attempt
    )
    select coalesce(array_agg(gone.ord), '{}'),
           array_agg(gone.id) filter (where gone.attempt > 1 and gone.id % 2 = 1)
    into v_ended, v_retried from gone;
    -- What is gone leaves no history of its failures behind.
    if v_retried is not null then
        delete from pipeline.attempts where job = any (v_retried);
    end if;

    if not v_plain then
        with e as (
            select * from unnest(p_ids, p_tokens, p_verbs, p_waits, p_classes, p_messages)
                with ordinality as e (id, token, verb, wait, class, message, ord)
            where e.verb <> 0 or p_keep and e.id % 2 = 1
        ), moved as (
            update pipeline.jobs j
            set status = next.status::pipeline.job_status,
                token = null,
                lease_until = null,
                run_at = v_now + next.wait * interval '1 ms',
                attempt = j.attempt - next.refund,
                ended_at = case when next.status in ('succeeded', 'failed', 'discarded') then v_now end,
                unknown_since = case when e.verb = 6 then coalesce(j.unknown_since, v_now) end,
                error_class = coalesce(next.class, j.error_class),
                error_message = coalesce(next.message, j.error_message)
            from e
            cross join lateral pipeline.next_state_v1(e.verb, e.wait, e.class, e.message, e.id,
                                                      v_now, p_unknown_ms) as next
            where j.id = e.id and j.token = e.token
              and (e.verb <> 7 or j.lease_until < v_now)
            returning e.ord::integer, j.id, e.token, j.attempt, j.worker, next.status as came_to,
                      next.class, next.message, next.refund
        ), kept as (
            insert into pipeline.attempts (job, token, attempt, worker, outcome, error_class,
                                           error_message, ended_at)
            select moved.id, moved.token, moved.attempt, moved.worker,
                   case when moved.came_to in ('ready', 'later') then 'retried' else moved.came_to end,
                   moved.class, moved.message, v_now
            from moved where moved.refund = 0 and moved.came_to <> 'succeeded'
        )
        select coalesce(array_agg(moved.ord), '{}'),
               array_agg(moved.ord) filter (where moved.came_to in ('failed', 'discarded')),
               array_agg(moved.class) filter (where moved.came_to in ('failed', 'discarded')),
               array_agg(moved.message) filter (where moved.came_to in ('failed', 'discarded'))
        into v_other, failed, classes, messages from moved;
        v_ended := v_ended || v_other;
    end if;

    if cardinality(v_ended) < cardinality(p_ids) then
        select array_agg(ord) into stale
        from generate_series(1, cardinality(p_ids)) as ord where ord <> all (v_ended);
    end if;
    xid := pg_current_xact_id()::text;
end $$;

-- What a job's row becomes when an attempt ends in this way.
create function pipeline.next_state_v1(
    p_verb smallint, p_wait bigint, p_class text, p_message text, p_id bigint,
    p_now timestamptz, p_unknown_ms bigint,
    out status text, out wait bigint, out refund smallint, out class text, out message text
)
language plpgsql stable as $$
declare
    v_job record;
    v_known timestamptz;
begin
    wait := greatest(p_wait, 0);
    refund := case when p_verb in (4, 5, 6) then 1 else 0 end;
    class := p_class;
    message := p_message;
    status := case p_verb
        when 0 then 'succeeded' when 2 then 'failed' when 3 then 'discarded'
        else case when wait > 0 then 'later' else 'ready' end
    end;
    if p_verb = 6 then
        select j.kind, coalesce(j.unknown_since, p_now) as since into v_job
        from pipeline.jobs j where j.id = p_id;
        select greatest(v_job.since, max(w.seen_at)) into v_known
        from pipeline.workers w where v_job.kind = any (w.kinds);
        if p_now - v_known >= p_unknown_ms * interval '1 ms' then
            status := 'failed';
            refund := 0;
            class := 'NoHandler';
            message := format('no live worker has known the job type `%s` since %s: register it '
                              'with a worker, then %s', v_job.kind, v_known,
                              case when p_id % 2 = 0 then 'reopen the run' else 'retry the job' end);
        else
            -- The longer nobody knows it, the rarer it is asked about.
            wait := least(greatest(extract(epoch from p_now - v_job.since) * 500, 250), 30000);
            status := 'later';
        end if;
    elsif p_verb = 7 then
        select j.attempt, j.attempts, j.worker into v_job from pipeline.jobs j where j.id = p_id;
        class := 'WorkerDied';
        message := format('the worker that ran attempt %s (worker %s) did not renew its lease: it died, '
                          'or could not reach the database; see its log', v_job.attempt, v_job.worker);
        status := case when v_job.attempt < v_job.attempts then 'ready' else 'failed' end;
    end if;
end $$;
