-- Edges between chained runs.
create table pipeline.chains (
    upstream   bigint not null,
    downstream bigint not null,
    primary key (upstream, downstream)
);
create index chains_of on pipeline.chains (downstream, upstream);
