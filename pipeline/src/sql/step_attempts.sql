-- Returns the ended attempts of a step: those that did not succeed, and the one that did. At least one row if the
-- run exists; its step is null if the run has no such step.
select n.key as "step?", a.attempt as "attempt?", a.outcome as "outcome?", a.error_class,
       a.error_message, a.ended_at as "ended_at?", a.token as "token?", a.ran_ms
from pipeline.runs r
left join pipeline.nodes n on n.graph = r.graph and n.key = $2
left join lateral (
    select attempt, outcome, error_class, error_message, ended_at, token, null::integer as ran_ms
    from pipeline.attempts
    where job = pipeline.step_id(r.id, n.no)
    union all
    select attempt, status::text, null, null, ended_at, token, ran_ms
    from pipeline.steps
    where run = r.id and no = n.no and status in ('succeeded', 'ended_run') and token is not null
) as a on true
where r.id = $1
order by a.ended_at, a.token
