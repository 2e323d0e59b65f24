select stale, held, failed, classes as "classes: Vec<Option<String>>",
       messages as "messages: Vec<Option<String>>", kinds, keys as "keys: Vec<Option<String>>"
from pipeline.end_v1($1, $2, $3, $4, $5, $6, $7, $8)
