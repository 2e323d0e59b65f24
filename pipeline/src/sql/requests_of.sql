-- The requests of these runs that are to look at the runs before them.
select id as "id!", run as "run!", kind as "kind!" from pipeline.requests where run = any ($1) and kind = 'chain'
