-- Returns the first ready row of each pair of queue and rank, in the given ranges of the index jobs_ready.
-- The scan jumps from pair to pair and does not read every row. A range lies in one queue, from a position
-- up to a rank; or, with a p_to_queue, the range holds all queues from one name up to another. (The end of a
-- range is not a row comparison: up to Postgres 17, only the first column of a row comparison ends a scan.)
--   step: 1 for the first row of its range · after_queue, after_rank: the pair before this row
--   visited: the number of index entries up to this row, including dead ones
-- The last row of a range has no queue: its `visited` counts the entries behind the last ready row.
create function pipeline.queue_heads_v1(
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
               h.queue, h.rank, h.run_at, h.id, pipeline.visited_entries_v1() - met.before as visited
        from unnest(p_queues, p_to_queues, p_ranks, p_times, p_ids, p_to_ranks)
             with ordinality as r (queue, to_queue, rank, run_at, id, to_rank, ord)
        cross join lateral (
            select pipeline.visited_entries_v1() as before where r.ord is not null offset 0
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
               h.queue, h.rank, h.run_at, h.id, pipeline.visited_entries_v1() - met.before
        from head
        cross join lateral (
            select pipeline.visited_entries_v1() as before where head.id is not null offset 0
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
