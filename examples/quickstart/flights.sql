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
    PRIMARY KEY (carrier, flight, origin, flight_date)
);
