-- Of these runs, those that have ended, and those that are not there.
select w.id as "id!", r.status::text as "status?"
from unnest($1::bigint[]) as w (id)
left join pipeline.runs r on r.id = w.id
where r.id is null or r.ended_at is not null
