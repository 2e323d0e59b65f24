select passed, checked, suspects from pipeline.reconcile_v1($1, $2, $3, $4)
