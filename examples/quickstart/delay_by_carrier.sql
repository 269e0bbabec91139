-- Which airline kept its passengers waiting? Delays are in minutes, the worst in hours and minutes.
SELECT
    carrier,
    count(*)                                                    AS flights,
    count(*) FILTER (WHERE dep_time IS NULL)                    AS cancelled,
    round(avg(dep_delay), 1)                                    AS "avg departure delay",
    round(avg(arr_delay), 1)                                    AS "avg arrival delay",
    to_char(make_interval(mins => max(dep_delay)), 'HH24:MI')   AS "worst departure"
FROM flights
GROUP BY carrier
ORDER BY flights DESC, carrier;
