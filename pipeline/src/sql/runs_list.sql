-- Lists runs, the newest first. One of three branches reads rows: by tags if tags are given, otherwise by the index
-- of the pipeline if one is given, otherwise by the index of all runs; one scan for each status.
-- $1 statuses  $2 pipeline  $3 tags  $4 created at or after  $5, $6 created before this time and id  $7 limit
with page as (
    (
        select r.id, r.created_at
        from pipeline.runs r
        where $3::text[] is not null and r.tags @> $3
          -- Compared as text, so that the planner does not read the whole index of statuses.
          and r.status::text = any ($1::text[])
          and ($2::text is null or r.pipeline = $2)
          and r.created_at >= coalesce($4::timestamptz, '-infinity')
          and (r.created_at, r.id) < (coalesce($5::timestamptz, 'infinity'), $6)
        order by r.created_at desc, r.id desc
        limit $7
    )
    union all
    select r.id, r.created_at
    from unnest($1::text[]::pipeline.run_status[]) as s (status)
    cross join lateral (
        select r.id, r.created_at
        from pipeline.runs r
        where r.pipeline = $2 and r.status = s.status
          and r.created_at >= coalesce($4::timestamptz, '-infinity')
          and (r.created_at, r.id) < (coalesce($5::timestamptz, 'infinity'), $6)
        order by r.created_at desc, r.id desc
        limit $7
    ) as r
    where $3::text[] is null and $2 is not null
    union all
    select r.id, r.created_at
    from unnest($1::text[]::pipeline.run_status[]) as s (status)
    cross join lateral (
        select r.id, r.created_at
        from pipeline.runs r
        where r.status = s.status
          and r.created_at >= coalesce($4::timestamptz, '-infinity')
          and (r.created_at, r.id) < (coalesce($5::timestamptz, 'infinity'), $6)
        order by r.created_at desc, r.id desc
        limit $7
    ) as r
    where $3::text[] is null and $2 is null
    order by created_at desc, id desc
    limit $7
)
select r.id, r.pipeline, r.status::text as "status!", r.round, r.actor, r.tags,
       r.key as key, r.rerun_of, r.created_at, r.started_at, r.ended_at, r.deadline_at,
       r.stop_reason is not distinct from 'deadline' as "deadline_exceeded!"
from page
join pipeline.runs r on r.id = page.id
order by r.created_at desc, r.id desc
