-- Sets timeouts for a client's transaction that locks runs: if the client's process hangs, the server ends the
-- transaction.
select set_config('idle_in_transaction_session_timeout', '10s', true) as idle,
       set_config('lock_timeout', '1s', true) as lock,
       set_config('statement_timeout', '30s', true) as statement
