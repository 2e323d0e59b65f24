-- Of these runs, those that have ended, and those that are not there. Each is looked up by itself: a
-- plan that was made while there were few runs would else go through all of them, each time.
select w.id as "id!", r.status::text as "status?"
from unnest($1::bigint[]) as w (id)
left join lateral (
    select r.id, r.status, r.ended_at from pipeline.runs r where r.id = w.id offset 0
) as r on true
where r.id is null or r.ended_at is not null
