select stale, held, failed as "failed: Vec<FailedRow>" from pipeline.end_jobs_v1($1, $2, $3)
