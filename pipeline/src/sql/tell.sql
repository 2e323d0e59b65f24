select pg_notify(channel, news) from unnest($1::text[], $2::text[]) as told (channel, news)
