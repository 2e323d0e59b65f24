-- Counts stop at a limit, so that a long queue does not slow the page down.
select status::text as "status!",
       (select count(*) from (
            select from pipeline.jobs j
            where j.status = s.status and ($1::text is null or j.queue = $1)
            limit 10000
        ) as counted) as "count!"
from unnest(enum_range(null::pipeline.job_status)) as s (status)
