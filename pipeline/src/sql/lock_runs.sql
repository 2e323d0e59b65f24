-- With $2, those before it too.
select pipeline.lock_runs_v1(
    array[$1::bigint] || (select array_agg(c.up) from pipeline.chains c where $2 and c.down = $1)
) as "locked!"
