insert into pipeline.chains (up, down)
select up, down from unnest($1::bigint[], $2::bigint[]) as c (up, down)
on conflict do nothing
