-- Every end of an attempt that the database took, noted in the transaction that took it: the queue row
-- itself no longer says which attempt ended it. A claim that is given back at no cost is no end.
create table ends (
    job     bigint not null,
    token   bigint not null,
    outcome text   not null    -- the row's next status; a row that is deleted has succeeded
);

create function note_end() returns trigger language plpgsql as $$
begin
    if tg_op = 'DELETE' then
        insert into ends values (old.id, old.token, 'succeeded');
    else
        insert into ends values (old.id, old.token, new.status::text);
    end if;
    return null;
end $$;

create trigger note_end after update on pipeline.jobs
for each row
when (old.token is not null and new.token is distinct from old.token and new.attempt = old.attempt)
execute function note_end();

create trigger note_deletion after delete on pipeline.jobs
for each row when (old.token is not null)
execute function note_end();
