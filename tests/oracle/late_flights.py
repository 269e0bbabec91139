#!/usr/bin/env python3
"""Prints how many flights are late in their partition, and with one watermark for all, as `examples/late_flights.rs` does.

This is a second opinion: it shares no code with what it checks, needs nothing but Python's standard library, and looks at
the file alone: which partition Kafka puts a key into is computed here once more.

    late_flights.py [FILE.csv.gz]     without a file: January, from examples/data
"""

import csv
import datetime
import gzip
import pathlib
import sys

JANUARY = pathlib.Path(__file__).resolve().parents[2] / "examples" / "data" / "flights-2013-01.csv.gz"
PARTITIONS = 8
BOUND = datetime.timedelta(hours=1)
MINUTE = datetime.timedelta(minutes=1)


def murmur2(data):
    """MurmurHash2 of 32 bits, with the seed that Kafka's clients agree on."""
    keep = 0xFFFFFFFF
    factor = 0x5BD1E995
    value = 0x9747B28C ^ len(data)
    whole = len(data) // 4 * 4
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * factor & keep
        word = (word ^ word >> 24) * factor & keep
        value = value * factor & keep ^ word
    if data[whole:]:
        value = (value ^ int.from_bytes(data[whole:], "little")) * factor & keep
    value = (value ^ value >> 13) * factor & keep
    return value ^ value >> 15


def partition(flight):
    key = f"{flight['origin']}-{flight['carrier']}".encode()
    return (murmur2(key) & 0x7FFFFFFF) % PARTITIONS


def times(flight):
    """Returns when a flight is reported, and its event time: when it should have landed.

    One that was cancelled or diverted is reported at its scheduled departure and has no event time.
    """
    hour = datetime.datetime.strptime(flight["time_hour"], "%Y-%m-%dT%H:%M:%SZ")
    departure = hour + int(flight["minute"]) * MINUTE
    if flight["arr_delay"] == "NA":
        return departure, None
    landed = departure + (int(flight["dep_delay"]) + int(flight["air_time"])) * MINUTE
    return landed, landed - int(flight["arr_delay"]) * MINUTE


def late(flights):
    """Counts those whose time is behind the newest time of the flights reported before them by more than the bound."""
    newest, count = None, 0
    for reported, planned in flights:
        time = reported if planned is None else planned
        if newest is not None and time < newest - BOUND:
            count += 1
        newest = time if newest is None else max(newest, time)
    return count


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else JANUARY
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        flights = [(partition(flight), times(flight)) for flight in csv.DictReader(file)]
    # Stable: those reported in the same minute stay in the order of the file.
    flights.sort(key=lambda flight: flight[1][0])

    total = 0
    for number in range(PARTITIONS):
        of_partition = [time for place, time in flights if place == number]
        count = late(of_partition)
        total += count
        print(f"partition {number}: {len(of_partition)} flights, {count} late")
    mixed = [time for _, time in flights]
    print(f"a watermark for each partition: {total} of {len(flights)} flights are late")
    print(f"one watermark for all of them: {late(mixed)} of {len(flights)} flights are late")
    print(f"without a time to land: {sum(planned is None for _, planned in mixed)}")


if __name__ == "__main__":
    main()
