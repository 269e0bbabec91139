-- Prints the number of rows in the table `flights` and a checksum of all their columns, as `flights.py` does for the
-- file they came from. Run with `psql -At`, so that the two outputs can be compared as text.
--
-- A row's line: the columns in the table's order, a tab between them, null as \N, dates and times in ISO 8601 (UTC).
-- The checksum: SHA-256 of the lines in the order of the key, a line feed after each.
SELECT count(*) || ' ' || encode(sha256(convert_to(coalesce(string_agg(
    line || E'\n', '' ORDER BY carrier COLLATE "C", flight, origin COLLATE "C", flight_date), ''), 'UTF8')), 'hex')
FROM (
    SELECT
        carrier, flight, origin, flight_date,
        array_to_string(ARRAY[
            carrier,
            flight::text,
            origin,
            dest,
            to_char(flight_date, 'YYYY-MM-DD'),
            sched_dep_time::text,
            dep_time::text,
            dep_delay::text,
            sched_arr_time::text,
            arr_time::text,
            arr_delay::text,
            tailnum,
            air_time::text,
            distance::text,
            to_char(time_hour AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
        ], E'\t', '\N') AS line
    FROM flights
) AS lines;
