-- Returns whether a request has its turn: advances leave its run alone. A turn lasts for two seconds. One that ends later
-- was given before the clock of the server was set back, and does not count.
create function pipeline.has_turn(p_turn_until timestamptz, p_now timestamptz) returns boolean
language sql immutable as $$
    select p_turn_until > p_now and p_turn_until <= p_now + interval '2 s'
$$;
