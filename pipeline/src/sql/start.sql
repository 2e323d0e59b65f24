select ord as "ord!", id as "id!", outcome as "outcome!"
from pipeline.start_v1($1, $2, $3, $4, $5, $6::text[]::json[], $7::text[]::json[], $8, $9, $10,
                       $11::text[]::json[], $12, $13, $14::text[]::json[])
