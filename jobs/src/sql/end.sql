select stale, failed, xid from pipeline.end_v1($1, $2, $3, $4, $5, $6, $7, $8)
