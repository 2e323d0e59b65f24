-- Those of the job types that no live worker knows. A sign of life is written every 5 s.
select kind as "kind!" from unnest($1::text[]) as kind
where not exists (
    select from pipeline.workers w
    where w.stopped_at is null and w.seen_at > pipeline.now() - interval '30 s' and kind = any (w.kinds)
)
