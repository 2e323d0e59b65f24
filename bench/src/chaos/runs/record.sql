-- What the steps, callbacks and plain jobs themselves have written down, against the record; one row for
-- each thing that is wrong.
with
-- Each attempt that is on record: those that did not succeed, and the one that did.
tried as materialized (
    select a.job, a.token, a.attempt::integer, a.error_class as class from pipeline.attempts a
    union all
    select pipeline.step_id(s.run, s.no), s.token, s.attempt::integer, null
    from pipeline.steps s where s.status = 'succeeded'
    union all
    -- Of a callback and of a plain job the token is not kept.
    select j.id, null, j.attempt::integer, null from pipeline.jobs j where j.status = 'succeeded'
), named as materialized (
    select pipeline.step_id(s.run, s.no) as job, format('step `%s` of run %s', n.key, s.run) as name
    from pipeline.steps s
    join pipeline.runs r on r.id = s.run
    join pipeline.nodes n on n.graph = r.graph and n.no = s.no
    union all
    select f.job, format('callback %s of run %s', f.position, f.run) from pipeline.dispatched_callbacks f
), problems (job, problem) as (
    select e.job, format('attempt %s was executed by token %s, which is not on record', e.attempt, e.token)
    from executed e
    where not exists (select from tried t where t.job = e.job and t.attempt = e.attempt
                                            and coalesce(t.token, e.token) = e.token)

    union all
    select e.job, format('attempt %s was executed %s times', e.attempt, count(*))
    from executed e group by e.job, e.attempt having count(*) > 1

    union all
    select min(e.job), format('token %s was executed by jobs %s', e.token, array_agg(e.job))
    from executed e group by e.token having count(*) > 1

    union all
    -- A worker may be killed between the claim and the first line of the step; nothing else explains
    -- an attempt that nobody has heard of.
    select t.job, format('attempt %s (%s) is on record and was never executed', t.attempt,
                         coalesce(t.class, 'succeeded'))
    from tried t
    where t.class is distinct from 'WorkerDied'
      and not exists (select from executed e where e.job = t.job and e.attempt = t.attempt)

    union all
    select t.job, format('its attempts on record are %s', array_agg(t.attempt order by t.attempt))
    from tried t group by t.job
    having count(*) <> max(t.attempt) or count(distinct t.attempt) <> count(*) or min(t.attempt) <> 1

    union all
    select e.job, format('was executed %s times, and %s attempts failed or lost their lease', e.count,
                         lost.count)
    from (select job, count(*) from executed group by job) as e
    cross join lateral (select count(*) from pipeline.attempts a where a.job = e.job) as lost
    where e.count > lost.count + 1

    union all
    -- Whoever began later must have begun after the one before had returned or had lost its lease.
    select later.job, format('attempt %s (process %s) overlaps attempt %s (process %s), which had not lost its lease',
                             later.attempt, later.pid, e.attempt, e.pid)
    from executed e
    join executed later on later.job = e.job and (later.at, later.ctid) > (e.at, e.ctid)
    where coalesce(e.returned_at, 'infinity') > later.at
      and not exists (select from pipeline.attempts a
                      where a.job = e.job and a.token = e.token and a.error_class = 'WorkerDied'
                        and a.ended_at <= later.at)

    union all
    select min(e.job), format('token %s ended %s times', e.token, count(*))
    from ends e group by e.token having count(*) > 1

    union all
    select e.job, format('was executed before step %s ended', d.upstream)
    from executed e
    join pipeline.runs r on r.id = pipeline.run_of(e.job)
    join pipeline.dependencies d on d.graph = r.graph and d.downstream = pipeline.no_of(e.job)
    join pipeline.steps up on up.run = r.id and up.no = d.upstream
    where e.job % 2 = 0 and (up.ended_at is null or e.at < up.ended_at)

    union all
    select e.job, format('was executed before run %s ended, which its own comes after', up.id)
    from executed e
    join pipeline.chains c on c.downstream = pipeline.run_of(e.job)
    join pipeline.runs up on up.id = c.upstream
    where e.job % 2 = 0 and (up.ended_at is null or e.at < up.ended_at)

    union all
    select j.id, format('is %s in the queue', j.status) from pipeline.jobs j
    where j.status <> 'succeeded'
)
select coalesce(n.name, format('job %s', p.job)) || ': ' || p.problem
from problems p left join named n on n.job = p.job
order by p.job, p.problem
