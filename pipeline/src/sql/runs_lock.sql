-- Locks runs without waiting. Returns those that exist and are locked by another transaction.
with locked as materialized (
    select r.id from pipeline.runs r where r.id = any ($1::bigint[])
    order by r.id for no key update skip locked
)
select r.id from pipeline.runs r
where r.id = any ($1::bigint[]) and not exists (select from locked where locked.id = r.id)
