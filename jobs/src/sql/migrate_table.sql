create table pipeline.migrations (
    version     bigint      primary key,
    description text        not null,
    checksum    bytea       not null,
    applied_at  timestamptz not null default statement_timestamp()
);
comment on table pipeline.migrations is 'what has been applied to this schema, by number';
