select result::text as "result!", ids, outcomes::text[] as "outcomes?: Vec<String>",
       handed_over as "handed_over!"
from pipeline.start_runs_v1($1, $2, $3, $4, $5, $6, $7)
