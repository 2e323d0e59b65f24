insert into pipeline.batch_sets (id, created_at, callback)
values (nextval('pipeline.ids'), pipeline.now(), $1)
returning id
