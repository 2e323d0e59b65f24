-- Begins a round of runs that can begin: starts the steps without upstream steps, and decides the steps downstream
-- of steps that ended in an earlier round. The caller has locked the runs;
-- p_is_chain_locked is passed to finish_advance_v1.
create function pipeline.start_chained_runs_v1(
    p_runs bigint[], p_is_chain_locked boolean default false,
    out queues text[], out ended_runs pipeline.ended_run[]
)
language plpgsql as $$
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
