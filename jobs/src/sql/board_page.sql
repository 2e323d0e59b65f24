select id from pipeline.jobs
where ($1::text[] is null or status::text = any ($1)) and ($2::text is null or queue = $2)
order by id desc
offset $3 limit $4
