-- Resets runs to the beginning of a round: the runs and the steps that have to run again become pending.
create function pipeline.reset_steps_v1(p_runs bigint[], p_named text[]) returns void
language plpgsql as $$
declare
    v_now timestamptz := pipeline.now();
begin
    update pipeline.steps s
    set status = 'pending', open_edges = n.in_edges, is_broken = false, is_not_taken = false,
        reason = null, cause = null, enqueued_at = null, ended_at = null, error_class = null, error_message = null, token = null,
        attempt = 0, ran_ms = null, arm = null, output = null, output_bytes = null
    from unnest(p_runs) as e (run)
    join pipeline.runs r on r.id = e.run
    cross join lateral unnest(pipeline.steps_to_reset_v1(e.run, p_named)) as again (no)
    cross join lateral (
        select b.ctid as row from pipeline.steps b where b.run = e.run and b.no = again.no offset 0
    ) as before
    cross join lateral (
        select n.in_edges from pipeline.nodes n where n.graph = r.graph and n.no = again.no offset 0
    ) as n
    where s.ctid = before.row;
    with opened as (
        update pipeline.runs r
        set status = 'pending', round = r.round + 1, halt_triggered = false, stop_reason = null, started_at = null,
            ended_at = null, deadline_at = null, callbacks_dispatched_at = null,
            events = r.events + (r.event_level <> 'none')::integer,
            live_steps = (select count(*) from pipeline.steps s
                    where s.run = r.id and s.ended_at is null),
            is_failed = exists (
                select from pipeline.steps s
                join pipeline.nodes n on n.graph = r.graph and n.no = s.no and not n.is_optional
                where s.run = r.id and s.status = 'failed'
            )
        where r.id = any (p_runs)
        returning r.id, r.events, r.event_level
    )
    insert into pipeline.events (run, no, at, status)
    select id, events, v_now, 'reopened' from opened where event_level <> 'none';
end $$;
