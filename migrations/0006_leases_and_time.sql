-- Renews leases. `lost` are the tokens that no row bears any more; `held` those whose row somebody
-- else holds at this moment: they are left for the next time.
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

-- What time brings: jobs that are due become ready; leases that ran out are reported.
--   due_ms: until the next one is due · ready: whether there is something to claim in these queues
create function pipeline.tick_v1(
    p_worker bigint, p_queues text[], p_steps boolean,
    out due_ms bigint, out ready boolean,
    out lost_ids bigint[], out lost_tokens bigint[], out lost_attempts smallint[],
    out lost_batches bigint[]
)
language plpgsql
set enable_seqscan to off set enable_bitmapscan to off set enable_hashjoin to off
set enable_mergejoin to off
set plan_cache_mode to force_generic_plan
as $$
declare
    v_now timestamptz := pipeline.now();
begin
    with due as materialized (
        select id from pipeline.jobs
        where status = 'later' and run_at <= v_now
        order by run_at limit 5000
        for update skip locked
    )
    update pipeline.jobs j set status = 'ready' from due where j.id = due.id;

    select ceil(extract(epoch from j.run_at - v_now) * 1000) into due_ms
    from pipeline.jobs j where j.status = 'later' order by j.run_at limit 1;

    select array_agg(l.id), array_agg(l.token), array_agg(l.attempt), array_agg(l.batch)
    into lost_ids, lost_tokens, lost_attempts, lost_batches
    from (
        select j.id, j.token, j.attempt, j.batch from pipeline.jobs j
        where j.status = 'running' and j.lease_until < v_now and (p_steps or j.id % 2 = 1)
        order by j.id limit 500
    ) as l;

    ready := exists (
        select from unnest(p_queues) as pattern
        cross join lateral unnest(pipeline.ready_queues_v1(pattern)) as name
        where exists (select from pipeline.jobs j where j.queue = name and j.status = 'ready')
    );

    update pipeline.workers set seen_at = v_now
    where id = p_worker and seen_at < v_now - interval '5 s';
end $$;

-- Gives back what was claimed for a worker that never heard of it: the answer was lost on the way.
create function pipeline.disown_v1(p_worker bigint, p_known bigint[]) returns integer
language plpgsql as $$
declare
    v_count integer;
begin
    with unheard as materialized (
        select id from pipeline.jobs
        where status = 'running' and worker = p_worker and token <> all (p_known)
        for update skip locked
    )
    update pipeline.jobs j
    set status = 'ready', token = null, lease_until = null, attempt = j.attempt - 1
    from unheard where j.id = unheard.id;
    get diagnostics v_count = row_count;
    return v_count;
end $$;
