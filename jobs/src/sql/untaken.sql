-- Returns the wanted jobs that no live worker takes, and for each the best match among the workers. A worker
-- writes its heartbeat every 5 s, and leaves jobs of a version that is newer than its own.
select wanted.ord as "ord!", worker.is_known as "is_known!", worker.is_current as "is_current!",
       worker.is_taken as "is_taken!"
from unnest($1::text[], $2::text[], $3::boolean[], $4::integer[]) with ordinality
     as wanted (job_type, queue, is_step, version, ord)
cross join lateral (
    select count(*) > 0 as is_known, coalesce(bool_or(does.know), false) as is_current,
           coalesce(bool_or(does.know and does.take), false) as is_taken,
           coalesce(bool_or(does.know and does.take and does.serve), false) as is_served
    from pipeline.workers w
    cross join lateral unnest(w.job_types, w.versions) as known (job_type, version)
    cross join lateral (
        select known.version >= wanted.version as know,
               not wanted.is_step or w.takes_steps as take,
               exists (
                   select from jsonb_to_recordset(w.queues) as line (queue text)
                   where line.queue = wanted.queue
                      or right(line.queue, 1) = '*'
                         and starts_with(wanted.queue, left(line.queue, -1))
               ) as serve
    ) as does
    where w.stopped_at is null and w.seen_at > pipeline.now() - interval '30 s'
      and known.job_type = wanted.job_type
) as worker
where not worker.is_served
