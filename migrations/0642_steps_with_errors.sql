-- Returns the first hundred steps of a run that ended with this status and have an error. A cancelled step has
-- an error if one of its attempts failed before the run was cancelled.
create function pipeline.steps_with_errors_v1(
    p_run bigint, p_graph bigint, p_status pipeline.step_status
) returns jsonb
language plpgsql as $$
begin
    return coalesce((
        select jsonb_agg(jsonb_build_object('step', f.key, 'class', f.error_class,
                                            'message', f.error_message) order by f.no)
        from (
            select n.key, s.no, s.error_class, s.error_message
            from pipeline.steps s
            join pipeline.nodes n on n.graph = p_graph and n.no = s.no
            where s.run = p_run and s.status = p_status and s.error_class is not null
            order by s.no
            limit 100
        ) as f
    ), '[]');
end $$;
