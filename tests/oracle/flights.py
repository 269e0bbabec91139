#!/usr/bin/env python3
"""Prints how many flights a file holds and a checksum of them, as `flights.sql` does for the table `flights`.

This is a second opinion: it shares no code with what it checks, and needs nothing but Python's standard library.

    flights.py [FILE.csv.gz ...]     without files: January, from examples/data

A row's line: the columns in the table's order, a tab between them, null as \\N, dates and times in ISO 8601 (UTC).
The checksum: SHA-256 of the lines in the order of the key, a line feed after each.
"""

import csv
import datetime
import gzip
import hashlib
import pathlib
import sys

JANUARY = pathlib.Path(__file__).resolve().parents[2] / "examples" / "data" / "flights-2013-01.csv.gz"
NULL = "\\N"


def number(field):
    return NULL if field == "NA" else str(int(field))


def text(field):
    return NULL if field == "NA" else field


def instant(field):
    time = datetime.datetime.strptime(field, "%Y-%m-%dT%H:%M:%SZ")
    return time.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def columns(flight):
    """Returns the columns of one flight in the order of the table."""
    date = datetime.date(int(flight["year"]), int(flight["month"]), int(flight["day"]))
    return [
        text(flight["carrier"]),
        number(flight["flight"]),
        text(flight["origin"]),
        text(flight["dest"]),
        date.isoformat(),
        number(flight["sched_dep_time"]),
        number(flight["dep_time"]),
        number(flight["dep_delay"]),
        number(flight["sched_arr_time"]),
        number(flight["arr_time"]),
        number(flight["arr_delay"]),
        text(flight["tailnum"]),
        number(flight["air_time"]),
        number(flight["distance"]),
        instant(flight["time_hour"]),
    ]


def read(paths):
    """Returns the line of each flight under its key: carrier, flight, origin, date."""
    lines = {}
    for path in paths:
        with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
            for flight in csv.DictReader(file):
                row = columns(flight)
                key = (row[0].encode(), int(row[1]), row[2].encode(), row[4])
                if key in lines:
                    sys.exit(f"{path}: a second flight {row[0]}-{row[1]}-{row[2]}-{row[4]}")
                lines[key] = "\t".join(row) + "\n"
    return lines


def main():
    lines = read(sys.argv[1:] or [JANUARY])
    checksum = hashlib.sha256()
    for _, line in sorted(lines.items()):
        checksum.update(line.encode())
    print(len(lines), checksum.hexdigest())


if __name__ == "__main__":
    main()
