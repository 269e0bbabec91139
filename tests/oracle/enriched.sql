-- Prints the number of rows in the table `flights`, those without a destination and without a plane, and a checksum of what
-- was looked up for them, as `enriched.py` does for the files they came from. Run with `psql -At`.
SELECT count(*) || ' ' || count(*) FILTER (WHERE dest_name IS NULL) || ' ' || count(*) FILTER (WHERE plane_model IS NULL)
    || ' ' || encode(sha256(convert_to(coalesce(string_agg(
    line || E'\n', '' ORDER BY carrier COLLATE "C", flight, origin COLLATE "C", flight_date), ''), 'UTF8')), 'hex')
FROM (
    SELECT
        carrier, flight, origin, flight_date, dest_name, plane_model,
        array_to_string(ARRAY[
            carrier, flight::text, origin, to_char(flight_date, 'YYYY-MM-DD'), airline, dest_name, plane_model,
            plane_built::text
        ], E'\t', '\N') AS line
    FROM flights
) AS lines;
