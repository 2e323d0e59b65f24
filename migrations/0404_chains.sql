-- "After" between two runs.
create table pipeline.chains (
    up   bigint not null,
    down bigint not null,
    primary key (up, down)
);
create index chains_of on pipeline.chains (down, up);
