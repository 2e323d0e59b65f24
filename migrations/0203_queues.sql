-- Settings of queues. A queue without settings has no row.
create table pipeline.queues (
    name      text        primary key,
    paused_at timestamptz
);
