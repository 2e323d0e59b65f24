update pipeline.runs set chained = $2 where id = $1
