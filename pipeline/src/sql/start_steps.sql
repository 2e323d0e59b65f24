select pipeline.insert_steps_v1($1, $2, $3, null, null)
