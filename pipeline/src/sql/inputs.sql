select id as "id!", params, options, shape, takes,
       outputs as "outputs: Vec<Option<String>>", failed as "failed: Vec<Option<String>>",
       classes as "classes: Vec<Option<String>>", messages as "messages: Vec<Option<String>>",
       cancelled, key, round, size, put_off
from pipeline.load_inputs_v1($1, $2, $3)
