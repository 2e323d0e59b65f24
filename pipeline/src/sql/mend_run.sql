select problems, queues, over from pipeline.mend_run_v1($1, $2, $3, $4, $5)
