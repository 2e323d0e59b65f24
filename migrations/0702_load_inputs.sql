-- Returns the params and the inputs of claimed steps. An input has an element for each edge that takes a value. Outputs
-- are read here and never copied into the queue.
--
-- Large values are measured before they are loaded. For a step whose input exceeds p_limit bytes, only `size` is
-- returned; if the large inputs of one call exceed p_total together, only `size` and `put_off` are returned for the
-- steps beyond. The first step within p_limit is always loaded.
create function pipeline.load_inputs_v1(p_ids bigint[], p_limit bigint, p_total bigint) returns table (
    id bigint, job_type text, queue text, priority smallint, max_attempts smallint, lease_ms integer,
    params text, options text, shape text,
    takes text[],               -- of each element
    outputs text[],             -- its value, where it has one
    failed text[],              -- the key of the step before, where that failed
    classes text[], messages text[],
    cancelled boolean,          -- its run is being cancelled: no attempt is to follow another
    key text, round integer,
    size bigint,                -- of params and outputs, where they were measured
    put_off boolean
)
language plpgsql as $$
#variable_conflict use_column
declare
    -- Above these limits, inputs are measured first.
    c_params constant integer := 2000;
    c_edges constant integer := 16;
    v_count bigint;
begin
    -- Small inputs, in one query: small outputs have no stored size.
    return query
    select e.id, n.job_type, n.queue, n.priority, n.max_attempts, n.lease_ms, s.params::text, n.options::text,
           n.input::text, given.takes, given.outputs, given.failed, given.classes, given.messages,
           r.status = 'cancelling', n.key, r.round, null::bigint, false
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
               array_agg(element.error_message) as messages, max(element.output_bytes) as large
        from (
            select d.takes::text as takes, up.output_bytes, up.error_class, up.error_message,
                   case when up.output_bytes is null then up.output::text end as output,
                   case when up.status = 'failed' then (
                       select node.key from pipeline.nodes node
                       where node.graph = d.graph and node.no = d.upstream
                   ) end as failed
            from pipeline.dependencies d
            cross join lateral (
                select up.output, up.output_bytes, up.error_class, up.error_message, up.status
                from pipeline.steps up
                where up.run = r.id and up.no = d.upstream offset 0
            ) as up
            -- In WHERE: the join condition would be evaluated after the values were loaded.
            where n.in_edges <= c_edges
              and d.graph = r.graph and d.downstream = n.no and d.takes not in ('order', 'ended')
              and (not n.is_any or d.upstream = s.cause)
            order by d.position
        ) as element
    ) as given on n.in_edges > 0
    where given.large is null and n.in_edges <= c_edges
      and (s.params is null or pg_column_size(s.params) <= c_params);
    get diagnostics v_count = row_count;
    if v_count = cardinality(p_ids) then
        return;
    end if;

    -- Measure the remaining inputs.
    return query
    with measured as materialized (
        select e.ord, e.id, r.id as run, r.graph, r.status, r.round, n.no, n.in_edges, n.is_any, s.cause,
               coalesce(octet_length(s.params::text), 0) + coalesce(given.size, 0) as size
        from unnest(p_ids) with ordinality as e (id, ord)
        cross join lateral (
            select r.id, r.graph, r.status, r.round from pipeline.runs r
            where r.id = pipeline.run_of(e.id) offset 0
        ) as r
        cross join lateral (
            select n.no, n.in_edges, n.is_any from pipeline.nodes n
            where n.graph = r.graph and n.no = pipeline.no_of(e.id) offset 0
        ) as n
        cross join lateral (
            select s.params, s.cause from pipeline.steps s where s.run = r.id and s.no = n.no offset 0
        ) as s
        left join lateral (
            select sum(coalesce(up.output_bytes, octet_length(up.output::text), 0)
                       + coalesce(octet_length(up.error_message), 0))::bigint as size,
                   max(up.output_bytes) as large
            from pipeline.dependencies d
            cross join lateral (
                select up.output_bytes, up.error_message,
                       case when up.output_bytes is null then up.output end as output
                from pipeline.steps up
                where up.run = r.id and up.no = d.upstream offset 0
            ) as up
            where d.graph = r.graph and d.downstream = n.no and d.takes not in ('order', 'ended')
              and (not n.is_any or d.upstream = s.cause)
        ) as given on n.in_edges > 0
        where given.large is not null or n.in_edges > c_edges or pg_column_size(s.params) > c_params
    ), fitting as materialized (
        select m.*, m.size <= p_limit as within,
               m.size <= p_limit and m.so_far > p_total and m.so_far > m.size as beyond
        from (
            select m.*, sum(m.size) filter (where m.size <= p_limit)
                            over (order by m.ord rows unbounded preceding) as so_far
            from measured m
        ) as m
    )
    select m.id, n.job_type, n.queue, n.priority, n.max_attempts, n.lease_ms,
           case when loads.it then (
               select s.params::text from pipeline.steps s where s.run = m.run and s.no = m.no
           ) end,
           n.options::text, n.input::text, given.takes, given.outputs, given.failed, given.classes,
           given.messages, m.status = 'cancelling', n.key, m.round, m.size, coalesce(m.beyond, false)
    from fitting m
    cross join lateral (select m.within and not m.beyond as it offset 0) as loads
    cross join lateral (
        select n.* from pipeline.nodes n where n.graph = m.graph and n.no = m.no offset 0
    ) as n
    left join lateral (
        select array_agg(element.takes) as takes, array_agg(element.output) as outputs,
               array_agg(element.failed) as failed, array_agg(element.error_class) as classes,
               array_agg(element.error_message) as messages
        from (
            select d.takes::text as takes, up.output::text as output, up.error_class,
                   up.error_message,
                   case when up.status = 'failed' then (
                       select node.key from pipeline.nodes node
                       where node.graph = d.graph and node.no = d.upstream
                   ) end as failed
            from pipeline.dependencies d
            cross join lateral (
                select up.output, up.error_class, up.error_message, up.status from pipeline.steps up
                where up.run = m.run and up.no = d.upstream offset 0
            ) as up
            where loads.it and d.graph = m.graph and d.downstream = m.no and d.takes not in ('order', 'ended')
              and (not m.is_any or d.upstream = m.cause)
            order by d.position
        ) as element
    ) as given on m.in_edges > 0;
end $$;
