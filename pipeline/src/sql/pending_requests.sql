select stop, is_overdue as "is_overdue!", is_requested as "is_requested!" from pipeline.due_maintenance_v1($1)
