-- Batches: a batch finishes when all its jobs have ended.
create table pipeline.batch_sets (
    id            bigint      primary key,
    created_at    timestamptz not null,
    sealed_at     timestamptz,
    finished_at   timestamptz,
    total         integer     not null default 0,
    ended         integer     not null default 0,
    failed        integer     not null default 0,
    callback      json,                            -- the job that is enqueued when the batch finishes
    constraint counts_add_up check (0 <= failed and failed <= ended and ended <= total),
    constraint finishes_sealed check (finished_at is null or (sealed_at is not null and ended = total))
);
