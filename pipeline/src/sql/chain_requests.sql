-- Returns the `chain` requests of these runs, which check their upstream runs.
select id as "id!", run as "run!", kind as "kind!" from pipeline.requests where run = any ($1) and kind = 'chain'
