select id from pipeline.batch_sets where id = any ($1) order by id for no key update
