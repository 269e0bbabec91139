-- Tables to look up.
CREATE TABLE IF NOT EXISTS airlines (carrier text PRIMARY KEY, name text NOT NULL);
CREATE TABLE IF NOT EXISTS airports (
    faa text PRIMARY KEY, name text NOT NULL, lat numeric NOT NULL, lon numeric NOT NULL, alt int NOT NULL, tz int NOT NULL,
    dst text NOT NULL, tzone text
);
CREATE TABLE IF NOT EXISTS planes (
    tailnum text PRIMARY KEY, year int, type text NOT NULL, manufacturer text NOT NULL, model text NOT NULL,
    engines int NOT NULL, seats int NOT NULL, speed int, engine text NOT NULL
);

-- The target of the quickstart: one row for each flight that left New York City.
CREATE TABLE IF NOT EXISTS flights (
    carrier        text NOT NULL,
    flight         int  NOT NULL,
    origin         text NOT NULL,
    dest           text NOT NULL,
    flight_date    date NOT NULL,
    sched_dep_time int  NOT NULL,      -- HHMM, local: 517 is 05:17
    dep_time       int,                -- null: the flight was cancelled
    dep_delay      int,                -- minutes, negative is early
    sched_arr_time int  NOT NULL,
    arr_time       int,
    arr_delay      int,
    tailnum        text,
    air_time       int,                -- minutes
    distance       int  NOT NULL,      -- miles
    time_hour      timestamptz NOT NULL, -- the full hour of the scheduled departure
    airline        text,                 -- these come from the tables above; null where nothing matches
    dest_name      text,
    plane_model    text,
    plane_built    int,
    PRIMARY KEY (carrier, flight, origin, flight_date)
);
