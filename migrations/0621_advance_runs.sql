-- Moves runs on after attempts that have ended their steps: writes the steps, decides the steps downstream, and
-- finishes. The caller has locked the runs.
create function pipeline.advance_runs_v1(
    p_ends pipeline.attempt_end[], p_worker bigint, p_offers pipeline.slot_offer[], p_job_types text[],
    out queues text[], out started pipeline.started_step[], out ended_runs pipeline.ended_run[]
)
language plpgsql as $$
declare
    v_ended pipeline.ended_step[];
    v_decided record;
    v_finished record;
begin
    v_ended := pipeline.end_steps_v1(p_ends);
    v_decided := pipeline.decide_downstream_v1(v_ended);
    v_finished := pipeline.finish_advance_v1(v_decided.ended, v_decided.released, p_worker, p_offers, p_job_types, false);
    queues := v_finished.queues;
    started := v_finished.started;
    ended_runs := v_finished.ended_runs;
end $$;
