-- Returns the problems of live runs in one snapshot. Checks the steps of each run from p_first to p_last, and the
-- run itself if p_is_end says that p_last is the last step.
-- Problems of a run: `live_steps` its count of live steps is wrong, `not_ended` no step is live and the run has not ended,
-- `forgotten` all runs before it have ended and it still waits. Problems of a step: `lost` its queue row does not
-- exist, `spoiled` its queue row was changed, `undecided` all upstream steps have ended and it still waits,
-- `open_edges` its count of open edges is wrong. `fact` is the correct count. `offset 0` keeps every lookup by key:
-- each step is read once, however many steps there are.
create function pipeline.run_problems_v1(
    p_runs bigint[], p_first integer[], p_last integer[], p_is_end boolean[]
) returns table (
    run bigint, no integer, key text, problem text, fact integer, attempt smallint, detail text
)
language sql stable
as $$
    select r.id, s.no, n.key, case when j.id is null then 'lost' else 'spoiled' end, null::integer,
           coalesce(j.attempt, (select max(a.attempt) from pipeline.attempts a
                                where a.job = pipeline.step_id(r.id, s.no)), 0::smallint),
           spoiled.detail
    from unnest(p_runs, p_first, p_last) as e (run, first, last)
    cross join lateral (
        select r.id, r.graph from pipeline.runs r
        where r.id = e.run and r.status in ('running', 'cancelling') offset 0
    ) as r
    cross join lateral (
        select s.no from pipeline.steps s
        where s.run = r.id and s.no between e.first and e.last and s.status = 'enqueued' offset 0
    ) as s
    cross join lateral (
        select n.key, n.job_type from pipeline.nodes n
        where n.graph = r.graph and n.no = s.no and n.kind in ('job', 'branch') offset 0
    ) as n
    left join lateral (
        select j.* from pipeline.jobs j where j.id = pipeline.step_id(r.id, s.no) offset 0
    ) as j on true
    cross join lateral (
        select case
            when j.status in ('succeeded', 'failed', 'discarded') then format('it is %s', j.status)
            when j.job_type <> n.job_type then format('its type is `%s` and not `%s`', j.job_type, n.job_type)
            when j.batch is not null then format('it is in batch %s', j.batch)
            when j.lease_ms <= 0 then format('its lease is %s ms long', j.lease_ms)
            when not isfinite(j.lease_until) then 'its lease never runs out'
        end as detail
    ) as spoiled
    where j.id is null or spoiled.detail is not null

    union all
    select r.id, s.no,
           (select n.key from pipeline.nodes n where n.graph = r.graph and n.no = s.no),
           case when open.count = 0 then 'undecided' else 'open_edges' end, open.count, s.attempt,
           format('it waits for %s', s.open_edges)
    from unnest(p_runs, p_first, p_last) as e (run, first, last)
    cross join lateral (
        select r.id, r.graph from pipeline.runs r
        where r.id = e.run and r.status = 'running' offset 0
    ) as r
    cross join lateral (
        select s.no, s.open_edges, s.attempt from pipeline.steps s
        where s.run = r.id and s.no between e.first and e.last and s.status = 'pending' offset 0
    ) as s
    cross join lateral (
        select count(*)::integer
        from (
            select d.upstream from pipeline.dependencies d where d.graph = r.graph and d.downstream = s.no offset 0
        ) as d
        cross join lateral (
            select from pipeline.steps up
            where up.run = r.id and up.no = d.upstream and up.status in ('pending', 'enqueued', 'waiting')
            offset 0
        ) as up
    ) as open
    where open.count = 0 or open.count <> s.open_edges

    union all
    select r.id, null, null, case when live.count = r.live_steps then 'not_ended' else 'live_steps' end, live.count, null,
           format('it counts %s live steps', r.live_steps)
    from unnest(p_runs, p_is_end) as e (run, is_end)
    join pipeline.runs r on e.is_end and r.id = e.run and r.status in ('pending', 'running', 'cancelling')
    cross join lateral (
        select count(*)::integer from pipeline.steps s
        where s.run = r.id and s.status in ('pending', 'enqueued', 'waiting')
    ) as live
    where live.count <> r.live_steps or live.count = 0 and r.status <> 'pending'

    union all
    select r.id, null, null, 'forgotten', null, null, null
    from unnest(p_runs, p_is_end) as e (run, is_end)
    join pipeline.runs r on e.is_end and r.id = e.run and r.status = 'pending'
    where not exists (
              select from pipeline.chains c join pipeline.runs up on up.id = c.upstream
              where c.downstream = r.id and up.status in ('pending', 'running', 'cancelling')
          )
      and not exists (select from pipeline.requests q where q.run = r.id)
$$;
