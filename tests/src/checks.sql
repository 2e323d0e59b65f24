-- Constraints of the tables that every advance writes. Production has none of them: Postgres parses and plans a
-- check anew in each statement that writes, which costs a fifth of an advance. Each has its query in
-- invariants.sql, which also finds rows that a check cannot see.
alter table pipeline.jobs
    add constraint running_has_token check ((status = 'running') = (token is not null)),
    add constraint running_has_lease check
        (status <> 'running' or lease_until is not null and claimed_at is not null),
    add constraint ended_has_time check
        ((status in ('succeeded', 'failed', 'discarded')) = (ended_at is not null)),
    -- A waiting row that no claim can take would block the rows behind it.
    add constraint waiting_has_attempts check
        (status not in ('scheduled', 'ready') or (0 <= attempt and attempt < max_attempts)),
    add constraint run_at_is_a_time check (isfinite(run_at) and run_at < '262143-01-01 00:00:00+00');

alter table pipeline.runs
    add constraint live_counts check (live_steps >= 0),
    add constraint ended_has_time check
        ((status in ('succeeded', 'failed', 'halted', 'cancelled', 'skipped')) = (ended_at is not null));
