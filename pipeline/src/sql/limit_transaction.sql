-- Limits for a transaction of a client that holds runs: if its process is frozen, the server ends it.
select set_config('idle_in_transaction_session_timeout', '10s', true) as idle,
       set_config('lock_timeout', '1s', true) as lock,
       set_config('statement_timeout', '30s', true) as statement
