-- Returns for each pair of queue and rank the first job that a claim has taken, if a ready row lies before it in
-- the given ranges (see queue_heads_v1): `held`, which another transaction had locked. Must be called in the
-- transaction of the claim.
create function pipeline.held_heads_v1(
    p_token bigint, p_claimed_at timestamptz,
    p_queues text[], p_to_queues text[], p_ranks integer[], p_times timestamptz[], p_ids bigint[],
    p_to_ranks integer[]
) returns table (range integer, queue text, rank integer, run_at timestamptz, id bigint, held bigint)
language sql stable as $$
    select r.ord::integer, taken.queue, taken.rank, taken.run_at, taken.id, head.id
    from (
        select distinct on (j.queue, j.priority)
               j.queue, - j.priority::integer as rank, j.run_at, j.id
        from pipeline.jobs j
        where j.status = 'running' and j.claimed_at = p_claimed_at and j.token = p_token # j.id
        order by j.queue, j.priority, j.run_at, j.id
    ) as taken
    cross join lateral (
        select r.* from unnest(p_queues, p_to_queues, p_ranks, p_times, p_ids, p_to_ranks)
             with ordinality as r (queue, to_queue, rank, run_at, id, to_rank, ord)
        where r.to_queue is null and r.queue = taken.queue and taken.rank < r.to_rank
          and (r.rank, r.run_at, r.id) <= (taken.rank, taken.run_at, taken.id)
           or r.queue collate "C" <= taken.queue and taken.queue < r.to_queue collate "C"
        order by r.ord desc limit 1
    ) as r
    -- The scan starts at the range, or at the first entry of the rank. `rank = taken.rank` would make the scan start at
    -- the first entry of the rank in every case: an equality comes before a row comparison in the choice of the start.
    cross join lateral (
        select case when r.to_queue is null and r.rank = taken.rank then r.run_at else '-infinity' end as run_at,
               case when r.to_queue is null and r.rank = taken.rank then r.id else 0 end as id
    ) as start
    cross join lateral (
        select j.id from pipeline.jobs j
        where j.status = 'ready' and j.queue = taken.queue collate "C"
          and (- j.priority::integer, j.run_at, j.id) >= (taken.rank, start.run_at, start.id)
          and - j.priority::integer < taken.rank + 1
          and j.run_at <= taken.run_at and (j.run_at, j.id) < (taken.run_at, taken.id)
        order by j.queue, - j.priority::integer, j.run_at, j.id
        limit 1
    ) as head
$$;
