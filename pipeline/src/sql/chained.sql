select chained from pipeline.runs where id = $1
