-- Returns the next part of a run to check: from step p_first on, at most p_units steps and incoming edges, and
-- at least one step. `is_end` says that the part includes the last step.
create function pipeline.next_page_v1(
    p_graph bigint, p_first integer, p_units bigint,
    out last integer, out units bigint, out is_end boolean
)
language plpgsql stable as $$
begin
    select max(n.no), sum(1 + n.in_edges) into last, units
    from (
        select n.no, n.in_edges, sum(1 + n.in_edges) over (order by n.no) as until
        from (
            select n.no, n.in_edges from pipeline.nodes n
            where n.graph = p_graph and n.no >= p_first
            order by n.no limit p_units
        ) as n
    ) as n
    where n.until <= p_units or n.no = p_first;
    last := coalesce(last, p_first);
    units := coalesce(units, 1);
    is_end := not exists (select from pipeline.nodes n where n.graph = p_graph and n.no > last);
end $$;
