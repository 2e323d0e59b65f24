-- Takes up to p_limits[i] jobs for each p_queues[i], a name or a prefix followed by `*`. Where
-- p_kinds is given, only jobs whose type is like one of them; without p_steps, none that are steps of
-- a run (even ids): their ends would move nothing on.
create function pipeline.claim_v1(
    p_worker bigint, p_queues text[], p_limits integer[], p_kinds text[], p_steps boolean
) returns table (
    line integer, id bigint, token bigint, queue text, kind text, attempt smallint,
    attempts smallint, priority smallint, run_at timestamptz, waited_ms bigint, lease_ms integer,
    batch bigint, args text, input text, options text
)
language plpgsql
-- The plan is always the same walk along an index, whatever the statistics of the moment say.
set enable_seqscan to off set enable_bitmapscan to off set enable_hashjoin to off
set enable_mergejoin to off set enable_sort to on
set plan_cache_mode to force_generic_plan
as $$
#variable_conflict use_column
declare
    v_now timestamptz := pipeline.now();
    v_names text[];
    v_name text;
    v_left integer;
    v_got integer;
    v_floor integer;
begin
    for i in 1 .. cardinality(p_queues) loop
        continue when p_limits[i] <= 0;
        v_names := pipeline.ready_queues_v1(p_queues[i]);
        v_left := p_limits[i];
        v_floor := 32768;
        while v_left > 0 and v_floor > -32768 loop
            -- Of several queues, first what has the highest priority in any of them, then the next.
            v_floor := case when cardinality(v_names) = 1 then -32768
                            else pipeline.next_priority_v1(v_names, v_floor) end;
            exit when v_floor is null;
            foreach v_name in array v_names loop
                exit when v_left <= 0;
                return query
                with picked as materialized (
                    select j.id from pipeline.jobs j
                    where j.queue = v_name and j.status = 'ready' and j.priority >= v_floor
                      and (p_kinds is null or j.kind like any (p_kinds))
                      and (p_steps or j.id % 2 = 1)
                    order by j.priority desc, j.run_at, j.id
                    limit v_left
                    for update skip locked
                )
                update pipeline.jobs j
                set status = 'running', token = nextval('pipeline.tokens'), attempt = j.attempt + 1,
                    worker = p_worker, lease_until = v_now + j.lease_ms * interval '1 ms'
                from picked
                where j.id = picked.id
                returning i, j.id, j.token, j.queue, j.kind, j.attempt, j.attempts, j.priority,
                          j.run_at, (extract(epoch from v_now - j.run_at) * 1000)::bigint, j.lease_ms,
                          j.batch, j.args::text, j.input::text, j.options::text;
                get diagnostics v_got = row_count;
                v_left := v_left - v_got;
            end loop;
        end loop;
    end loop;
end $$;

-- The highest priority below p_below that is ready in one of the queues.
create function pipeline.next_priority_v1(p_queues text[], p_below integer) returns integer
language sql stable
set enable_seqscan to off set enable_bitmapscan to off
set plan_cache_mode to force_generic_plan
as $$
    select max(head.priority) from unnest(p_queues) as queue (name)
    cross join lateral (
        select j.priority from pipeline.jobs j
        where j.queue = queue.name and j.status = 'ready' and j.priority < p_below
        order by j.priority desc
        limit 1
    ) as head
$$;

-- The queues a pattern stands for that have something ready and are not paused; of several, the one
-- whose head comes first. Walks the index from name to name, not row by row.
create function pipeline.ready_queues_v1(p_pattern text) returns text[]
language plpgsql stable
set enable_seqscan to off set enable_bitmapscan to off
set plan_cache_mode to force_generic_plan
as $$
declare
    v_prefix text := left(p_pattern, -1);
    v_name text;
    v_found text[] := '{}';
begin
    if right(p_pattern, 1) <> '*' then
        return case when exists (select from pipeline.queues q
                                 where q.name = p_pattern and q.paused_at is not null)
                    then '{}' else array[p_pattern] end;
    end if;
    if exists (select from pipeline.jobs j where j.status = 'ready' and j.queue = v_prefix) then
        v_found := array[v_prefix];
    end if;
    v_name := v_prefix;
    loop
        select j.queue into v_name from pipeline.jobs j
        where j.status = 'ready' and j.queue > v_name
        order by j.queue, j.priority desc, j.run_at, j.id
        limit 1;
        exit when v_name is null or not starts_with(v_name, v_prefix);
        v_found := v_found || v_name;
    end loop;
    return coalesce((
        select array_agg(found.name order by head.priority desc, head.run_at, head.id)
        from unnest(v_found) as found (name)
        cross join lateral (
            select j.priority, j.run_at, j.id from pipeline.jobs j
            where j.queue = found.name and j.status = 'ready'
            order by j.priority desc, j.run_at, j.id
            limit 1
        ) as head
        where not exists (select from pipeline.queues q
                          where q.name = found.name and q.paused_at is not null)
    ), '{}');
end $$;
