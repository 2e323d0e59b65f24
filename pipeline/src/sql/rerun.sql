select id as "id!", outcome as "outcome!" from pipeline.rerun_v1($1, $2, $3)
