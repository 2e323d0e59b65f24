insert into pipeline.chains (upstream, downstream)
select upstream, downstream from unnest($1::bigint[], $2::bigint[]) as c (upstream, downstream)
on conflict do nothing
