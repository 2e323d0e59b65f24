-- The planner settings of every function that a worker or a client calls. They hold for the functions that it
-- calls, too.
--
-- A plan that was made while a table was small, or from outdated statistics, must not scan the table when it has
-- grown. So all plans look rows up by an index, from the rows that the caller names, and are made once for each
-- connection: for a few rows, planning costs more than the execution. In the functions, `offset 0` keeps the planner
-- from merging a lookup into a join, and `ctid` names the row that a lookup has found. See decision 9.
do $$
declare
    v_function regproc;
begin
    foreach v_function in array array[
        'pipeline.advance_v1', 'pipeline.end_jobs_v1'
    ]::regproc[] loop
        execute format('alter function %s set enable_seqscan to off', v_function);
        execute format('alter function %s set enable_bitmapscan to off', v_function);
        execute format('alter function %s set enable_hashjoin to off', v_function);
        execute format('alter function %s set enable_mergejoin to off', v_function);
        execute format('alter function %s set enable_memoize to off', v_function);
        execute format('alter function %s set jit to off', v_function);
        execute format('alter function %s set plan_cache_mode to force_generic_plan', v_function);
    end loop;
end $$;
