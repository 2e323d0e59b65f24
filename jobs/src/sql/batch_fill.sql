select pipeline.fill_batch_v1($1, $2, $3)
