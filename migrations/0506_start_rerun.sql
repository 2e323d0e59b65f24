-- Starts a new run with the graph and the params of run p_run. Returns start_runs_v1's result and outcome; no row if
-- p_run does not exist.
create function pipeline.start_rerun_v1(p_run bigint, p_id bigint, p_nonce bigint)
returns table (id bigint, result pipeline.start_result)
language plpgsql as $$
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
