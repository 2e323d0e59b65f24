-- Starts the runs that have a key, after start_runs_v1 has inserted the others. Returns the id and the outcome of
-- each run. Deletes the runs of this call again if the result is not 'started'.
create function pipeline.start_keyed_runs_v1(
    p_graph bigint, p_pipeline text, p_deadline_ms bigint, p_size integer, p_chained boolean,
    p_runs pipeline.new_run[], p_new bigint[],
    out result pipeline.start_result, out ids bigint[], out outcomes pipeline.start_outcome[]
)
language plpgsql
as $$
#variable_conflict use_column
declare
    v_now timestamptz := pipeline.now();
    v_new bigint[] := p_new;    -- the ids of the inserted runs
    v_taken boolean;
    v_keyed record;
    v_there record;
    v_outcome pipeline.start_outcome;
    v_tries integer;
begin
    -- Usually all runs without a key are new, or none of them: then no id is searched in the list.
    select array_agg(r.id order by r.ord),
           array_agg(case when r.key is not null then null
                          when r.all_new or r.id = any (v_new) then 'new'
                          else 'sent' end::pipeline.start_outcome order by r.ord),
           bool_or(r.key is null and not r.all_new and r.id <> all (v_new) and not exists (
               select from pipeline.runs t where t.id = r.id and t.nonce = r.nonce
           ))
    into ids, outcomes, v_taken
    from (
        select r.id, r.nonce, r.key, r.ord,
               count(*) filter (where r.key is null) over () = cardinality(v_new) as all_new
        from unnest(p_runs) with ordinality
             as r (id, nonce, rerun_of, event_level, key, params_hash, actor, params, callbacks, tags, ord)
    ) as r;
    if v_taken then
        delete from pipeline.runs r where r.id = any (v_new);
        select 'ids_taken' into result, ids, outcomes;
        return;
    end if;

    -- Sorted by key: two transactions that start runs with the same keys lock them in the same order and
    -- cannot deadlock. Keys compare by their bytes, as the client does when it sorts runs into pages.
    for v_keyed in
        select r.*
        from unnest(p_runs) with ordinality
             as r (id, nonce, rerun_of, event_level, key, params_hash, actor, params, callbacks, tags, ord)
        where r.key is not null
        order by r.key collate "C", r.ord
    loop
        v_tries := 0;
        v_outcome := null;
        while v_outcome is null loop
            insert into pipeline.runs (id, nonce, graph, created_at, started_at, deadline_at, rerun_of,
                                       live_steps, events, status, event_level, pipeline, actor, params, callbacks,
                                       tags, key, params_hash)
            values (v_keyed.id, v_keyed.nonce, p_graph, v_now, case when not p_chained then v_now end,
                    case when not p_chained then v_now + p_deadline_ms * interval '1 ms' end,
                    v_keyed.rerun_of, p_size, (v_keyed.event_level <> 'none')::integer,
                    case when p_chained then 'pending' else 'running' end::pipeline.run_status,
                    v_keyed.event_level, p_pipeline, v_keyed.actor, v_keyed.params,
                    pipeline.checked_callbacks(v_keyed.callbacks), v_keyed.tags, v_keyed.key,
                    v_keyed.params_hash)
            on conflict do nothing;
            if found then
                v_new := v_new || v_keyed.id;
                v_outcome := 'new';
                exit;
            end if;
            select r.id, r.nonce, r.params_hash into v_there from pipeline.runs r
            where r.pipeline = p_pipeline and r.key = v_keyed.key;
            if found then
                ids[v_keyed.ord] := v_there.id;
                v_outcome := case when v_there.nonce = v_keyed.nonce then 'sent'
                                  when v_there.params_hash = v_keyed.params_hash then 'same'
                                  else 'other' end;
                exit;
            end if;
            if exists (select from pipeline.runs r where r.id = v_keyed.id) then
                delete from pipeline.runs r where r.id = any (v_new);
                select 'ids_taken' into result, ids, outcomes;
                return;
            end if;
            -- The other run was deleted between the statements: the key, or the id, is free again.
            v_tries := v_tries + 1;
            if v_tries = 100 then
                raise serialization_failure using message = format(
                    'a key of pipeline %s was taken and given back 100 times meanwhile', p_pipeline);
            end if;
        end loop;
        outcomes[v_keyed.ord] := v_outcome;
    end loop;
    result := 'started';
    if 'other' = any (outcomes) then
        delete from pipeline.runs r where r.id = any (v_new);
        result := 'key_conflict';
    end if;
end $$;
