-- Omits ids that runs already have: after a failover or a restore, the sequence may be behind them.
select taken.id as "id!", here.database as "database!"
from (select nextval('pipeline.run_ids') as id from generate_series(1, $1)) as taken
cross join (select pipeline.database_id_v1() as database offset 0) as here
where not exists (select from pipeline.runs r where r.id = taken.id)
