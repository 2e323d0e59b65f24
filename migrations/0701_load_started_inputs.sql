-- Loads the inputs of started steps that are not known yet. A step whose input has no room now is given back to its
-- queue (`queues`).
create function pipeline.load_started_inputs_v1(
    p_started pipeline.started_step[], p_input_limit bigint, p_input_total bigint,
    out started pipeline.started_step[], out queues text[]
)
language plpgsql as $$
declare
    v_loaded pipeline.started_step[];
    v_put_off bigint[];
    v_tokens bigint[];
begin
    select array_agg(row(
               i.id, s.token, i.job_type, i.queue, i.priority, i.max_attempts, i.lease_ms, null, i.params, i.options,
               i.shape, i.takes, i.outputs, i.failed, i.classes, i.messages, i.cancelled, i.key, i.round, i.size
           )::pipeline.started_step) filter (where not i.put_off),
           array_agg(i.id) filter (where i.put_off), array_agg(s.token) filter (where i.put_off),
           array_agg(distinct i.queue) filter (where i.put_off)
    into v_loaded, v_put_off, v_tokens, queues
    from pipeline.load_inputs_v1(
        array(select s.id from unnest(p_started) as s where s.end_index is null), p_input_limit, p_input_total
    ) as i
    join unnest(p_started) as s on s.id = i.id;
    if v_put_off is not null then
        perform pipeline.release_claims_v1(v_put_off, v_tokens);
    end if;
    started := array(select s from unnest(p_started) as s where s.end_index is not null) || v_loaded;
end $$;
