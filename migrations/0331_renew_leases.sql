-- Renews leases. `lost` are the tokens that no row has any more; `held` are the tokens whose row another
-- transaction holds: their leases were not renewed, and the caller tries again.
create function pipeline.renew_leases_v1(
    p_ids bigint[], p_tokens bigint[], out lost bigint[], out held bigint[]
)
language plpgsql as $$
declare
    v_now timestamptz := pipeline.now();
    v_renewed bigint[];
begin
    with ours as materialized (
        select j.id from pipeline.jobs j
        join unnest(p_ids, p_tokens) as e (id, token) on j.id = e.id and j.token = e.token
        for no key update of j skip locked
    ), renewed as (
        update pipeline.jobs j set lease_until = v_now + j.lease_ms * interval '1 ms'
        from ours where j.id = ours.id
        returning j.token
    )
    select coalesce(array_agg(token), '{}') into v_renewed from renewed;

    if cardinality(v_renewed) < cardinality(p_tokens) then
        select array_agg(e.token) filter (where j.id is null),
               array_agg(e.token) filter (where j.id is not null)
        into lost, held
        from unnest(p_ids, p_tokens) as e (id, token)
        left join pipeline.jobs j on j.id = e.id and j.token = e.token
        where e.token <> all (v_renewed);
    end if;
end $$;
