-- Plans the statements of an advance on a new connection, so that the first ends do not wait for that: calls the
-- functions that advance_v1 calls only for ends, without rows, which writes nothing. It has the planner settings of
-- advance_v1, because a plan is kept for the connection.
create function pipeline.plan_advance_v1() returns void
language plpgsql as $$
begin
    perform pipeline.end_steps_v1('{}');
    perform pipeline.decide_downstream_v1('{}');
    perform pipeline.enqueue_steps_v1('{}', null, '{}', '{}');
    perform pipeline.count_ended_steps_v1('{}', null);
    perform pipeline.enqueue_callbacks_v1('{}');
end $$;
