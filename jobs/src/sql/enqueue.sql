select ord, id as "id!", fresh as "fresh!"
from pipeline.enqueue_jobs_v1($1, $2, $3, $4, $5, $6::text[]::json[], $7::text[]::jsonb[], $8, $9, $10, $11)
