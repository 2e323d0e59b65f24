-- Finishes the transaction in which steps have ended: enqueues the steps that can start, counts the ended steps, and
-- for runs that have ended enqueues the callbacks and settles the chained runs. With p_is_chain_locked, this
-- transaction has already locked all pending runs that are reachable through chains. Otherwise this function locks
-- them, without waiting; if another transaction holds one of them, PB001 is raised (settle_chains_v1).
create function pipeline.finish_advance_v1(
    p_ended pipeline.ended_step[], p_released pipeline.released_step[], p_worker bigint,
    p_offers pipeline.slot_offer[], p_job_types text[], p_is_chain_locked boolean,
    out queues text[], out started pipeline.started_step[], out ended_runs pipeline.ended_run[]
)
language plpgsql as $$
declare
    v_enqueued record;
    v_ended_runs pipeline.ended_run[];
    v_ids bigint[];
    v_chain record;
    v_begun record;
    v_is_locked boolean := p_is_chain_locked;
begin
    if p_released is not null then
        v_enqueued := pipeline.enqueue_steps_v1(p_released, p_worker, p_offers, p_job_types);
        queues := v_enqueued.queues;
        started := v_enqueued.started;
    end if;
    if p_ended is null and p_released is null then
        return;
    end if;
    v_ended_runs := pipeline.count_ended_steps_v1(p_ended, p_released);
    ended_runs := v_ended_runs;
    while v_ended_runs is not null loop
        v_ids := array(select o.id from unnest(v_ended_runs) as o);
        if exists (select from pipeline.runs r where r.id = any (v_ids) and r.callbacks is not null) then
            queues := queues || pipeline.enqueue_callbacks_v1(v_ids);
        end if;
        exit when not exists (select from pipeline.chains c where c.upstream = any (v_ids));
        -- Level by level: a skipped run decides the runs that are chained to it.
        v_chain := pipeline.settle_chains_v1(v_ids, v_is_locked);
        v_is_locked := true;
        v_ended_runs := null;
        if v_chain.skipped is not null then
            v_ended_runs := pipeline.count_ended_steps_v1(v_chain.skipped, null);
            ended_runs := ended_runs || v_ended_runs;
        end if;
        if v_chain.ready is not null then
            v_begun := pipeline.start_chained_runs_v1(v_chain.ready, true);
            queues := queues || v_begun.queues;
            ended_runs := ended_runs || v_begun.ended_runs;
        end if;
    end loop;
end $$;
