-- What is wrong in a database, one row for each thing: in a healthy one there is none, at any moment,
-- whether workers run or not. The table's own constraints are not said again.

select format('job %s is %s and was claimed more often than it may be', id, status) as problem,
       to_jsonb(j) as subject
from pipeline.jobs j
where attempt > attempts or attempt < 0

union all
select format('job %s is running in an attempt that has not begun', id), to_jsonb(j)
from pipeline.jobs j
where status = 'running' and (attempt < 1 or worker is null)

union all
select format('job %s has a lease, and nobody runs it', id), to_jsonb(j)
from pipeline.jobs j
where status <> 'running' and lease_until is not null

union all
select format('jobs %s bear one token', array_agg(id order by id)), jsonb_agg(to_jsonb(j))
from pipeline.jobs j
where token is not null
group by token having count(*) > 1

union all
select format('token %s of job %s has ended, and runs still', token, id), to_jsonb(j)
from pipeline.jobs j
where exists (select from pipeline.attempts a where a.job = j.id and a.token = j.token)

union all
select format('live jobs %s share a unique key', array_agg(id order by id)), jsonb_agg(to_jsonb(j))
from pipeline.jobs j
where unique_key is not null and status in ('later', 'ready', 'running')
group by kind, unique_key having count(*) > 1

union all
select format('job %s failed without saying why', id), to_jsonb(j)
from pipeline.jobs j
where status in ('failed', 'discarded') and (error_class is null or error_message is null)

union all
select format('job %s failed without an attempt that did', id), to_jsonb(j)
from pipeline.jobs j
where status in ('failed', 'discarded')
  and not exists (select from pipeline.attempts a
                  where a.job = j.id and a.outcome = j.status::text and a.attempt = j.attempt)

union all
select format('attempt %s of job %s is not one of the %s it may have', a.attempt, j.id, j.attempts),
       to_jsonb(a)
from pipeline.attempts a
join pipeline.jobs j on j.id = a.job
where a.attempt < 1 or a.attempt > j.attempts

union all
select format('job %s is in batch %s, which is not there', id, batch), to_jsonb(j)
from pipeline.jobs j
where batch is not null and not exists (select from pipeline.batch_sets b where b.id = j.batch)

union all
select format('batch %s counts %s live jobs and has %s', b.id, b.total - b.ended, live.count),
       to_jsonb(b)
from pipeline.batch_sets b
cross join lateral (
    select count(*) from pipeline.jobs j
    where j.batch = b.id and j.status in ('later', 'ready', 'running')
) as live
where live.count <> b.total - b.ended

union all
-- Those that were discarded by hand are counted, and no longer there.
select format('batch %s counts %s failed jobs and has %s', b.id, b.failed, failed.count), to_jsonb(b)
from pipeline.batch_sets b
cross join lateral (
    select count(*) from pipeline.jobs j
    where j.batch = b.id and j.status in ('failed', 'discarded')
) as failed
where failed.count > b.failed

union all
select format('batch %s is sealed, all its jobs have ended, and it is not finished', id), to_jsonb(b)
from pipeline.batch_sets b
where sealed_at is not null and ended = total and finished_at is null
