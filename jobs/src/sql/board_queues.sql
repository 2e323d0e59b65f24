select distinct queue as "queue!" from (
    select queue from pipeline.jobs
    union all select name from pipeline.queues
    union all select q ->> 'queue' from pipeline.workers, jsonb_array_elements(queues) as q
    where stopped_at is null
) as all_queues (queue)
where queue not like '%*'
order by queue
