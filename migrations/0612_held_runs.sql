-- Returns those of these runs that exist and that this transaction has not locked.
create function pipeline.held_runs_v1(p_runs bigint[]) returns bigint[]
language plpgsql as $$
declare
    v_now timestamptz := pipeline.now();
    v_locked bigint[];
begin
    -- A second lock of the same rows returns those that the first has locked, and perhaps more.
    with locked as (
        select r.id from pipeline.runs r
        where r.id = any (p_runs)
          and not exists (select from pipeline.requests q where q.run = r.id and pipeline.has_turn(q.turn_until, v_now))
        order by r.id for no key update of r skip locked
    )
    select coalesce(array_agg(l.id), '{}') into v_locked from locked l;
    return array(select r.id from pipeline.runs r where r.id = any (p_runs) and r.id <> all (v_locked));
end $$;
