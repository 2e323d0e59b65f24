-- What steps are given when they are claimed: their params, and what stands before them, an element
-- for each edge that takes something. Outputs are read here and never copied into the queue.
create function pipeline.inputs_v1(p_ids bigint[]) returns table (
    id bigint, kind text, queue text, priority smallint, attempts smallint, lease_ms integer,
    params text, options text, shape text,
    takes text[],               -- of each element
    outputs text[],             -- its value, where it has one
    failed text[],              -- the key of the step before, where that failed
    classes text[], messages text[],
    cancelled boolean,          -- its run is being cancelled: no attempt is to follow another
    key text, round integer
)
language plpgsql
set enable_seqscan to off set enable_bitmapscan to off set enable_hashjoin to off
set enable_mergejoin to off set enable_memoize to off set jit to off
set plan_cache_mode to force_generic_plan
as $$
#variable_conflict use_column
begin
    return query
    select e.id, n.job, n.queue, n.priority, n.attempts, n.lease_ms, s.params::text, n.options::text,
           n.input::text, given.takes, given.outputs, given.failed, given.classes, given.messages,
           r.status = 'cancelling', n.key, r.round
    from unnest(p_ids) as e (id)
    cross join lateral (
        select r.id, r.graph, r.status, r.round from pipeline.runs r
        where r.id = pipeline.run_of(e.id) offset 0
    ) as r
    cross join lateral (
        select n.* from pipeline.nodes n
        where n.graph = r.graph and n.no = pipeline.no_of(e.id) offset 0
    ) as n
    cross join lateral (
        select s.params, s.cause from pipeline.steps s where s.run = r.id and s.no = n.no offset 0
    ) as s
    left join lateral (
        select array_agg(element.takes) as takes, array_agg(element.output) as outputs,
               array_agg(element.failed) as failed, array_agg(element.error_class) as classes,
               array_agg(element.error_message) as messages
        from (
            select d.takes::text as takes, up.output::text as output, up.error_class,
                   up.error_message,
                   case when up.status = 'failed' then (
                       select node.key from pipeline.nodes node
                       where node.graph = d.graph and node.no = d.up
                   ) end as failed
            from pipeline.dependencies d
            cross join lateral (
                select up.output, up.error_class, up.error_message, up.status from pipeline.steps up
                where up.run = r.id and up.no = d.up offset 0
            ) as up
            where d.graph = r.graph and d.down = n.no and d.takes <> 'order'
              and (not n.is_any or d.up = s.cause)
            order by d.pos
        ) as element
    ) as given on n.waits > 0;
end $$;
