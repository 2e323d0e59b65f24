-- Writes the ends of steps. Returns them, with the steps that are skipped because an end halts its run or ends it
-- early (rules 13 and 14).
create function pipeline.end_steps_v1(p_ends pipeline.attempt_end[]) returns pipeline.ended_step[]
language plpgsql as $$
declare
    v_now timestamptz := pipeline.now();
    v_ended pipeline.ended_step[];
    v_is_unusual boolean;       -- whether an end halts its run or ends it early
begin
    with ended as (
        update pipeline.steps s
        set status = e.status,
            reason = case when e.status = 'cancelled'
                          then case when e.stop_reason = 'deadline' then 'deadline'::pipeline.step_reason
                                    else 'cancelled' end
                          else s.reason end,
            token = e.token, attempt = e.attempt, ended_at = v_now,
            -- The worker measures from before its claim was sent, which may be before the step was enqueued.
            -- Null if the worker did not say: `least` would take the time since the step was enqueued instead, which
            -- may be longer than an integer can say.
            ran_ms = case when e.ran_ms is not null
                          then least(e.ran_ms, greatest(floor(extract(epoch from v_now - s.enqueued_at) * 1000), 0))
                          end::integer,
            output = e.output,
            -- Four bytes of the stored size are its header.
            output_bytes = case when pg_column_size(e.output) > 4096
                                then pg_column_size(e.output) - 4 end,
            arm = e.arm,
            error_class = e.error_class,
            error_message = e.error_message
        from (
            select s.row, e.token, e.attempt, e.ran_ms, e.end_index, r.graph, r.stop_reason, n.kind, n.strategy, n.is_optional, n.out_edges, arm.chosen as arm,
                   case when arm.is_none then 'failed'::pipeline.step_status
                        when e.outcome = 'ended_run' then 'ended_run'
                        when e.outcome = 'succeeded' then 'succeeded'
                        when e.outcome = 'cancelled' then 'cancelled'
                        else 'failed' end as status,
                   case when e.outcome in ('succeeded', 'ended_run') and not arm.is_none
                        then e.output end as output,
                   case when arm.is_none then 'NotAnArm' else e.error_class end as error_class,
                   case when arm.is_none
                        then format('step `%s` chose %s, which is none of its arms: %s', n.key, e.output,
                                    array_to_string(n.arms, ', '))
                        else e.error_message end as error_message
            from unnest(p_ends) as e
            cross join lateral (
                select r.graph, r.stop_reason from pipeline.runs r where r.id = pipeline.run_of(e.job) offset 0
            ) as r
            cross join lateral (
                select n.kind, n.strategy, n.is_optional, n.key, n.arms, n.out_edges from pipeline.nodes n
                where n.graph = r.graph and n.no = pipeline.no_of(e.job) offset 0
            ) as n
            cross join lateral (
                select s.ctid as row from pipeline.steps s
                where s.run = pipeline.run_of(e.job) and s.no = pipeline.no_of(e.job)
                  and s.status = 'enqueued' offset 0
            ) as s
            cross join lateral (
                select chosen, n.kind = 'branch' and e.outcome = 'succeeded' and chosen is null as is_none
                from (
                    select case when n.kind = 'branch' and e.outcome = 'succeeded'
                                then array_position(n.arms, e.output #>> '{}') - 1 end as chosen
                ) as arm
            ) as arm
        ) as e
        where s.ctid = e.row
        returning s.run, s.no, e.graph, s.status, e.strategy, e.stop_reason, e.is_optional, s.attempt, e.end_index, s.arm,
                  e.kind, e.out_edges
    )
    select array_agg(row(
               e.run, e.no, e.graph, e.status, e.strategy = 'ignore',
               e.status = 'failed' and e.strategy = 'halt' and e.stop_reason is null,
               e.status = 'failed' and not e.is_optional, e.attempt, e.end_index,
               e.kind = 'branch' and e.status = 'succeeded', e.arm, e.out_edges
           )::pipeline.ended_step),
           bool_or(e.status = 'ended_run' or e.status = 'failed' and e.strategy = 'halt' and e.stop_reason is null)
    into v_ended, v_is_unusual
    from ended e;
    if not v_is_unusual then
        return v_ended;
    end if;

    -- If several steps of a run have ended, the ends that halt the run come first: that is one of the possible
    -- orders.
    with halted as (
        select e.run, e.graph, bool_or(e.status = 'ended_run') as is_early,
               coalesce(min(e.no) filter (where e.status = 'ended_run'), min(e.no)) as cause
        from unnest(v_ended) as e
        where e.status = 'ended_run' or e.is_halting
        group by e.run, e.graph
    ), skipped as (
        update pipeline.steps s
        set status = 'skipped', ended_at = v_now, cause = h.cause,
            reason = case when h.is_early then 'ended_by'::pipeline.step_reason else 'halted_by' end
        from halted h
        cross join lateral (
            select b.ctid as row, b.no from pipeline.steps b
            where b.run = h.run and b.status in ('pending', 'waiting') offset 0
        ) as b
        cross join lateral (
            select n.is_exempt, n.out_edges from pipeline.nodes n where n.graph = h.graph and n.no = b.no offset 0
        ) as n
        where s.ctid = b.row and (h.is_early or not n.is_exempt)
        returning s.run, s.no, h.graph, n.out_edges
    )
    select v_ended || array_agg(row(s.run, s.no, s.graph, 'skipped', false, false, false, null, null, false, null,
                                    s.out_edges)::pipeline.ended_step)
    into v_ended from skipped s;
    return v_ended;
end $$;
