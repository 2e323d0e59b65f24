-- Returns the given runs as if steps had ended, so that finish_advance_v1 checks whether they are over.
create function pipeline.unchanged_runs(p_runs bigint[]) returns pipeline.ended_step[]
language sql stable as $$
    select array_agg(row(r.id, null, null, null, null, null, null, null, null, null, null, null)::pipeline.ended_step)
    from unnest(p_runs) as r (id)
$$;
