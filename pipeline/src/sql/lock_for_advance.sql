select held as "held!" from pipeline.lock_for_advance_v1($1)
