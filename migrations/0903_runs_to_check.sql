-- Returns those of these runs that have problems.
create function pipeline.runs_to_check_v1(
    p_runs bigint[], p_first integer[], p_last integer[], p_is_end boolean[]
) returns bigint[]
language plpgsql stable as $$
begin
    return (select array_agg(distinct p.run order by p.run)
            from pipeline.run_problems_v1(p_runs, p_first, p_last, p_is_end) as p);
end $$;
