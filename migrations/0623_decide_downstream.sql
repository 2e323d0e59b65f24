-- Decides the steps downstream of ended steps, level by level, until no further step is decided. `ended` are all
-- ended steps, the given ones first; `released` are the steps that can start.
create function pipeline.decide_downstream_v1(
    p_ended pipeline.ended_step[],
    out ended pipeline.ended_step[], out released pipeline.released_step[]
)
language plpgsql as $$
declare
    v_now timestamptz := pipeline.now();
    v_level pipeline.ended_step[] := p_ended;
    v_next record;
    v_skips_arms boolean;       -- whether a step of the level is a branch whose other arms are skipped
    v_has_edges boolean;        -- whether edges lead away from the level
    v_has_any boolean := false; -- whether a step starts after any one of its upstream steps
    -- Appending copies an array, so that a long line of steps would take quadratic time: the results of the last
    -- levels are kept apart, and appended when there are many.
    c_many constant integer := 256;
    v_ended pipeline.ended_step[];
    v_released pipeline.released_step[];
begin
    while v_level is not null loop
        if cardinality(v_level) = 1 then
            -- Without a query: a lone end is the common case, and starting a query costs more than its work.
            v_skips_arms := (v_level[1]).skips_arms;
            v_has_edges := (v_level[1]).out_edges is not null;
        else
            select bool_or(e.skips_arms), bool_or(e.out_edges is not null) into v_skips_arms, v_has_edges
            from unnest(v_level) as e;
        end if;
        if v_skips_arms then
            v_level := pipeline.skip_arms_v1(v_level);
            v_has_edges := true;
        end if;
        v_ended := v_ended || v_level;
        if cardinality(v_ended) >= c_many then
            ended := ended || v_ended;
            v_ended := null;
        end if;

        -- Usually the last steps of their runs.
        exit when v_has_edges is not true;
        with touched as (
            select e.run, e.graph, o.no, count(*)::integer as count,
                   bool_or(e.status = 'succeeded') as has_success,
                   bool_or(effect.is = 'broken') as is_broken,
                   bool_or(pipeline.any_edge_effect(e.status) = 'broken') as is_broken_for_any,
                   bool_or(effect.is = 'not_taken') as is_not_taken,
                   min(e.no) filter (where effect.is <> 'satisfied') as cause,
                   min(e.end_index) filter (where e.status = 'succeeded') as end_index, min(o.takes) as takes
            from unnest(v_level) as e
            cross join lateral unnest(e.out_edges) as o
            cross join lateral (
                select pipeline.edge_effect(e.status, e.is_ignored, o.takes) as is
            ) as effect
            group by e.run, e.graph, o.no
        ), decided as (
            update pipeline.steps s
            set open_edges = s.open_edges - t.count,
                is_broken = effects.is_broken,
                is_not_taken = s.is_not_taken or t.is_not_taken,
                status = next.status,
                enqueued_at = case when next.status = 'enqueued' then v_now end,
                ended_at = case when next.status not in ('pending', 'enqueued') then v_now end,
                reason = case next.status
                    when 'enqueued' then case when n.is_any then 'first'::pipeline.step_reason end
                    when 'skipped_by_branch' then case when n.is_any then 'none_taken'::pipeline.step_reason
                                                  else 'no_failure' end
                    when 'skipped' then case when n.is_any then 'none_succeeded'::pipeline.step_reason
                                        else 'broken' end
                end,
                cause = case when next.status = 'succeeded' or n.is_any then null
                             else coalesce(s.cause, t.cause) end
            from touched t
            cross join lateral (
                select n.* from pipeline.nodes n where n.graph = t.graph and n.no = t.no offset 0
            ) as n
            cross join lateral (
                select b.ctid as row, b.open_edges, b.is_broken, b.is_not_taken from pipeline.steps b
                where b.run = t.run and b.no = t.no and b.status = 'pending' offset 0
            ) as b
            cross join lateral (
                select b.is_broken or case when n.is_any then t.is_broken_for_any else t.is_broken end as is_broken
            ) as effects
            cross join lateral (
                select pipeline.step_status_after(
                    b.open_edges - t.count, n.is_any, n.kind, t.has_success, effects.is_broken,
                    b.is_not_taken or t.is_not_taken
                ) as status
            ) as next
            where s.ctid = b.row
            returning s.run, s.no, t.graph, s.status, s.params, n.kind, n.is_any, n.out_edges, n.job_type, n.queue,
                      n.priority, n.max_attempts, n.lease_ms, n.delay_ms, n.key, n.options, n.input,
                      case when n.in_edges = 1 and coalesce(pg_column_size(s.params), 0) <= 2000
                           then t.end_index end as end_index,
                      t.takes
        )
        select array_agg(row(
                   d.run, d.no, d.graph, d.status, false, false, false, null, null,
                   d.kind = 'branch' and d.status = 'skipped_by_branch', null, d.out_edges
               )::pipeline.ended_step) filter (where d.status not in ('pending', 'enqueued')) as ended,
               array_agg(row(
                   d.run, d.no, d.end_index, d.takes, d.params, d.job_type, d.queue, d.priority, d.max_attempts, d.lease_ms,
                   d.delay_ms, d.key, d.options, d.input
               )::pipeline.released_step) filter (where d.status = 'enqueued') as released,
               bool_or(d.kind = 'merge' and d.status = 'succeeded') as has_merge,
               bool_or(d.is_any and d.status = 'enqueued') as has_any
        into v_next from decided d;
        v_level := v_next.ended;
        if v_next.has_merge then
            perform pipeline.copy_merged_outputs_v1(v_level);
        end if;
        v_has_any := v_has_any or coalesce(v_next.has_any, false);
        if v_next.released is not null then
            v_released := v_released || v_next.released;
            if cardinality(v_released) >= c_many then
                released := released || v_released;
                v_released := null;
            end if;
        end if;
    end loop;
    ended := ended || v_ended;
    released := released || v_released;
    if v_has_any then
        perform pipeline.set_first_cause_v1(released);
    end if;
end $$;
