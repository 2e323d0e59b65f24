select id, run from pipeline.requests where id > $1 order by id limit 100
