select total, ended, failed, sealed_at is not null as "sealed!", finished_at is not null as "finished!"
from pipeline.batch_sets where id = $1
