-- Returns which of these claims the rows of this worker have, and whether the backend that sent them is still
-- active.
select
    (
        select array_agg(j.token) from unnest($1::bigint[], $2::bigint[]) as e (id, token)
        join pipeline.jobs j on j.id = e.id and j.token = e.token and j.worker = $4::bigint
    ) as tokens,
    exists (
        select from pg_stat_activity where application_name = $3::text
    ) as "in_progress!"
