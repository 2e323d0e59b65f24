-- Enqueues one job for each array element. Returns the id of each job, and whether the job is new: if
-- a live job has the key, its id is returned, and whether that job has other data. `ord` is the position of a job
-- with a key; jobs without one are returned in the order of the arrays. A caller with many jobs calls
-- this function several times, page by page, in one transaction.
create function pipeline.enqueue_jobs_v1(
    p_job_types text[], p_queues text[], p_priorities smallint[], p_attempts smallint[],
    p_leases integer[], p_args json[], p_options jsonb[], p_unique text[],
    p_delays bigint[], p_times timestamptz[], p_batch bigint
) returns table (ord bigint, id bigint, is_new boolean, has_other_data boolean)
language plpgsql as $$
#variable_conflict use_column
declare
    v_now timestamptz := pipeline.now();
    v_keyed record;
    v_id bigint;
    v_other_data boolean;
    v_tries integer;
begin
    return query
    insert into pipeline.jobs (id, status, run_at, created_at, job_type, queue, priority, max_attempts,
                               lease_ms, args, bytes, options, batch)
    select nextval('pipeline.ids'),
           case when at <= v_now then 'ready' else 'scheduled' end::pipeline.job_status, at, v_now,
           job_type, queue, priority, max_attempts, lease, args, pipeline.large_size_v1(args), options, p_batch
    from (
        select e.*, coalesce(time, v_now + delay * interval '1 ms') as at
        from unnest(p_job_types, p_queues, p_priorities, p_attempts, p_leases, p_args, p_options,
                    p_unique, p_delays, p_times)
             with ordinality as e (job_type, queue, priority, max_attempts, lease, args, options, key,
                                   delay, time, ord)
        where key is null
        order by e.ord
    ) as plain
    -- Ids ascend in the order of the arrays.
    returning null::bigint, id, true, false;

    -- Sorted by key: two transactions that enqueue the same keys lock them in the same order and cannot
    -- deadlock. Collation "C" compares bytes, as the client does when it sorts jobs into pages.
    for v_keyed in
        select e.*, coalesce(time, v_now + delay * interval '1 ms') as at
        from unnest(p_job_types, p_queues, p_priorities, p_attempts, p_leases, p_args, p_options,
                    p_unique, p_delays, p_times)
             with ordinality as e (job_type, queue, priority, max_attempts, lease, args, options, key,
                                   delay, time, ord)
        where key is not null
        order by job_type collate "C", key collate "C", e.ord
    loop
        v_tries := 0;
        loop
            insert into pipeline.jobs (id, status, run_at, created_at, job_type, queue, priority,
                                       max_attempts, lease_ms, args, bytes, options, batch, key)
            values (nextval('pipeline.ids'),
                    case when v_keyed.at <= v_now then 'ready' else 'scheduled' end::pipeline.job_status,
                    v_keyed.at, v_now, v_keyed.job_type, v_keyed.queue, v_keyed.priority,
                    v_keyed.max_attempts, v_keyed.lease, v_keyed.args, pipeline.large_size_v1(v_keyed.args),
                    v_keyed.options, p_batch, v_keyed.key)
            on conflict (job_type, key)
                where key is not null and status in ('scheduled', 'ready', 'running')
                do nothing
            returning id into v_id;
            if found then
                return query values (v_keyed.ord, v_id, true, false);
                exit;
            end if;
            -- As jsonb, neither spaces nor the order of fields make a difference; most often the texts are equal.
            select j.id,
                   case when j.args::text = v_keyed.args::text then false
                        else j.args::jsonb <> v_keyed.args::jsonb end
            into v_id, v_other_data
            from pipeline.jobs j
            where j.job_type = v_keyed.job_type and j.key = v_keyed.key
              and j.status in ('scheduled', 'ready', 'running');
            if found then
                return query values (v_keyed.ord, v_id, false, v_other_data);
                exit;
            end if;
            -- The other job ended between the two statements: the key is free again.
            v_tries := v_tries + 1;
            if v_tries = 100 then
                raise serialization_failure using message = format(
                    'the key of job type %s was taken and given back 100 times meanwhile',
                    v_keyed.job_type);
            end if;
        end loop;
    end loop;

    perform pipeline.notify_queues_v1(p_queues, least(v_now, (select min(time) from unnest(p_times) as time)));
end $$;
