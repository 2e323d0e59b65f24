-- Sends notifications. The jobs in the queues became ready in the previous transaction, within the last minute.
select pipeline.notify_queues_v1($1, pipeline.now() - interval '1 minute') as queues,
       (select count(pg_notify(channel, news)) from unnest($2::text[], $3::text[]) as told (channel, news))
