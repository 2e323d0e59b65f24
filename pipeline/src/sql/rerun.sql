select id as "id!", result::text as "result!" from pipeline.start_rerun_v1($1, $2, $3)
