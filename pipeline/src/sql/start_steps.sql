select pipeline.start_steps_v1($1, $2, $3::text[]::json[])
