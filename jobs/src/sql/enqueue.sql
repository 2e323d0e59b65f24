select ord, id as "id!", is_new as "is_new!", has_other_data as "has_other_data!"
from pipeline.enqueue_jobs_v1($1, $2, $3, $4, $5, $6::text[]::json[], $7::text[]::jsonb[], $8, $9, $10, $11)
