-- What finishes the batch reads single fields of the callback: the cast refuses one where it could not.
insert into pipeline.batch_sets (id, created_at, callback)
select nextval('pipeline.ids'), pipeline.now(), $1::text::json
where $1 is null or jsonb_typeof($1::text::jsonb) = 'object'
returning id
