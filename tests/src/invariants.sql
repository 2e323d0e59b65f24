-- What is wrong in a database, one row for each thing: in a healthy one there is none, at any moment,
-- whether workers run or not. The constraints of checks.sql come first.

select format('job %s is %s, and its token says otherwise', id, status) as problem, to_jsonb(j) as subject
from pipeline.jobs j
where (status = 'running') <> (token is not null)

union all
select format('job %s is running without a lease', id), to_jsonb(j)
from pipeline.jobs j
where status = 'running' and (lease_until is null or claimed_at is null)

union all
select format('job %s is %s, and the time of its end says otherwise', id, status), to_jsonb(j)
from pipeline.jobs j
where (status in ('succeeded', 'failed', 'discarded')) <> (ended_at is not null)

union all
select format('job %s waits and has no attempt left', id), to_jsonb(j)
from pipeline.jobs j
where status in ('scheduled', 'ready') and (attempt < 0 or attempt >= max_attempts)

union all
select format('job %s is due at no time that a client can read', id), to_jsonb(j)
from pipeline.jobs j
where not isfinite(run_at) or run_at >= '262143-01-01 00:00:00+00'

union all
select format('run %s counts %s live steps', id, live_steps), to_jsonb(r)
from pipeline.runs r
where live_steps < 0

union all
select format('run %s is %s, and the time of its end says otherwise', id, status), to_jsonb(r)
from pipeline.runs r
where (status in ('succeeded', 'failed', 'halted', 'cancelled', 'skipped')) <> (ended_at is not null)

union all
select format('run %s says %s of its failure, and its steps say otherwise', id, is_failed), to_jsonb(r)
from pipeline.runs r
where is_failed <> exists (
    select from pipeline.steps s
    join pipeline.nodes n on n.graph = r.graph and n.no = s.no and not n.is_optional
    where s.run = r.id and s.status = 'failed'
)

union all

select format('job %s is %s and was claimed more often than it may be', id, status), to_jsonb(j)
from pipeline.jobs j
where attempt > max_attempts or attempt < 0

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
where key is not null and status in ('scheduled', 'ready', 'running')
group by job_type, key having count(*) > 1

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
select format('attempt %s of job %s is not one of the %s it may have', a.attempt, j.id, j.max_attempts),
       to_jsonb(a)
from pipeline.attempts a
join pipeline.jobs j on j.id = a.job
where a.attempt < 1 or a.attempt > j.max_attempts

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
    where j.batch = b.id and j.status in ('scheduled', 'ready', 'running')
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

union all
select format('run %s is %s and counts %s live steps, of which there are %s', r.id, r.status, r.live_steps,
              steps.live),
       to_jsonb(r)
from pipeline.runs r
cross join lateral (
    select count(*) filter (where s.status in ('pending', 'enqueued', 'waiting')) as live,
           count(*) as total
    from pipeline.steps s where s.run = r.id
) as steps
where r.live_steps <> steps.live
   or (r.ended_at is not null) <> (steps.live = 0)
   or steps.total <> (select g.size from pipeline.graphs g where g.id = r.graph)

union all
-- Rule 32: a start that was sent twice is one run.
select format('runs %s bear one nonce', array_agg(r.id order by r.id)), jsonb_agg(to_jsonb(r))
from pipeline.runs r
where r.nonce is not null
group by r.nonce having count(*) > 1

union all
select format('run %s has graph %s, which is not there', r.id, r.graph), to_jsonb(r)
from pipeline.runs r
where not exists (select from pipeline.graphs g where g.id = r.graph)

union all
-- Rule 17. Who chains or reopens leaves a request until somebody has looked under all the locks.
select format('run %s waits in its chain, all runs before it have ended, and nobody is to look', r.id),
       to_jsonb(r)
from pipeline.runs r
where r.status = 'pending'
  and not exists (select from pipeline.chains c join pipeline.runs up on up.id = c.upstream
                  where c.downstream = r.id and up.status in ('pending', 'running', 'cancelling'))
  and not exists (select from pipeline.requests q where q.run = r.id)

union all
select format('step %s of run %s has no run', s.no, s.run), to_jsonb(s)
from pipeline.steps s
where not exists (select from pipeline.runs r where r.id = s.run)

union all
-- Rule 9. A run that was drained ends as it was told to.
select format('run %s is %s, and its steps say otherwise', r.id, r.status), to_jsonb(r)
from pipeline.runs r
cross join lateral (
    select coalesce(bool_or(s.status = 'failed' and not n.is_optional), false) as failed,
           coalesce(bool_or(s.status = 'failed' and n.strategy = 'halt'), false) as halted,
           coalesce(bool_or(s.status = 'cancelled'), false) as cancelled
    from pipeline.steps s
    join pipeline.nodes n on n.graph = r.graph and n.no = s.no
    where s.run = r.id
) as steps
where case r.status
        when 'succeeded' then steps.failed or steps.cancelled
        when 'halted' then not (steps.failed and r.halt_triggered)
        when 'failed' then not (steps.failed and not r.halt_triggered)
                           and (r.deadline_at is null or r.deadline_at > r.ended_at)
        else false
      end
   or r.status in ('running', 'succeeded', 'halted') and r.halt_triggered <> steps.halted

union all
select format('step %s of run %s is enqueued, and its job is not there', s.no, s.run), to_jsonb(s)
from pipeline.steps s
where s.status = 'enqueued'
  and not exists (select from pipeline.jobs j
                  where j.id = pipeline.step_id(s.run, s.no)
                    and j.status in ('scheduled', 'ready', 'running'))

union all
select format('job %s is one of step %s of run %s, which is not enqueued', j.id,
              pipeline.no_of(j.id), pipeline.run_of(j.id)),
       to_jsonb(j)
from pipeline.jobs j
where j.id % 2 = 0
  and not exists (select from pipeline.steps s
                  where s.run = pipeline.run_of(j.id) and s.no = pipeline.no_of(j.id)
                    and s.status = 'enqueued')

union all
select format('step %s of run %s has ended without a time, or has a time and has not ended', s.no, s.run),
       to_jsonb(s)
from pipeline.steps s
where (s.ended_at is not null) <> (s.status not in ('pending', 'enqueued', 'waiting'))
   or s.status = 'enqueued' and s.enqueued_at is null

union all
select format('step %s of run %s started before it was enqueued', s.no, s.run), to_jsonb(s)
from pipeline.steps s
where s.ended_at - s.ran_ms * interval '1 ms' < s.enqueued_at

union all
-- A request has its turn for two seconds at a time.
select format('request %s keeps run %s from going on for too long', q.id, q.run), to_jsonb(q)
from pipeline.requests q
where q.turn_until > pipeline.now() + interval '3 s'

union all
-- Rule 3: the ended step keeps the token. What the coordinator resolves has none.
select format('step %s of run %s is %s by token %s', s.no, s.run, s.status, s.token), to_jsonb(s)
from pipeline.steps s
join pipeline.runs r on r.id = s.run
join pipeline.nodes n on n.graph = r.graph and n.no = s.no
where case
        when s.status in ('succeeded', 'failed', 'ended_run') and n.kind in ('job', 'branch', 'each')
            -- The reconciler ends what no attempt has.
            then (s.token is null) <> (s.attempt < 1)
        when s.status in ('skipped', 'skipped_by_branch', 'pending') or n.kind in ('barrier', 'merge')
            then s.token is not null
        else false
      end

union all
select format('step %s of run %s is %s, and says that it is because of %s %s', s.no, s.run, s.status,
              s.reason, s.cause),
       to_jsonb(s)
from pipeline.steps s
where case s.status
        when 'skipped' then s.reason is null
        when 'skipped_by_branch' then s.reason is null
        when 'failed' then s.error_class is null
        when 'succeeded' then s.error_class is not null
        else false
      end

union all
-- Rules 12 and 20: what stands before a step, and what it is.
select format('step %s of run %s is %s: of the %s before it %s have not ended, %s break it, %s did not fail, %s succeeded',
              s.no, s.run, s.status, up.total, up.live, up.broken, up.not_taken, up.succeeded),
       to_jsonb(s)
from pipeline.steps s
join pipeline.runs r on r.id = s.run
join pipeline.nodes n on n.graph = r.graph and n.no = s.no
cross join lateral (
    select count(*) as total,
           count(*) filter (where u.status in ('pending', 'enqueued', 'waiting')) as live,
           count(*) filter (where d.takes not in ('failure', 'ended')
                              and (u.status in ('skipped', 'cancelled')
                                   or u.status = 'failed' and un.strategy <> 'ignore')) as broken,
           count(*) filter (where d.takes = 'failure' and u.status <> 'failed') as not_taken,
           count(*) filter (where u.status = 'succeeded') as succeeded,
           count(*) filter (where u.status = 'skipped_by_branch') as left_out
    from pipeline.dependencies d
    join pipeline.steps u on u.run = s.run and u.no = d.upstream
    join pipeline.nodes un on un.graph = d.graph and un.no = d.upstream
    where d.graph = r.graph and d.downstream = s.no
) as up
-- A reopening moves what stands before a step that stays as it is.
where r.round = 1 and case
        when s.status = 'pending' and r.status = 'running'
            then s.open_edges <> up.live or up.live = 0 or n.is_any and up.succeeded > 0
        when s.status in ('enqueued', 'waiting', 'succeeded', 'failed', 'ended_run') and n.is_any
            then up.succeeded = 0
        when s.status in ('enqueued', 'waiting', 'succeeded', 'failed', 'ended_run')
            then up.live > 0 or up.broken > 0 or up.not_taken > 0
        when s.reason = 'broken' then up.live > 0 or up.broken = 0
        when s.reason = 'no_failure' then up.not_taken = 0
        when s.reason = 'none_succeeded' then up.live > 0 or up.succeeded > 0 or up.left_out = up.total
        when s.reason = 'none_taken' then up.left_out < up.total
        else false
      end

union all
-- Rules 12 and 13: a barrier ends before the steps of its phase only if the whole run ends early or is cancelled,
-- or if Halt skips it and no error path waits for its end.
select format('barrier %s of run %s is %s because of %s, and error path %s waits for its end', s.no, s.run, s.status,
              s.reason, d.downstream),
       to_jsonb(s)
from pipeline.steps s
join pipeline.runs r on r.id = s.run
join pipeline.dependencies d on d.graph = r.graph and d.upstream = s.no and d.takes = 'ended'
where s.reason = 'halted_by'

union all
-- §8: only the chosen arm runs, also of a branch around it.
select format('step %s of run %s is %s, and branch %s is %s with arm %s', s.no, s.run, s.status, b.no,
              b.status, b.arm),
       to_jsonb(s)
from pipeline.runs r
join pipeline.arms a on a.graph = r.graph
join pipeline.steps s on s.run = r.id and s.no = a.no
join pipeline.steps b on b.run = r.id and b.no = a.branch
where s.status in ('pending', 'enqueued', 'waiting', 'succeeded', 'failed', 'ended_run')
  and (b.status = 'succeeded' and b.arm is distinct from a.arm
       or b.status = 'skipped_by_branch'
       or s.status <> 'pending' and b.status in ('pending', 'enqueued', 'waiting'))

union all
select format('step %s of run %s is %s with arm %s', s.no, s.run, s.status, s.arm), to_jsonb(s)
from pipeline.steps s
join pipeline.runs r on r.id = s.run
join pipeline.nodes n on n.graph = r.graph and n.no = s.no
where (s.arm is not null) <> (n.kind = 'branch' and s.status = 'succeeded')
   or s.arm is not null and n.arms[s.arm + 1] is null

union all
select format('run %s has written %s events and %s are there', r.id, r.events, events.count),
       to_jsonb(r)
from pipeline.runs r
cross join lateral (
    select count(*), min(e.no), max(e.no)
    from pipeline.events e where e.run = r.id
) as events
where (events.count, coalesce(events.max, 0)) <> (r.events, r.events)
   or r.events > 0 and events.min <> 1

union all
select format('run %s has ended %s times in %s rounds', r.id, ends.count, r.round), to_jsonb(r)
from pipeline.runs r
cross join lateral (
    select count(*) from pipeline.events e
    where e.run = r.id and e.step is null
      and e.status in ('succeeded', 'failed', 'halted', 'cancelled', 'skipped')
) as ends
where ends.count > r.round or r.event_level <> 'none' and r.ended_at is not null and ends.count <> r.round
