-- Releases claims of a worker whose answer was lost. Considers only claims of the last p_within_ms. Returns the number
-- of claims, the queues, and their earliest `run_at`.
create function pipeline.release_unknown_claims_v1(
    p_worker bigint, p_known bigint[], p_within_ms bigint,
    out count bigint, out queues text[], out since timestamptz
)
language plpgsql as $$
declare
    v_unknown bigint[] := pipeline.unknown_claims_v1(p_worker, p_known, p_within_ms);
begin
    if v_unknown = '{}' then
        return;
    end if;
    with unheard as materialized (
        select j.id from pipeline.jobs j
        where j.id = any (v_unknown) and j.status = 'running' and j.worker = p_worker
        for update skip locked
    ), back as (
        update pipeline.jobs j
        set status = 'ready', token = null, lease_until = null, attempt = j.attempt - 1
        from unheard where j.id = unheard.id
        returning j.queue, j.run_at
    )
    select count(*), array_agg(distinct back.queue), min(back.run_at)
    into release_unknown_claims_v1.count, queues, since from back;
end $$;
