select run as "run!" from unnest($1::bigint[]) as run
where not exists (select from pipeline.runs r where r.id = run)
limit 1
