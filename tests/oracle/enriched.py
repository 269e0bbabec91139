#!/usr/bin/env python3
"""Prints how many flights a file holds, how many of them find no destination and no plane, and a checksum of what is looked up
for each, as `enriched.sql` does for the table `flights`.

This is a second opinion: it shares no code with what it checks, and needs nothing but Python's standard library.

A flight's line: carrier, flight, origin, date, airline, name of the destination, model and year of the plane, a tab between
them, null as \\N. The checksum: SHA-256 of the lines in the order of the key, a line feed after each.
"""

import csv
import datetime
import gzip
import hashlib
import pathlib

DATA = pathlib.Path(__file__).resolve().parents[2] / "examples" / "data"
NULL = "\\N"


def rows(name):
    with gzip.open(DATA / name, "rt", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def text(field):
    return NULL if field == "NA" else field


def main():
    airlines = {row["carrier"]: row["name"] for row in rows("airlines.csv.gz")}
    airports = {row["faa"]: row["name"] for row in rows("airports.csv.gz")}
    planes = {row["tailnum"]: (row["model"], text(row["year"])) for row in rows("planes.csv.gz")}
    lines, no_destination, no_plane = {}, 0, 0
    for flight in rows("flights-2013-01.csv.gz"):
        date = datetime.date(int(flight["year"]), int(flight["month"]), int(flight["day"])).isoformat()
        key = (flight["carrier"].encode(), int(flight["flight"]), flight["origin"].encode(), date)
        destination = airports.get(flight["dest"])
        plane = planes.get(flight["tailnum"])
        no_destination += destination is None
        no_plane += plane is None
        found = [airlines.get(flight["carrier"], NULL), destination or NULL, *(plane or (NULL, NULL))]
        lines[key] = "\t".join([flight["carrier"], str(key[1]), flight["origin"], date, *found]) + "\n"
    checksum = hashlib.sha256()
    for _, line in sorted(lines.items()):
        checksum.update(line.encode())
    print(len(lines), no_destination, no_plane, checksum.hexdigest())


if __name__ == "__main__":
    main()
