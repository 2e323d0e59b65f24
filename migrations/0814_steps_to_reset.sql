-- Returns the steps of a run that a reopening resets to pending:
--   failed, skipped and cancelled steps; steps whose failure was ignored only if p_named has their keys;
--   the error paths of all these steps, and everything after an error path, in any status: an error path is decided
--   again together with the step that it watches.
-- Steps that cx.end_run() left out stay skipped, unless the step that called it is reset.
create function pipeline.steps_to_reset_v1(p_run bigint, p_named text[]) returns integer[]
language plpgsql stable as $$
declare
    v_graph bigint;
    v_again integer[];
    v_left_out integer[] := '{}';       -- steps that cx.end_run() left out, and that are reset nevertheless
    v_more integer[];
begin
    select r.graph into v_graph from pipeline.runs r where r.id = p_run;
    loop
        with recursive again (no, is_path) as (
            select s.no, false
            from (
                select s.no, s.status, s.reason from pipeline.steps s
                where s.run = p_run and s.status in ('skipped', 'cancelled', 'failed') offset 0
            ) as s
            cross join lateral (
                select n.strategy, n.key from pipeline.nodes n where n.graph = v_graph and n.no = s.no offset 0
            ) as n
            where case s.status
                when 'failed' then n.strategy <> 'ignore' or n.key = any (p_named)
                else s.reason is distinct from 'ended_by' or s.no = any (v_left_out)
            end
            union
            select d.downstream, true
            from again a
            cross join lateral (
                select o.no as downstream from pipeline.nodes n cross join lateral unnest(n.out_edges) as o
                where n.graph = v_graph and n.no = a.no and (a.is_path or o.takes = 'failure') offset 0
            ) as d
            cross join lateral (
                select from pipeline.steps s
                where s.run = p_run and s.no = d.downstream
                  and (s.reason is distinct from 'ended_by' or s.no = any (v_left_out)) offset 0
            ) as s
        )
        select array_agg(distinct a.no) into v_again from again a;
        select array_agg(s.no) into v_more from pipeline.steps s
        where s.run = p_run and s.reason = 'ended_by' and s.no <> all (v_left_out)
          and s.cause in (select unnest(v_again));
        exit when v_more is null;
        v_left_out := v_left_out || v_more;
    end loop;
    return coalesce(v_again, '{}');
end $$;
