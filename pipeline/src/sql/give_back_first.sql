-- Gives back first steps that were handed over to a worker that could not start them.
select pipeline.release_claims_v1($1, $2) as count,
       pipeline.notify_queues_v1(
           (select array_agg(distinct j.queue) from pipeline.jobs j where j.id = any ($1)),
           (select min(j.run_at) from pipeline.jobs j where j.id = any ($1))
       ) as announced
