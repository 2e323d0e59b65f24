select id as "id!", run as "run!", kind as "kind!" from pipeline.due_requests_v1($1)
