-- Returns the maintenance work for a worker, without writing: the jobs of this worker that have to stop, whether a
-- deadline has passed that has no request yet, and whether requests are due.
create function pipeline.due_maintenance_v1(
    p_worker bigint, out stop bigint[], out is_overdue boolean, out is_requested boolean
)
language plpgsql as $$
begin
    stop := pipeline.jobs_to_stop_v1(p_worker);
    is_overdue := exists (select from pipeline.overdue_runs_v1(1));
    is_requested := exists (select from pipeline.requests q
                            where q.kind <> 'deadline' and q.next_at <= pipeline.now())
                 or exists (select from pipeline.requests q
                            where q.kind = 'deadline' and q.next_at <= pipeline.now());
end $$;
