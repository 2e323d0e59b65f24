select started.id as "id!"
from pipeline.runs r
cross join lateral (
    select array_agg(s.params order by s.no) as params from pipeline.steps s where s.run = r.id
) as steps
cross join lateral pipeline.start_v1(
    r.graph, $2, array[r.history], array[r.params], array[r.callbacks], array[null::bytea],
    array[null::text], array[r.actor], array[to_json(r.tags)], array[r.id], array[false], steps.params
) as started
where r.id = $1
