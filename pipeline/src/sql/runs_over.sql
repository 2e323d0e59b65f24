-- Returns those of these runs that have ended or do not exist. Each run is looked up by key: a plan that was made
-- for a small table could otherwise scan all runs.
select w.id as "id!", r.status::text as "status?"
from unnest($1::bigint[]) as w (id)
left join lateral (
    select r.id, r.status, r.ended_at from pipeline.runs r where r.id = w.id offset 0
) as r on true
where r.id is null or r.ended_at is not null
