-- Repairs the problems that a run still has once it is locked. A run that another transaction holds is in
-- progress, and is left for the next pass. A step that no worker can run any more fails, and advance_runs_v1 decides
-- what follows. Each call repairs one run in its own transaction and never waits for a lock: a queue row that
-- another transaction holds is left for the next pass too.
create function pipeline.repair_run_v1(
    p_run bigint, p_worker bigint, p_first integer, p_last integer, p_is_end boolean,
    out problems text[], out queues text[], out ended_runs pipeline.ended_run[]
)
language plpgsql as $$
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
