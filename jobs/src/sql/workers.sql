select w.id, w.name, w.host, w.pid, w.queues as "queues: Json<Vec<WorkerQueue>>", w.job_types, w.started_at,
       w.seen_at, w.stopped_at,
       (select count(*) from pipeline.jobs j where j.status = 'running' and j.worker = w.id)
           as "running!"
from pipeline.workers w
order by w.started_at desc, w.id desc
