-- Scans stretches in which no ready row was seen: in each pair of p_queues and p_ranks from a time up to a
-- time and id, and in ranges as in queue_heads_v1. Returns for each part the first ready row, if there is one, and
-- the number of visited entries, including dead ones. `part` numbers the pairs first, then the ranges.
create function pipeline.sweep_ranges_v1(
    p_queues text[], p_ranks integer[], p_times timestamptz[], p_to_times timestamptz[], p_to_ids bigint[],
    p_range_queues text[], p_range_to_queues text[], p_range_ranks integer[],
    p_range_times timestamptz[], p_range_ids bigint[], p_range_to_ranks integer[]
) returns table (part integer, queue text, rank integer, run_at timestamptz, id bigint, visited bigint)
language plpgsql stable as $$
#variable_conflict use_column
begin
    return query
    select s.ord::integer, h.queue, h.rank, h.run_at, h.id, pipeline.visited_entries_v1() - met.before
    from unnest(p_queues, p_ranks, p_times, p_to_times, p_to_ids) with ordinality
         as s (queue, rank, run_at, to_run_at, to_id, ord)
    cross join lateral (
        select pipeline.visited_entries_v1() as before where s.ord is not null offset 0
    ) as met
    left join lateral (
        select j.queue, - j.priority::integer as rank, j.run_at, j.id from pipeline.jobs j
        where j.status = 'ready' and j.queue = s.queue collate "C" and - j.priority::integer = s.rank
          and j.run_at >= s.run_at and j.run_at <= s.to_run_at
          and (j.run_at, j.id) < (s.to_run_at, s.to_id)
        order by j.queue, - j.priority::integer, j.run_at, j.id
        limit 1
    ) as h on true;

    if p_range_queues <> '{}' then
        return query
        select cardinality(p_queues) + h.range, h.queue, h.rank, h.run_at, h.id, h.visited
        from pipeline.queue_heads_v1(p_range_queues, p_range_to_queues, p_range_ranks, p_range_times,
                               p_range_ids, p_range_to_ranks) as h
        where h.step = 1;
    end if;
end $$;
