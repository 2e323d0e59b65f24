-- Claims up to p_limits[i] jobs for each p_patterns[i], which is a queue's name or a prefix followed by `*`.
-- p_patterns holds all patterns of the worker, the most specific first. A queue belongs to the first pattern
-- that matches it; if that pattern has no free slot, no job of the queue is claimed. The function scans only
-- the given ranges of the index (see queue_heads_v1): the caller omits stretches without ready rows. p_lines has
-- the line of each range that lies in the queue of an exact pattern; other ranges may hold several queues.
--   p_token: a random number. A token is this number combined with the job's id, so that no other claim has
--            the token, even after a crash or on a restored server
--   p_bytes: the limit for the sum of the large args of one line; the first large job is always claimed, and
--            large jobs beyond the limit stay ready
--   p_job_types: if not null, only jobs whose type matches one of these LIKE patterns are claimed
--   p_steps: if false, no steps of runs (even ids) are claimed: this worker could not advance their runs
-- Rows with line 0 are not jobs: they are positions behind many dead entries, at which the caller's next scan
-- starts. If `held` is set, this ready row lies before the position, and another transaction had locked it.
create function pipeline.claim_jobs_v1(
    p_worker bigint, p_token bigint, p_patterns text[], p_limits integer[], p_bytes bigint,
    p_job_types text[], p_steps boolean,
    p_lines integer[], p_queues text[], p_to_queues text[], p_ranks integer[], p_times timestamptz[],
    p_ids bigint[], p_to_ranks integer[]
) returns table (
    line integer, id bigint, token bigint, queue text, job_type text, attempt smallint,
    max_attempts smallint, priority smallint, run_at timestamptz, waited_ms bigint, lease_ms integer,
    batch bigint, args text, input text, options text, claimed_at timestamptz, bytes integer,
    range integer, step integer, after_queue text, after_rank integer, rank integer, visited bigint,
    held bigint
)
language plpgsql as $$
#variable_conflict use_column
declare
    -- Stepping over fewer dead entries than this costs less than remembering a stretch.
    c_many constant bigint := 256;
    v_now timestamptz := pipeline.now();
    v_paused text[] := (select array_agg(q.name) from pipeline.queues q where q.paused_at is not null);
    v_wild boolean := array_position(p_lines, null) is not null;
    -- The ranges of the index to claim from, with their lines.
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
        -- Across several queues, the highest priority comes first, then the job that has waited longest.
        for v_head in
            select h.*, (
                select min(o.line)::integer from unnest(p_patterns) with ordinality as o (pattern, line)
                where h.queue = o.pattern
                   or right(o.pattern, 1) = '*' and starts_with(h.queue, left(o.pattern, -1))
            ) as line
            from pipeline.queue_heads_v1(p_queues, p_to_queues, p_ranks, p_times, p_ids, p_to_ranks) as h
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

    v_before := pipeline.visited_entries_v1();
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
                  and (p_job_types is null or j.job_type like any (p_job_types))
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
          -- The subquery runs only if a large job was picked.
          and (picked.bytes is null or picked.id in (
              select fits.id from (
                  select large.id, row_number() over so_far as no, sum(large.bytes) over so_far as bytes
                  from picked as large where large.bytes is not null
                  window so_far as (rows unbounded preceding)
              ) as fits
              where fits.no = 1 or fits.bytes <= p_bytes
          ))
        returning i, j.id, j.token, j.queue, j.job_type, j.attempt, j.max_attempts, j.priority,
                  j.run_at, (extract(epoch from v_now - j.run_at) * 1000)::bigint, j.lease_ms,
                  j.batch, j.args::text, j.input::text, j.options::text, v_now, j.bytes,
                  null::integer, null::integer, null::text, null::integer, null::integer, null::bigint,
                  null::bigint;
        get diagnostics v_got = row_count;
        v_taken := v_taken + v_got;
    end loop;

    v_before := pipeline.visited_entries_v1() - v_before - v_taken;
    if v_before >= c_many then
        return query
        select 0, h.id, null::bigint, h.queue, null::text, null::smallint, null::smallint,
               null::smallint, h.run_at, null::bigint, null::integer, null::bigint, null::text,
               null::text, null::text, v_now, null::integer, h.range, h.step, h.after_queue,
               h.after_rank, h.rank, h.visited, null::bigint
        from pipeline.queue_heads_v1(p_queues, p_to_queues, p_ranks, p_times, p_ids, p_to_ranks) as h
        where p_lines[h.range] is not null and h.visited >= c_many;
        get diagnostics v_got = row_count;
        if v_got = 0 and v_taken > 0 then
            -- The dead entries lie behind ready rows that other transactions have locked.
            return query
            select 0, f.id, null::bigint, f.queue, null::text, null::smallint, null::smallint,
                   null::smallint, f.run_at, null::bigint, null::integer, null::bigint, null::text,
                   null::text, null::text, v_now, null::integer, f.range, 1, null::text,
                   null::integer, f.rank, v_before, f.held
            from pipeline.held_heads_v1(p_token, v_now, p_queues, p_to_queues, p_ranks, p_times, p_ids,
                                        p_to_ranks) as f;
        end if;
    end if;
end $$;
