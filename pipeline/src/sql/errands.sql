select stop, is_overdue as "is_overdue!", is_requested as "is_requested!" from pipeline.errands_v1($1)
