-- Reads the catalogs instead of to_regclass(), which fails if the role has no usage privilege on the schema.
select
    current_setting('server_version_num')::int as "server_version!",
    current_setting('server_version')          as "server_name!",
    current_user::text                         as "role!",
    current_database()::text                   as "database!",
    s.oid is not null                          as "schema_exists!",
    exists (
        select from pg_catalog.pg_class c
        where c.relnamespace = s.oid and c.relname = 'migrations' and c.relkind in ('r', 'p')
    )                                          as "table_exists!",
    has_database_privilege(current_database(), 'create') as "may_create_schema!",
    coalesce(
        has_schema_privilege(s.oid, 'create') and has_schema_privilege(s.oid, 'usage'), false
    )                                          as "may_create_in_schema!"
from (values (1)) as always
left join pg_catalog.pg_namespace s on s.nspname = 'pipeline'
