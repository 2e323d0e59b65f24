-- The reconciler repairs rows that were changed outside the pipeline: a queue row that was deleted or changed, a
-- wrong count. An advance writes steps, their queue rows and their run in one transaction, so they agree in
-- every snapshot. If they disagree, no worker would ever continue the run, and the run would never end.

-- The state of the reconciler, in one row. A pass locks the row. `found` counts the problems; it is normally 0.
create table pipeline.reconciler (
    only_one  boolean             primary key default true check (only_one),
    next_at   timestamptz         not null default '-infinity',
    -- The last run that was checked, in the order of the index runs_by_status.
    at_status pipeline.run_status not null default 'pending',
    at_time   timestamptz         not null default '-infinity',
    at_run    bigint              not null default 0,
    -- The large run that is being checked in parts, and the first step that is not checked yet.
    part_run  bigint,
    part_from integer             not null default 0,
    acted_at  timestamptz,
    found_at  timestamptz,
    worker    bigint,                          -- the worker of the last pass
    passes    bigint              not null default 0,
    checked   bigint              not null default 0, -- runs
    found     bigint              not null default 0
);
insert into pipeline.reconciler default values;

-- Begins a pass if one is due and no other worker runs one: returns the runs to check, and stores the position for
-- the next pass. The caller checks the runs in another transaction (runs_to_check_v1), so that the next pass checks
-- other runs if that transaction takes too long or fails. A pass has at most p_limit runs, and ends with the run
-- that reaches p_units steps and edges. A run with more of them is checked in parts, one part in each pass.
create function pipeline.reconcile_runs_v1(
    p_worker bigint, p_every_ms bigint, p_limit integer, p_units bigint,
    out passed boolean,         -- whether this call began a pass
    out checked integer,        -- the number of runs whose check is complete
    -- The parts to check, as parameters of run_problems_v1.
    out runs bigint[], out firsts integer[], out lasts integer[], out is_end boolean[]
)
language plpgsql as $$
declare
    v_now timestamptz := pipeline.now();
    v_self pipeline.reconciler;
    v_run record;
    v_part record;
    v_first integer;
    v_left bigint := p_units;
    v_count integer := 0;
begin
    checked := 0;
    runs := '{}';
    firsts := '{}';
    lasts := '{}';
    is_end := '{}';
    -- A next_at far in the future was set before the clock was set back, or by a worker with a longer interval.
    select * into v_self from pipeline.reconciler r
    where r.next_at <= v_now or r.next_at > v_now + p_every_ms * interval '1 ms'
    for update skip locked;
    passed := found;
    if not passed then
        return;
    end if;

    -- The statuses of live runs come first.
    for v_run in
        select r.id, r.graph, true as is_rest, r.status, r.created_at from pipeline.runs r
        where r.id = v_self.part_run and r.status in ('pending', 'running', 'cancelling')
        union all
        (
            select r.id, r.graph, false, r.status, r.created_at from pipeline.runs r
            where r.status <= 'cancelling'
              and (r.status, r.created_at, r.id) > (v_self.at_status, v_self.at_time, v_self.at_run)
            order by r.status, r.created_at, r.id
            limit p_limit
        )
    loop
        exit when v_left <= 0;
        v_first := case when v_run.is_rest then v_self.part_from else 0 end;
        select * into v_part from pipeline.next_page_v1(v_run.graph, v_first, p_units);
        v_left := v_left - v_part.units;
        v_count := v_count + 1;
        checked := checked + v_part.is_end::integer;
        runs := runs || v_run.id;
        firsts := firsts || v_first;
        lasts := lasts || v_part.last;
        is_end := is_end || v_part.is_end;
        if not v_run.is_rest then
            v_self.at_status := v_run.status;
            v_self.at_time := v_run.created_at;
            v_self.at_run := v_run.id;
        end if;
        exit when not v_part.is_end;
    end loop;

    v_self.part_run := null;
    v_self.part_from := 0;
    if v_count > 0 and not is_end[v_count] then
        v_self.part_run := runs[v_count];
        v_self.part_from := lasts[v_count] + 1;
    elsif v_left > 0 and v_count < p_limit then
        -- After the last run, start over.
        v_self.at_status := 'pending';
        v_self.at_time := '-infinity';
        v_self.at_run := 0;
    end if;
    update pipeline.reconciler r
    set next_at = v_now + p_every_ms * 0.8 * interval '1 ms',
        at_status = v_self.at_status, at_time = v_self.at_time, at_run = v_self.at_run,
        part_run = v_self.part_run, part_from = v_self.part_from,
        acted_at = v_now, worker = p_worker, passes = r.passes + 1,
        checked = r.checked + reconcile_runs_v1.checked;
end $$;
