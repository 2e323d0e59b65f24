-- Renews leases. `lost` are the tokens that no row has any more; `held` are the tokens whose row another
-- transaction holds: their leases were not renewed, and the caller tries again.
create function pipeline.renew_v1(
    p_ids bigint[], p_tokens bigint[], out lost bigint[], out held bigint[]
)
language plpgsql
set enable_seqscan to off set enable_hashjoin to off set enable_mergejoin to off
set plan_cache_mode to force_generic_plan
as $$
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

-- Moves due jobs to `ready`, and reports expired leases. The caller says where the scans start, so that they
-- do not step over dead index entries again; null scans everything.
--   p_due_from, due_from: the `run_at` at which the scan for due jobs starts; earlier ticks scanned before it
--   p_claimed_from, claimed_from: the claim time at which the scan for leases starts; of older attempts, only
--                                 those in p_leased are read: they ran at the last tick, and their leases
--                                 may have expired
--   p_queues to p_to_ranks: the ranges of the index to scan for ready jobs, see heads_v1
--   leased_ids, leased_until: running attempts, about which the caller asks again after that time
--   due_ms: the time until the next job is due; 0 if more jobs are due than one call moves
--   due_queues, due_since: the queues in which jobs became ready, and the earliest `run_at` in each
--   ready: whether there are jobs to claim
create function pipeline.tick_v1(
    p_worker bigint, p_steps boolean, p_due_from timestamptz, p_claimed_from timestamptz,
    p_leased bigint[],
    p_queues text[], p_to_queues text[], p_ranks integer[], p_times timestamptz[], p_ids bigint[],
    p_to_ranks integer[],
    out now timestamptz, out due_from timestamptz, out claimed_from timestamptz,
    out due_ms bigint, out due_queues text[], out due_since timestamptz[], out ready boolean,
    out lost_ids bigint[], out lost_tokens bigint[], out lost_attempts smallint[],
    out lost_batches bigint[], out lost_queues text[],
    out lost_kinds text[], out lost_runs bigint[], out lost_steps text[],
    out leased_ids bigint[], out leased_until timestamptz[]
)
language plpgsql
set enable_seqscan to off set enable_bitmapscan to off set enable_hashjoin to off
set enable_mergejoin to off set enable_material to off set enable_memoize to off
set jit to off set plan_cache_mode to force_generic_plan
as $$
declare
    -- The maximum number of jobs that one call moves.
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
        where j.status = 'later' and j.run_at >= v_due_from and j.run_at <= now
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
    where j.status = 'later' and j.run_at >= v_due_from
    order by j.run_at limit 1;
    -- Due rows that are left are held by other transactions, or exceed the page.
    due_from := greatest(v_due_from, least(v_next, v_seen));
    -- Due rows that another tick holds are moved by that tick, or by the next poll.
    due_ms := case when v_moved = c_page and v_next <= now then 0
                   else ceil(extract(epoch from v_next - now) * 1000) end;

    with looked_at as (
        select j.id, j.token, j.attempt, j.batch, j.queue, j.kind, j.lease_until
        from pipeline.jobs j
        where j.status = 'running' and j.claimed_at >= v_claimed_from and (p_steps or j.id % 2 = 1)
        union all
        select j.id, j.token, j.attempt, j.batch, j.queue, j.kind, j.lease_until
        from unnest(p_leased) as known (id)
        cross join lateral (
            select j.* from pipeline.jobs j where j.id = known.id offset 0
        ) as j
        where j.status = 'running' and j.claimed_at < v_claimed_from
    ), lost as (
        select l.*, step.run, step.key
        from (select l.* from looked_at l where l.lease_until < now limit 500) as l
        left join lateral (
            select r.id as run, n.key from pipeline.runs r
            join pipeline.nodes n on n.graph = r.graph and n.no = pipeline.no_of(l.id)
            where l.id % 2 = 0 and r.id = pipeline.run_of(l.id) offset 0
        ) as step on true
    )
    -- A lease that never ends is none that a client can read: the reconciler sees to it.
    select array_agg(l.id) filter (where isfinite(l.lease_until)),
           array_agg(l.lease_until) filter (where isfinite(l.lease_until)),
           (select array_agg(lost.id) from lost), (select array_agg(lost.token) from lost),
           (select array_agg(lost.attempt) from lost), (select array_agg(lost.batch) from lost),
           (select array_agg(lost.queue) from lost), (select array_agg(lost.kind) from lost),
           (select array_agg(lost.run) from lost), (select array_agg(lost.key) from lost)
    into leased_ids, leased_until, lost_ids, lost_tokens, lost_attempts, lost_batches, lost_queues,
         lost_kinds, lost_runs, lost_steps
    from looked_at l;
    claimed_from := v_seen;

    ready := exists (
        select from pipeline.heads_v1(p_queues, p_to_queues, p_ranks, p_times, p_ids, p_to_ranks) as h
        where h.queue is not null
          and not exists (select from pipeline.queues q
                          where q.name = h.queue and q.paused_at is not null)
    );

    update pipeline.workers w set seen_at = now
    where w.id = p_worker and w.seen_at < now - interval '5 s';
end $$;

-- Scans stretches in which no ready row was seen: in each pair of p_queues and p_ranks from a time up to a
-- time and id, and in ranges as in heads_v1. Returns for each part the first ready row, if there is one, and
-- the number of visited entries, including dead ones. `part` numbers the pairs first, then the ranges.
create function pipeline.sweep_v1(
    p_queues text[], p_ranks integer[], p_times timestamptz[], p_to_times timestamptz[], p_to_ids bigint[],
    p_range_queues text[], p_range_to_queues text[], p_range_ranks integer[],
    p_range_times timestamptz[], p_range_ids bigint[], p_range_to_ranks integer[]
) returns table (part integer, queue text, rank integer, run_at timestamptz, id bigint, visited bigint)
language plpgsql stable
set enable_seqscan to off set enable_bitmapscan to off set enable_hashjoin to off
set enable_mergejoin to off set enable_material to off set enable_memoize to off
set jit to off set plan_cache_mode to force_generic_plan
as $$
#variable_conflict use_column
begin
    return query
    select s.ord::integer, h.queue, h.rank, h.run_at, h.id, pipeline.visited_v1() - met.before
    from unnest(p_queues, p_ranks, p_times, p_to_times, p_to_ids) with ordinality
         as s (queue, rank, run_at, to_run_at, to_id, ord)
    cross join lateral (
        select pipeline.visited_v1() as before where s.ord is not null offset 0
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
        from pipeline.heads_v1(p_range_queues, p_range_to_queues, p_range_ranks, p_range_times,
                               p_range_ids, p_range_to_ranks) as h
        where h.step = 1;
    end if;
end $$;

-- Returns the jobs that run under tokens which their worker does not know. Both lists may have 100,000 entries:
-- they are joined by hash, never row by row.
create function pipeline.unknown_claims_v1(p_worker bigint, p_known bigint[], p_within_ms bigint)
returns bigint[]
language sql stable
set enable_nestloop to off set enable_seqscan to off
as $$
    select coalesce(array_agg(j.id), '{}') from pipeline.jobs j
    where j.status = 'running' and j.worker = p_worker
      and j.claimed_at >= pipeline.now() - p_within_ms * interval '1 ms'
      and not exists (select from unnest(p_known) as known (token) where known.token = j.token)
$$;

-- Gives back what was claimed for a worker that never heard of it: the answer was lost on the way. Only
-- claims of the last p_within_ms are looked at. Returns how many, the queues, and their earliest `run_at`.
create function pipeline.disown_v1(
    p_worker bigint, p_known bigint[], p_within_ms bigint,
    out count bigint, out queues text[], out since timestamptz
)
language plpgsql
set enable_seqscan to off set enable_bitmapscan to off
set plan_cache_mode to force_generic_plan
as $$
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
    into disown_v1.count, queues, since from back;
end $$;

-- Undoes claims: the jobs become ready again without losing an attempt. Must be called in the transaction
-- that claimed the jobs, before any worker knows the tokens. Returns the number of jobs.
create function pipeline.unclaim_v1(p_ids bigint[], p_tokens bigint[]) returns bigint
language plpgsql
set enable_seqscan to off set enable_bitmapscan to off set enable_hashjoin to off
set enable_mergejoin to off
set plan_cache_mode to force_generic_plan
as $$
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
