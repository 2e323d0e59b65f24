select ord as "ord!", id as "id!", found
from pipeline.start_v1($1, $2, $3, $4::text[]::json[], $5::text[]::json[], $6, $7, $8,
                       $9::text[]::json[], $10, $11, $12::text[]::json[])
