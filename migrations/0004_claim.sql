-- How many entries of the index jobs_ready this transaction has met, dead ones included.
create function pipeline.visited_v1() returns bigint
language sql stable as $$
    select pg_stat_get_xact_tuples_returned('pipeline.jobs_ready'::regclass)
$$;

-- The first ready row of each pair of queue and rank, in ranges of the index jobs_ready. Walks from pair to
-- pair, not from row to row. A range lies in one queue: from a position up to a rank; or, with a
-- p_to_queue, it holds all queues from one name up to another. (Not one row comparison for each end: up
-- to Postgres 17 only the first column of a row comparison ends a scan.)
--   step: 1 for the first row of its range · after_queue, after_rank: the pair before this row
--   visited: index entries met on the way to this row, dead ones included
-- The last row of a range has no queue: it says what was visited behind the last ready row.
create function pipeline.heads_v1(
    p_queues text[], p_to_queues text[], p_ranks integer[], p_times timestamptz[], p_ids bigint[],
    p_to_ranks integer[]
) returns table (
    range integer, step integer, after_queue text, after_rank integer,
    queue text, rank integer, run_at timestamptz, id bigint, visited bigint
)
language sql stable as $$
    with recursive head as (
        select r.ord::integer as range, 1 as step, null::text collate "C" as after_queue,
               null::integer as after_rank, r.to_queue, r.to_rank,
               h.queue, h.rank, h.run_at, h.id, pipeline.visited_v1() - met.before as visited
        from unnest(p_queues, p_to_queues, p_ranks, p_times, p_ids, p_to_ranks)
             with ordinality as r (queue, to_queue, rank, run_at, id, to_rank, ord)
        cross join lateral (
            select pipeline.visited_v1() as before where r.ord is not null offset 0
        ) as met
        left join lateral (
            (
                select j.queue, - j.priority::integer as rank, j.run_at, j.id from pipeline.jobs j
                where r.to_queue is null and j.status = 'ready' and j.queue = r.queue collate "C"
                  and (- j.priority::integer, j.run_at, j.id) >= (r.rank, r.run_at, r.id)
                  and - j.priority::integer < r.to_rank
                order by j.queue, - j.priority::integer, j.run_at, j.id
                limit 1
            ) union all (
                select j.queue, - j.priority::integer, j.run_at, j.id from pipeline.jobs j
                where r.to_queue is not null and j.status = 'ready'
                  and j.queue >= r.queue collate "C" and j.queue < r.to_queue collate "C"
                order by j.queue, - j.priority::integer, j.run_at, j.id
                limit 1
            )
        ) as h on true
        union all
        select head.range, head.step + 1, head.queue, head.rank, head.to_queue, head.to_rank,
               h.queue, h.rank, h.run_at, h.id, pipeline.visited_v1() - met.before
        from head
        cross join lateral (
            select pipeline.visited_v1() as before where head.id is not null offset 0
        ) as met
        left join lateral (
            (
                select j.queue, - j.priority::integer as rank, j.run_at, j.id from pipeline.jobs j
                where j.status = 'ready' and j.queue = head.queue collate "C"
                  and - j.priority::integer > head.rank and - j.priority::integer < head.to_rank
                order by j.queue, - j.priority::integer, j.run_at, j.id
                limit 1
            ) union all (
                select j.queue, - j.priority::integer, j.run_at, j.id from pipeline.jobs j
                where head.to_queue is not null and j.status = 'ready'
                  and j.queue > head.queue collate "C" and j.queue < head.to_queue collate "C"
                order by j.queue, - j.priority::integer, j.run_at, j.id
                limit 1
            )
            limit 1
        ) as h on true
    )
    select head.range, head.step, head.after_queue, head.after_rank, head.queue, head.rank, head.run_at,
           head.id, head.visited
    from head
$$;

-- Takes up to p_limits[i] jobs for each p_patterns[i], a queue's name or a prefix followed by `*`. All
-- patterns of the worker are given, the most specific first: a queue belongs to the first that covers
-- it, and is left alone where that one has no room. Looks only into the given ranges of the index, see heads_v1: the
-- caller leaves out where it has seen nothing ready. p_lines has the line of a range that lies in the
-- queue of an exact pattern; the other ranges may hold several queues.
--   p_token: a random number; with the job's id it makes the token, which no other claim gives out, also
--            after a crash or on a server that was restored
--   p_bytes: the most that the large args of one line may add up to; one job is always taken, and what
--            is beyond stays ready
--   p_kinds: if given, only jobs whose type is like one of them
--   p_steps: without it, no steps of runs (even ids): their ends would move nothing on
-- Rows of line 0 are no jobs: they say where ready rows begin, for the caller to begin there next time,
-- and come only where the look met many dead entries.
create function pipeline.claim_v1(
    p_worker bigint, p_token bigint, p_patterns text[], p_limits integer[], p_bytes bigint,
    p_kinds text[], p_steps boolean,
    p_lines integer[], p_queues text[], p_to_queues text[], p_ranks integer[], p_times timestamptz[],
    p_ids bigint[], p_to_ranks integer[]
) returns table (
    line integer, id bigint, token bigint, queue text, kind text, attempt smallint,
    attempts smallint, priority smallint, run_at timestamptz, waited_ms bigint, lease_ms integer,
    batch bigint, args text, input text, options text, claimed_at timestamptz, bytes integer,
    range integer, step integer, after_queue text, after_rank integer, rank integer, visited bigint
)
language plpgsql
-- The plan is always the same walk along an index, whatever the statistics of the moment say.
set enable_seqscan to off set enable_bitmapscan to off set enable_hashjoin to off
set enable_mergejoin to off set enable_material to off set enable_memoize to off
set jit to off set plan_cache_mode to force_generic_plan
as $$
#variable_conflict use_column
declare
    -- Fewer dead entries than this cost less than what it takes to leave them out.
    c_many constant bigint := 256;
    v_now timestamptz := pipeline.now();
    v_paused text[] := (select array_agg(q.name) from pipeline.queues q where q.paused_at is not null);
    v_wild boolean := array_position(p_lines, null) is not null;
    -- Where to pick: lines, and ranges of the index.
    v_lines integer[] := p_lines;
    v_queues text[] := p_queues;
    v_ranks integer[] := p_ranks;
    v_times timestamptz[] := p_times;
    v_ids bigint[] := p_ids;
    v_to_ranks integer[] := p_to_ranks;
    v_head record;
    v_before bigint;
    v_got bigint;
    v_taken bigint := 0;
begin
    if v_wild then
        -- Of several queues the highest priority comes first, then what has waited longest.
        for v_head in
            select h.*, (
                select min(o.line)::integer from unnest(p_patterns) with ordinality as o (pattern, line)
                where h.queue = o.pattern
                   or right(o.pattern, 1) = '*' and starts_with(h.queue, left(o.pattern, -1))
            ) as line
            from pipeline.heads_v1(p_queues, p_to_queues, p_ranks, p_times, p_ids, p_to_ranks) as h
            where p_lines[h.range] is null
            order by h.rank, h.run_at, h.id
        loop
            if v_head.queue is not null and p_limits[v_head.line] > 0 then
                v_lines := v_lines || v_head.line;
                v_queues := v_queues || v_head.queue;
                v_ranks := v_ranks || v_head.rank;
                v_times := v_times || v_head.run_at;
                v_ids := v_ids || v_head.id;
                v_to_ranks := v_to_ranks || v_head.rank + 1;
            end if;
            if v_head.visited >= c_many then
                line := 0;
                queue := v_head.queue;
                rank := v_head.rank;
                run_at := v_head.run_at;
                id := v_head.id;
                range := v_head.range;
                step := v_head.step;
                after_queue := v_head.after_queue;
                after_rank := v_head.after_rank;
                visited := v_head.visited;
                claimed_at := v_now;
                return next;
            end if;
        end loop;
    end if;

    v_before := pipeline.visited_v1();
    for i in 1 .. cardinality(p_patterns) loop
        continue when p_limits[i] <= 0;
        return query
        with picked as materialized (
            select j.id, j.bytes
            from unnest(v_lines, v_queues, v_ranks, v_times, v_ids, v_to_ranks)
                 as h (line, queue, rank, run_at, id, to_rank)
            cross join lateral (
                select j.id, j.bytes from pipeline.jobs j
                where j.status = 'ready' and j.queue = h.queue collate "C"
                  and (- j.priority::integer, j.run_at, j.id) >= (h.rank, h.run_at, h.id)
                  and - j.priority::integer < h.to_rank
                  and (p_kinds is null or j.kind like any (p_kinds))
                  and (p_steps or j.id % 2 = 1)
                order by j.queue, - j.priority::integer, j.run_at, j.id
                limit p_limits[i]
                for update skip locked
            ) as j
            where h.line = i and (v_paused is null or h.queue <> all (v_paused))
            limit p_limits[i]
        )
        update pipeline.jobs j
        set status = 'running', token = p_token # j.id, attempt = j.attempt + 1,
            worker = p_worker, claimed_at = v_now,
            lease_until = v_now + j.lease_ms * interval '1 ms'
        from picked
        where j.id = picked.id
          -- Asked only if a large one is there.
          and (picked.bytes is null or picked.id in (
              select fits.id from (
                  select large.id, row_number() over so_far as no, sum(large.bytes) over so_far as bytes
                  from picked as large where large.bytes is not null
                  window so_far as (rows unbounded preceding)
              ) as fits
              where fits.no = 1 or fits.bytes <= p_bytes
          ))
        returning i, j.id, j.token, j.queue, j.kind, j.attempt, j.attempts, j.priority,
                  j.run_at, (extract(epoch from v_now - j.run_at) * 1000)::bigint, j.lease_ms,
                  j.batch, j.args::text, j.input::text, j.options::text, v_now, j.bytes,
                  null::integer, null::integer, null::text, null::integer, null::integer, null::bigint;
        get diagnostics v_got = row_count;
        v_taken := v_taken + v_got;
    end loop;

    if pipeline.visited_v1() - v_before - v_taken >= c_many then
        return query
        select 0, h.id, null::bigint, h.queue, null::text, null::smallint, null::smallint,
               null::smallint, h.run_at, null::bigint, null::integer, null::bigint, null::text,
               null::text, null::text, v_now, null::integer, h.range, h.step, h.after_queue,
               h.after_rank, h.rank, h.visited
        from pipeline.heads_v1(p_queues, p_to_queues, p_ranks, p_times, p_ids, p_to_ranks) as h
        where p_lines[h.range] is not null and h.visited >= c_many;
    end if;
end $$;
