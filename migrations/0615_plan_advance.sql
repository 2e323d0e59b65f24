-- Plans the statements of an advance: calls each function without rows.
create function pipeline.plan_advance_v1() returns void
language plpgsql as $$
begin
    perform pipeline.end_steps_v1('{}');
    perform pipeline.decide_downstream_v1('{}');
    perform pipeline.enqueue_steps_v1('{}', null, '{}', '{}');
    perform pipeline.count_ended_steps_v1('{}', null);
    perform pipeline.enqueue_callbacks_v1('{}');
end $$;
