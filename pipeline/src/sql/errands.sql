select requested, overdue, stop from pipeline.errands_v1($1)
