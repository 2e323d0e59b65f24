-- Finishing a batch reads single fields of the callback; the cast refuses a callback whose fields cannot be read.
insert into pipeline.batch_sets (id, created_at, callback)
select nextval('pipeline.ids'), pipeline.now(), $1::text::json
where $1 is null or jsonb_typeof($1::text::jsonb) = 'object'
returning id
