select id from pipeline.runs where id = any ($1) order by id for no key update
