-- Moves due jobs to `ready`, and reports expired leases of rows that no other transaction holds. The caller says
-- where the scans start, so that they do not step over dead index entries again; null scans everything.
--   p_due_from, due_from: the `run_at` at which the scan for due jobs starts; earlier ticks scanned before it
--   p_claimed_from, claimed_from: the claim time at which the scan for leases starts; of older attempts, only
--                                 those in p_leased are read: they ran at the last tick, and their leases
--                                 may have expired
--   p_queues to p_to_ranks: the ranges of the index to scan for ready jobs, see queue_heads_v1
--   leased_ids, leased_until: running attempts, about which the caller asks again after that time
--   due_ms: the time until the next job is due; 0 if more jobs are due than one call moves
--   due_queues, due_since: the queues in which jobs became ready, and the earliest `run_at` in each
--   ready: whether there are jobs to claim
--   is_registered: false if the worker's row does not exist: a failover has lost it, or somebody deleted it
create function pipeline.tick_v1(
    p_worker bigint, p_steps boolean, p_due_from timestamptz, p_claimed_from timestamptz,
    p_leased bigint[],
    p_queues text[], p_to_queues text[], p_ranks integer[], p_times timestamptz[], p_ids bigint[],
    p_to_ranks integer[],
    out now timestamptz, out due_from timestamptz, out claimed_from timestamptz,
    out due_ms bigint, out due_queues text[], out due_since timestamptz[], out ready boolean,
    out lost_ids bigint[], out lost_tokens bigint[], out lost_attempts smallint[],
    out lost_batches bigint[], out lost_queues text[],
    out lost_job_types text[], out lost_runs bigint[], out lost_steps text[],
    out leased_ids bigint[], out leased_until timestamptz[], out is_registered boolean
)
language plpgsql as $$
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
