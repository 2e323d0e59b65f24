-- Returns the keys of the failed steps of a run that would fail again at once if it were reopened: no step would be
-- reset, and failures that were ignored, and that p_named does not have, make the run `failed`. Null: there are none.
create function pipeline.only_ignored_failures_v1(p_run bigint, p_named text[]) returns text[]
language plpgsql stable as $$
begin
    if cardinality(pipeline.steps_to_reset_v1(p_run, p_named)) > 0 then
        return null;
    end if;
    return (
        select array_agg(n.key order by n.no)
        from pipeline.runs r
        join pipeline.steps s on s.run = r.id and s.status = 'failed'
        join pipeline.nodes n on n.graph = r.graph and n.no = s.no and not n.is_optional
        where r.id = p_run
    );
end $$;
