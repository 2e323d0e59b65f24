select line as "line!", id as "id!", token as "token!", queue as "queue!", kind as "kind!",
       attempt as "attempt!", attempts as "attempts!", priority as "priority!", run_at as "run_at!",
       waited_ms as "waited_ms!", lease_ms as "lease_ms!", batch, args as "args!", input, options
from pipeline.claim_v1($1, $2, $3, $4, $5)
