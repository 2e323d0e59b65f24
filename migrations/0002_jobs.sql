-- The queue. A row is a delivery: narrow, because every byte of it is written several times; gone
-- when it has succeeded, unless the worker was told to keep it.

create type pipeline.job_status as enum
    ('later', 'ready', 'running', 'succeeded', 'failed', 'discarded');

create sequence pipeline.ids;
-- One for every claim there ever was. Taken in blocks: a claim asks for many.
create sequence pipeline.tokens cache 500;

create table pipeline.jobs (
    id            bigint              primary key,
    token         bigint,                          -- the attempt that runs, if one does
    run_at        timestamptz         not null,    -- not before
    created_at    timestamptz         not null,
    lease_until   timestamptz,                     -- while it runs
    ended_at      timestamptz,
    unknown_since timestamptz,                     -- since when nobody who took it has known its type
    batch         bigint,
    worker        bigint,                          -- who has it, or had it last
    lease_ms      integer             not null,
    status        pipeline.job_status not null,
    attempt       smallint            not null default 0, -- how many have begun
    attempts      smallint            not null,           -- how many may
    priority      smallint            not null,
    queue         text collate "C"    not null,    -- names that begin alike must lie side by side
    kind          text                not null,    -- the job type's name
    args          jsonb               not null,
    input         jsonb,                           -- what it is given besides
    options       jsonb,                           -- what one enqueueing changed: backoff, timeout
    unique_key    text,
    error_class   text,
    error_message text,
    constraint running_has_token check ((status = 'running') = (token is not null)),
    constraint running_has_lease check (status <> 'running' or lease_until is not null),
    constraint ended_has_time check
        ((status in ('succeeded', 'failed', 'discarded')) = (ended_at is not null)),
    -- What no claim could take would stop the queue behind it.
    constraint waiting_has_attempts check
        (status not in ('later', 'ready') or (0 <= attempt and attempt < attempts)),
    constraint run_at_is_a_time check (isfinite(run_at) and run_at < '262143-01-01 00:00:00+00')
);

create index jobs_ready on pipeline.jobs (queue, priority desc, run_at, id) where status = 'ready';
create index jobs_later on pipeline.jobs (run_at) where status = 'later';
-- By id, which never changes: renewing a lease touches no index.
create index jobs_running on pipeline.jobs (id) where status = 'running';
create index jobs_ended on pipeline.jobs (ended_at, id) where ended_at is not null;
create unique index jobs_unique on pipeline.jobs (kind, unique_key)
    where unique_key is not null and status in ('later', 'ready', 'running');

-- Attempts that did not succeed, and why.
create table pipeline.attempts (
    job           bigint      not null,
    token         bigint      not null,
    attempt       smallint    not null,
    worker        bigint,
    outcome       text        not null,
    error_class   text,
    error_message text,
    ended_at      timestamptz not null,
    primary key (job, token)
);

-- Jobs that finish as one.
create table pipeline.batch_sets (
    id            bigint      primary key,
    created_at    timestamptz not null,
    sealed_at     timestamptz,
    finished_at   timestamptz,
    total         integer     not null default 0,
    ended         integer     not null default 0,
    failed        integer     not null default 0,
    callback      jsonb,                           -- the job that is enqueued when it finishes
    constraint counts_add_up check (0 <= failed and failed <= ended and ended <= total),
    constraint finishes_sealed check (finished_at is null or (sealed_at is not null and ended = total))
);

-- Only queues that somebody has said something about.
create table pipeline.queues (
    name      text        primary key,
    paused_at timestamptz
);

create table pipeline.workers (
    id         bigint      primary key,
    name       text        not null,
    host       text        not null,
    pid        integer     not null,
    queues     jsonb       not null,               -- pattern and slots of each
    kinds      text[]      not null,               -- the job types it knows
    started_at timestamptz not null,
    seen_at    timestamptz not null,
    stopped_at timestamptz
);

-- Enqueues jobs: as many as there are elements. Returns each one's id in order, and whether it is
-- new: one whose unique key is taken by a live job is that job.
create function pipeline.enqueue_v1(
    p_kinds text[], p_queues text[], p_priorities smallint[], p_attempts smallint[],
    p_leases integer[], p_args jsonb[], p_options jsonb[], p_unique text[],
    p_delays bigint[], p_times timestamptz[], p_batch bigint
) returns table (ord bigint, id bigint, fresh boolean)
language plpgsql as $$
#variable_conflict use_column
declare
    v_now timestamptz := pipeline.now();
    v_keyed record;
    v_id bigint;
    v_queue text;
begin
    return query
    insert into pipeline.jobs (id, status, run_at, created_at, kind, queue, priority, attempts,
                               lease_ms, args, options, batch)
    select nextval('pipeline.ids'),
           case when at <= v_now then 'ready' else 'later' end::pipeline.job_status, at, v_now,
           kind, queue, priority, attempts, lease, args, options, p_batch
    from (
        select e.*, coalesce(time, v_now + delay * interval '1 ms') as at
        from unnest(p_kinds, p_queues, p_priorities, p_attempts, p_leases, p_args, p_options,
                    p_unique, p_delays, p_times)
             with ordinality as e (kind, queue, priority, attempts, lease, args, options, key,
                                   delay, time, ord)
        where key is null
        order by e.ord
    ) as plain
    -- Ids rise with the order in which they were given.
    returning null::bigint, id, true;

    -- In the order of their keys: two that enqueue the same ones wait for each other in one direction.
    for v_keyed in
        select e.*, coalesce(time, v_now + delay * interval '1 ms') as at
        from unnest(p_kinds, p_queues, p_priorities, p_attempts, p_leases, p_args, p_options,
                    p_unique, p_delays, p_times)
             with ordinality as e (kind, queue, priority, attempts, lease, args, options, key,
                                   delay, time, ord)
        where key is not null
        order by kind, key, e.ord
    loop
        loop
            insert into pipeline.jobs (id, status, run_at, created_at, kind, queue, priority,
                                       attempts, lease_ms, args, options, batch, unique_key)
            values (nextval('pipeline.ids'),
                    case when v_keyed.at <= v_now then 'ready' else 'later' end::pipeline.job_status,
                    v_keyed.at, v_now, v_keyed.kind, v_keyed.queue, v_keyed.priority,
                    v_keyed.attempts, v_keyed.lease, v_keyed.args, v_keyed.options, p_batch,
                    v_keyed.key)
            on conflict (kind, unique_key)
                where unique_key is not null and status in ('later', 'ready', 'running')
                do nothing
            returning id into v_id;
            if found then
                return query values (v_keyed.ord, v_id, true);
                exit;
            end if;
            select j.id into v_id from pipeline.jobs j
            where j.kind = v_keyed.kind and j.unique_key = v_keyed.key
              and j.status in ('later', 'ready', 'running');
            if found then
                return query values (v_keyed.ord, v_id, false);
                exit;
            end if;
            -- It ended between the two statements: its key is free again.
        end loop;
    end loop;

    for v_queue in select distinct unnest(p_queues) loop
        perform pg_notify('pipeline_jobs', v_queue);
    end loop;
end $$;

-- Takes up to p_limits[i] jobs for each p_queues[i], a name or a prefix followed by `*`. Where
-- p_kinds is given, only jobs whose type is like one of them.
create function pipeline.claim_v1(
    p_worker bigint, p_queues text[], p_limits integer[], p_kinds text[]
) returns table (
    line integer, id bigint, token bigint, queue text, kind text, attempt smallint,
    attempts smallint, priority smallint, run_at timestamptz, lease_ms integer, batch bigint,
    args text, input text, options text
)
language plpgsql
-- The plan is always the same walk along an index, whatever the statistics of the moment say.
set enable_seqscan to off set enable_bitmapscan to off set enable_hashjoin to off
set enable_mergejoin to off set enable_sort to on
as $$
#variable_conflict use_column
declare
    v_now timestamptz := pipeline.now();
    v_names text[];
    v_name text;
    v_left integer;
    v_got integer;
    v_floor integer;
begin
    for i in 1 .. cardinality(p_queues) loop
        continue when p_limits[i] <= 0;
        v_names := pipeline.ready_queues_v1(p_queues[i]);
        v_left := p_limits[i];
        v_floor := 32768;
        while v_left > 0 and v_floor > -32768 loop
            -- Of several queues, first what has the highest priority in any of them, then the next.
            v_floor := case when cardinality(v_names) = 1 then -32768
                            else pipeline.next_priority_v1(v_names, v_floor) end;
            exit when v_floor is null;
            foreach v_name in array v_names loop
                exit when v_left <= 0;
                return query
                with picked as materialized (
                    select j.id from pipeline.jobs j
                    where j.queue = v_name and j.status = 'ready' and j.priority >= v_floor
                      and (p_kinds is null or j.kind like any (p_kinds))
                    order by j.priority desc, j.run_at, j.id
                    limit v_left
                    for update skip locked
                )
                update pipeline.jobs j
                set status = 'running', token = nextval('pipeline.tokens'), attempt = j.attempt + 1,
                    worker = p_worker, lease_until = v_now + j.lease_ms * interval '1 ms'
                from picked
                where j.id = picked.id
                returning i, j.id, j.token, j.queue, j.kind, j.attempt, j.attempts, j.priority,
                          j.run_at, j.lease_ms, j.batch, j.args::text, j.input::text,
                          j.options::text;
                get diagnostics v_got = row_count;
                v_left := v_left - v_got;
            end loop;
        end loop;
    end loop;
end $$;

-- The highest priority below p_below that is ready in one of the queues.
create function pipeline.next_priority_v1(p_queues text[], p_below integer) returns integer
language sql stable
set enable_seqscan to off set enable_bitmapscan to off
as $$
    select max(head.priority) from unnest(p_queues) as queue (name)
    cross join lateral (
        select j.priority from pipeline.jobs j
        where j.queue = queue.name and j.status = 'ready' and j.priority < p_below
        order by j.priority desc
        limit 1
    ) as head
$$;

-- The queues a pattern stands for that have something ready and are not paused; of several, the one
-- whose head comes first. Walks the index from name to name, not row by row.
create function pipeline.ready_queues_v1(p_pattern text) returns text[]
language plpgsql stable
set enable_seqscan to off set enable_bitmapscan to off
as $$
declare
    v_prefix text := left(p_pattern, -1);
    v_name text;
    v_found text[] := '{}';
begin
    if right(p_pattern, 1) <> '*' then
        return case when exists (select from pipeline.queues q
                                 where q.name = p_pattern and q.paused_at is not null)
                    then '{}' else array[p_pattern] end;
    end if;
    v_name := v_prefix;
    loop
        select j.queue into v_name from pipeline.jobs j
        where j.status = 'ready' and j.queue > v_name
        order by j.queue, j.priority desc, j.run_at, j.id
        limit 1;
        exit when v_name is null or not starts_with(v_name, v_prefix);
        v_found := v_found || v_name;
    end loop;
    return coalesce((
        select array_agg(found.name order by head.priority desc, head.run_at, head.id)
        from unnest(v_found) as found (name)
        cross join lateral (
            select j.priority, j.run_at, j.id from pipeline.jobs j
            where j.queue = found.name and j.status = 'ready'
            order by j.priority desc, j.run_at, j.id
            limit 1
        ) as head
        where not exists (select from pipeline.queues q
                          where q.name = found.name and q.paused_at is not null)
    ), '{}');
end $$;

-- Ends attempts. What each came to is in p_verbs:
--   0 succeeded  1 retry  2 fail  3 discard  4 snooze  5 hand back  6 type unknown  7 lease lost
-- Fenced: an attempt whose token the row no longer bears changes nothing, and its position is in
-- `stale`; `failed` are those that came to an end for good without success. The caller sorts by id,
create function pipeline.end_v1(
    p_ids bigint[], p_tokens bigint[], p_verbs smallint[], p_waits bigint[],
    p_classes text[], p_messages text[], p_keep boolean, p_unknown_ms bigint,
    out stale integer[], out failed integer[], out xid text
)
language plpgsql
set enable_seqscan to off set enable_bitmapscan to off set enable_hashjoin to off
set enable_mergejoin to off
as $$
declare
    v_now timestamptz := pipeline.now();
    v_ended integer[];
    v_other integer[];
    v_plain boolean := not p_keep and 0 = all (p_verbs);
    v_retried bigint[];
begin
    with gone as (
        delete from pipeline.jobs j
        using unnest(p_ids, p_tokens, p_verbs) with ordinality as e (id, token, verb, ord)
        where e.verb = 0 and not p_keep and j.id = e.id and j.token = e.token
        returning e.ord::integer, j.id, j.attempt
    )
    select coalesce(array_agg(gone.ord), '{}'),
           array_agg(gone.id) filter (where gone.attempt > 1)
    into v_ended, v_retried from gone;
    -- What is gone leaves no history of its failures behind.
    if v_retried is not null then
        delete from pipeline.attempts where job = any (v_retried);
    end if;

    if not v_plain then
        with e as (
            select * from unnest(p_ids, p_tokens, p_verbs, p_waits, p_classes, p_messages)
                with ordinality as e (id, token, verb, wait, class, message, ord)
            where e.verb <> 0 or p_keep
        ), moved as (
            update pipeline.jobs j
            set status = next.status::pipeline.job_status,
                token = null,
                lease_until = null,
                run_at = v_now + next.wait * interval '1 ms',
                attempt = j.attempt - next.refund,
                ended_at = case when next.status in ('succeeded', 'failed', 'discarded') then v_now end,
                unknown_since = case when e.verb = 6 then coalesce(j.unknown_since, v_now) end,
                error_class = coalesce(next.class, j.error_class),
                error_message = coalesce(next.message, j.error_message)
            from e
            cross join lateral pipeline.next_state_v1(e.verb, e.wait, e.class, e.message, e.id,
                                                      v_now, p_unknown_ms) as next
            where j.id = e.id and j.token = e.token
              and (e.verb <> 7 or j.lease_until < v_now)
            returning e.ord::integer, j.id, e.token, j.attempt, j.worker, next.status as came_to,
                      next.class, next.message, next.refund
        ), kept as (
            insert into pipeline.attempts (job, token, attempt, worker, outcome, error_class,
                                           error_message, ended_at)
            select moved.id, moved.token, moved.attempt, moved.worker,
                   case when moved.came_to in ('ready', 'later') then 'retried' else moved.came_to end,
                   moved.class, moved.message, v_now
            from moved where moved.refund = 0 and moved.came_to <> 'succeeded'
        )
        select coalesce(array_agg(moved.ord), '{}'),
               array_agg(moved.ord) filter (where moved.came_to in ('failed', 'discarded'))
        into v_other, failed from moved;
        v_ended := v_ended || v_other;
    end if;

    if cardinality(v_ended) < cardinality(p_ids) then
        select array_agg(ord) into stale
        from generate_series(1, cardinality(p_ids)) as ord where ord <> all (v_ended);
    end if;
    xid := pg_current_xact_id()::text;
end $$;

-- What a job's row becomes when an attempt ends in this way.
create function pipeline.next_state_v1(
    p_verb smallint, p_wait bigint, p_class text, p_message text, p_id bigint,
    p_now timestamptz, p_unknown_ms bigint,
    out status text, out wait bigint, out refund smallint, out class text, out message text
)
language plpgsql stable as $$
declare
    v_job record;
    v_known timestamptz;
begin
    wait := greatest(p_wait, 0);
    refund := case when p_verb in (4, 5, 6) then 1 else 0 end;
    class := p_class;
    message := p_message;
    status := case p_verb
        when 0 then 'succeeded' when 2 then 'failed' when 3 then 'discarded'
        else case when wait > 0 then 'later' else 'ready' end
    end;
    if p_verb = 6 then
        select j.kind, coalesce(j.unknown_since, p_now) as since into v_job
        from pipeline.jobs j where j.id = p_id;
        select greatest(v_job.since, max(w.seen_at)) into v_known
        from pipeline.workers w where v_job.kind = any (w.kinds);
        if p_now - v_known >= p_unknown_ms * interval '1 ms' then
            status := 'failed';
            refund := 0;
            class := 'NoHandler';
            message := format('no live worker has known the job type `%s` since %s: register it '
                              'with a worker, then retry the job', v_job.kind, v_known);
        else
            -- The longer nobody knows it, the rarer it is asked about.
            wait := least(greatest(extract(epoch from p_now - v_job.since) * 500, 250), 30000);
            status := 'later';
        end if;
    elsif p_verb = 7 then
        select j.attempt, j.attempts, j.worker into v_job from pipeline.jobs j where j.id = p_id;
        class := 'WorkerDied';
        message := format('the worker that ran attempt %s (%s) did not renew its lease: it died, '
                          'or could not reach the database', v_job.attempt, v_job.worker);
        status := case when v_job.attempt < v_job.attempts then 'ready' else 'failed' end;
    end if;
end $$;

-- Renews leases. `lost` are the tokens that no row bears any more; `held` those whose row somebody
-- else holds at this moment: they are left for the next time.
create function pipeline.renew_v1(
    p_ids bigint[], p_tokens bigint[], out lost bigint[], out held bigint[]
)
language plpgsql
set enable_seqscan to off set enable_hashjoin to off set enable_mergejoin to off
as $$
declare
    v_now timestamptz := pipeline.now();
    v_renewed bigint[];
begin
    with ours as materialized (
        select j.id from pipeline.jobs j
        join unnest(p_ids, p_tokens) as e (id, token) on j.id = e.id and j.token = e.token
        for no key update of j skip locked
    ), renewed as (
        update pipeline.jobs j set lease_until = v_now + j.lease_ms * interval '1 ms'
        from ours where j.id = ours.id
        returning j.token
    )
    select coalesce(array_agg(token), '{}') into v_renewed from renewed;

    if cardinality(v_renewed) < cardinality(p_tokens) then
        select array_agg(e.token) filter (where j.id is null),
               array_agg(e.token) filter (where j.id is not null)
        into lost, held
        from unnest(p_ids, p_tokens) as e (id, token)
        left join pipeline.jobs j on j.id = e.id and j.token = e.token
        where e.token <> all (v_renewed);
    end if;
end $$;

-- What time brings: jobs that are due become ready; leases that ran out are reported.
--   due_ms: until the next one is due · ready: whether there is something to claim in these queues
create function pipeline.tick_v1(
    p_worker bigint, p_queues text[],
    out due_ms bigint, out ready boolean,
    out lost_ids bigint[], out lost_tokens bigint[], out lost_batches bigint[]
)
language plpgsql
set enable_seqscan to off set enable_bitmapscan to off set enable_hashjoin to off
set enable_mergejoin to off
as $$
declare
    v_now timestamptz := pipeline.now();
begin
    with due as materialized (
        select id from pipeline.jobs
        where status = 'later' and run_at <= v_now
        order by run_at limit 5000
        for update skip locked
    )
    update pipeline.jobs j set status = 'ready' from due where j.id = due.id;

    select ceil(extract(epoch from j.run_at - v_now) * 1000) into due_ms
    from pipeline.jobs j where j.status = 'later' order by j.run_at limit 1;

    select array_agg(l.id), array_agg(l.token), array_agg(l.batch)
    into lost_ids, lost_tokens, lost_batches
    from (
        select j.id, j.token, j.batch from pipeline.jobs j
        where j.status = 'running' and j.lease_until < v_now
        order by j.id limit 500
    ) as l;

    ready := exists (
        select from unnest(p_queues) as pattern
        cross join lateral unnest(pipeline.ready_queues_v1(pattern)) as name
        where exists (select from pipeline.jobs j where j.queue = name and j.status = 'ready')
    );

    update pipeline.workers set seen_at = v_now
    where id = p_worker and seen_at < v_now - interval '5 s';
end $$;

-- Gives back what was claimed for a worker that never heard of it: the answer was lost on the way.
create function pipeline.disown_v1(p_worker bigint, p_known bigint[]) returns integer
language plpgsql as $$
declare
    v_count integer;
begin
    with unheard as materialized (
        select id from pipeline.jobs
        where status = 'running' and worker = p_worker and token <> all (p_known)
        for update skip locked
    )
    update pipeline.jobs j
    set status = 'ready', token = null, lease_until = null, attempt = j.attempt - 1
    from unheard where j.id = unheard.id;
    get diagnostics v_count = row_count;
    return v_count;
end $$;

-- Counts ends in their batches, whose rows the caller has locked, and enqueues the callback of each
-- that is finished by it. Returns the queues that got one.
create function pipeline.settle_batches_v1(p_batches bigint[], p_ended integer[], p_failed integer[])
returns text[]
language plpgsql as $$
begin
    update pipeline.batch_sets b
    set ended = b.ended + e.ended, failed = b.failed + e.failed
    from unnest(p_batches, p_ended, p_failed) as e (id, ended, failed)
    where b.id = e.id;
    return pipeline.finish_batches_v1(p_batches);
end $$;

-- More jobs in a batch whose row the caller has locked, and perhaps the last ones. Returns the queues
-- that a callback went to.
create function pipeline.fill_batch_v1(p_batch bigint, p_count integer, p_seal boolean) returns text[]
language plpgsql as $$
begin
    update pipeline.batch_sets
    set total = total + p_count,
        sealed_at = case when p_seal then coalesce(sealed_at, pipeline.now()) else sealed_at end
    where id = p_batch;
    return pipeline.finish_batches_v1(array[p_batch]);
end $$;

create function pipeline.finish_batches_v1(p_batches bigint[]) returns text[]
language plpgsql as $$
declare
    v_now timestamptz := pipeline.now();
    v_queues text[];
begin
    with finished as (
        update pipeline.batch_sets b set finished_at = v_now
        where b.id = any (p_batches) and b.finished_at is null and b.sealed_at is not null
          and b.ended = b.total
        returning b.*
    ), callbacks as (
        insert into pipeline.jobs (id, status, run_at, created_at, kind, queue, priority, attempts,
                                   lease_ms, args, options, input)
        select nextval('pipeline.ids'), 'ready', v_now, v_now, callback ->> 'kind',
               callback ->> 'queue', (callback ->> 'priority')::smallint,
               (callback ->> 'attempts')::smallint, (callback ->> 'lease_ms')::integer,
               callback -> 'args', nullif(callback -> 'options', 'null'),
               jsonb_build_object('batch', id, 'total', total, 'failed', failed)
        from finished where callback is not null
        returning queue
    )
    select coalesce(array_agg(distinct queue), '{}') into v_queues from callbacks;
    return v_queues;
end $$;

-- Gives a failed job its attempts again. Returns `done`, what it is instead, or null where it is not.
create function pipeline.retry_v1(p_job bigint) returns text
language plpgsql as $$
declare
    v_job pipeline.jobs;
begin
    -- Its batch first, as everybody does.
    perform from pipeline.batch_sets b
    where b.id = (select batch from pipeline.jobs where id = p_job)
    for no key update;
    select * into v_job from pipeline.jobs where id = p_job for update;
    if not found then
        return null;
    elsif v_job.status not in ('failed', 'discarded') then
        return v_job.status::text;
    elsif v_job.unique_key is not null and exists (
        select from pipeline.jobs j
        where j.kind = v_job.kind and j.unique_key = v_job.unique_key
          and j.status in ('later', 'ready', 'running')
    ) then
        return format('one of two with the unique key `%s`, and the other is live', v_job.unique_key);
    end if;
    -- A batch that is finished stays so, and no longer counts this job.
    update pipeline.batch_sets set ended = ended - 1, failed = failed - 1
    where id = v_job.batch and finished_at is null;
    update pipeline.jobs
    set status = 'ready', run_at = pipeline.now(), attempt = 0, ended_at = null,
        unknown_since = null, batch = case when found then v_job.batch end
    where id = p_job;
    perform pg_notify('pipeline_jobs', v_job.queue);
    return 'done';
end $$;

-- Deletes a job that nobody runs. Returns as retry_v1 does.
create function pipeline.discard_v1(p_job bigint) returns text
language plpgsql as $$
declare
    v_job pipeline.jobs;
    v_queue text;
begin
    perform from pipeline.batch_sets b
    where b.id = (select batch from pipeline.jobs where id = p_job)
    for no key update;
    select * into v_job from pipeline.jobs where id = p_job for update;
    if not found then
        return null;
    elsif v_job.status = 'running' then
        return v_job.status::text;
    end if;
    delete from pipeline.jobs where id = p_job;
    delete from pipeline.attempts where job = p_job;
    if v_job.status in ('later', 'ready') and v_job.batch is not null then
        -- It will not come any more: for its batch it has failed.
        foreach v_queue in array
            pipeline.settle_batches_v1(array[v_job.batch], array[1], array[1])
        loop
            perform pg_notify('pipeline_jobs', v_queue);
        end loop;
    end if;
    return 'done';
end $$;
