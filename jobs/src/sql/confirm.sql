-- Which of these claims the rows bear, and whether the transaction that made them is still under way.
select
    (
        select array_agg(j.token) from unnest($1::bigint[], $2::bigint[]) as e (id, token)
        join pipeline.jobs j on j.id = e.id and j.token = e.token and j.worker = $4
    ) as tokens,
    exists (
        select from pg_stat_activity where backend_xid = $3::text::xid8::xid
    ) as "in_progress!"
