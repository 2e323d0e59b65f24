-- Rule 19: reopens a run that the caller has locked. The steps of steps_to_reset_v1 become pending again; all others
-- keep their status and output. Runs that were skipped because of this run become pending again. `refused` is the
-- status of the run if it cannot be reopened. The caller has checked only_ignored_failures_v1.
--
-- Upstream runs are not locked: one of them may be busy, and the reopening would wait for it. A run that succeeded
-- never changes again. If not all upstream runs have succeeded, the run stays pending with a request, which locks
-- and checks the upstream runs; `left_pending` are all runs with such a request.
create function pipeline.reopen_run_v1(
    p_run bigint, p_named text[],
    out refused text, out queues text[], out ended_runs pipeline.ended_run[], out left_pending bigint[]
)
language plpgsql as $$
declare
    v_run pipeline.runs;
    v_next bigint[];
    v_level bigint[];
    v_opened bigint[] := array[p_run];
begin
    select * into v_run from pipeline.runs where id = p_run;
    if v_run.status not in ('failed', 'halted', 'cancelled') then
        refused := v_run.status;
        return;
    end if;
    perform pipeline.reset_steps_v1(array[p_run], coalesce(p_named, '{}'));
    -- Follow the chains: a skipped run becomes pending again unless another upstream run blocks it. An upstream
    -- run that was pruned may block it too.
    v_level := array[p_run];
    loop
        select array_agg(distinct r.id) into v_next
        from pipeline.chains c
        join pipeline.runs r on r.id = c.downstream and r.status = 'skipped'
        where c.upstream = any (v_level)
          and not exists (
              select from pipeline.chains other left join pipeline.runs up on up.id = other.upstream
              where other.downstream = r.id and pipeline.chain_effect(up.status) = 'broken'
          );
        exit when v_next is null;
        perform pipeline.reset_steps_v1(v_next, '{}');
        v_opened := v_opened || v_next;
        v_level := v_next;
    end loop;
    if not exists (
        select from pipeline.chains c left join pipeline.runs up on up.id = c.upstream
        where c.downstream = p_run and pipeline.chain_effect(up.status) is distinct from 'satisfied'
    ) then
        select b.queues, b.ended_runs into queues, ended_runs from pipeline.start_chained_runs_v1(array[p_run]) as b;
    end if;
    with left_pending as (
        insert into pipeline.requests (id, run, created_at, next_at, kind)
        select nextval('pipeline.ids'), r.id, pipeline.now(), pipeline.now(), 'chain'
        from pipeline.runs r
        where r.id = any (v_opened) and r.status = 'pending'
        returning run
    )
    select array_agg(l.run) into left_pending from left_pending l;
    if left_pending is not null then
        perform pg_notify('pipeline_requests', '');
    end if;
end $$;
