-- The planner settings of all functions. They also hold for the functions that a function calls.
--
-- A plan that was made while a table was small, or from outdated statistics, must not scan the table when it has
-- grown. So plans look rows up by an index, from the rows that the caller names. Functions that are called for every
-- job, step or start are also planned only once for each connection: for a few rows, planning costs more than the
-- execution. In the functions, `offset 0` keeps the planner from merging a lookup into a join, and `ctid` names the
-- row that a lookup has found. See decision 9.
do $$
declare
    v_group record;
    v_function text;
    v_setting text;
begin
    for v_group in
        select * from (values
            -- Scans of the queue: always the same index scan, whatever the statistics say. A materialized or
            -- memoized scan would return rows that another transaction has claimed.
            ('{claim_jobs_v1, tick_v1, sweep_ranges_v1}'::text[],
             '{enable_seqscan, enable_bitmapscan, enable_hashjoin, enable_mergejoin, enable_material,
               enable_memoize, jit}'::text[], true),
            -- Advances: lookups by key, from the ends on.
            ('{advance_v1, plan_advance_v1, end_jobs_v1, load_inputs_v1}',
             '{enable_seqscan, enable_bitmapscan, enable_hashjoin, enable_mergejoin, enable_memoize, jit}', true),
            ('{start_runs_v1, insert_steps_v1, start_rerun_v1}',
             '{enable_seqscan, enable_bitmapscan, jit}', true),
            ('{release_claims_v1}',
             '{enable_seqscan, enable_bitmapscan, enable_hashjoin, enable_mergejoin}', true),
            -- The jobs of a worker are named by their ids; a bitmap scan of them is as good as any.
            ('{renew_leases_v1}',
             '{enable_seqscan, enable_hashjoin, enable_mergejoin}', true),
            ('{release_unknown_claims_v1}',
             '{enable_seqscan, enable_bitmapscan}', true),
            -- Two lists that may have 100,000 entries each: joined by hash, never row by row.
            ('{unknown_claims_v1}',
             '{enable_nestloop, enable_seqscan}', false),
            -- Changes of one run: lookups by key, planned for the size of the run.
            ('{cancel_run_v1, withdraw_steps_v1, reopen_run_v1, steps_to_reset_v1, only_ignored_failures_v1,
               unknown_job_types_v1, settle_chained_run_v1, reconcile_runs_v1, runs_to_check_v1, repair_run_v1}',
             '{enable_seqscan, enable_bitmapscan, enable_hashjoin, enable_mergejoin, jit}', false),
            ('{jobs_to_stop_v1}',
             '{enable_seqscan, enable_bitmapscan, enable_hashjoin, enable_mergejoin}', false),
            ('{next_page_v1}',
             '{enable_seqscan, enable_bitmapscan, jit}', false),
            ('{due_maintenance_v1}',
             '{enable_seqscan, enable_bitmapscan}', false),
            -- The planner chooses the joins; it only must not scan a whole table.
            ('{prune_jobs_v1, prune_runs_v1, request_cancel_v1, lock_runs_v1, process_request_v1}',
             '{enable_seqscan, jit}', false),
            ('{overdue_runs_v1, due_requests_v1, defer_request_v1}',
             '{enable_seqscan}', false)
        ) as g (functions, off, is_planned_once)
    loop
        foreach v_function in array v_group.functions loop
            foreach v_setting in array v_group.off loop
                execute format('alter function pipeline.%I set %I to off', v_function, v_setting);
            end loop;
            if v_group.is_planned_once then
                execute format('alter function pipeline.%I set plan_cache_mode to force_generic_plan', v_function);
            end if;
        end loop;
    end loop;
end $$;
