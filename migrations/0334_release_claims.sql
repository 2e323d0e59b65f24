-- Undoes claims whose jobs have not started: they become ready again without losing an attempt. Fenced by the
-- tokens, so that it may be called after the claim was committed. Returns the number of jobs.
create function pipeline.release_claims_v1(p_ids bigint[], p_tokens bigint[]) returns bigint
language plpgsql as $$
declare
    v_count bigint;
begin
    update pipeline.jobs j
    set status = 'ready', token = null, lease_until = null, attempt = j.attempt - 1
    from unnest(p_ids, p_tokens) as e (id, token)
    where j.id = e.id and j.token = e.token;
    get diagnostics v_count = row_count;
    return v_count;
end $$;
