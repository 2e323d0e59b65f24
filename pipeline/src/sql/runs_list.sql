-- Runs, the newest first: by their tags where some are asked for, else along the index of their
-- pipeline or of all, each status by itself. Each of the three is skipped where it is not the one.
-- $1 statuses  $2 pipeline  $3 tags  $4 created from  $5 and before, where $6 is the id  $7 how many
with page as (
    (
        select r.id, r.created_at
        from pipeline.runs r
        where $3::text[] is not null and r.tags @> $3
          -- As text: the index of statuses would be read whole.
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
       r.idempotency_key as key, r.rerun_of, r.created_at, r.started_at, r.ended_at, r.deadline_at,
       r.drain is not distinct from 'deadline' as "deadline_exceeded!"
from page
join pipeline.runs r on r.id = page.id
order by r.created_at desc, r.id desc
