-- Locks batches without waiting. Returns the batches that another transaction has locked.
with locked as materialized (
    select b.id from pipeline.batch_sets b where b.id = any ($1::bigint[])
    order by b.id for no key update skip locked
)
select b.id from pipeline.batch_sets b
where b.id = any ($1::bigint[]) and not exists (select from locked where locked.id = b.id)
