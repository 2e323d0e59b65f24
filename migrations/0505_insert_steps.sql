-- Inserts steps of runs that were inserted in this transaction, and the jobs of the first steps. Returns whether
-- the steps with a token were handed over: see start_runs_v1.
create function pipeline.insert_steps_v1(
    p_graph bigint, p_chained boolean, p_steps pipeline.new_step[], p_worker bigint, p_database text
) returns boolean
language plpgsql as $$
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
