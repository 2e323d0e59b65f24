-- Returns a run that does not exist. Locks the existing runs, so that they are not pruned before the commit.
with there as (
    select r.id from pipeline.runs r where r.id = any ($1::bigint[]) for key share
)
select run as "run!" from unnest($1::bigint[]) as run
where not exists (select from there where there.id = run)
limit 1
