"""Simulated pumps that publish sensor readings over MQTT; the readings drift after a while.

    python examples/sensors.py --table pumps.csv    write a table of readings, the server's test set
    python examples/sensors.py --devices 3          publish readings to the broker on this machine

Device 2 publishes {"id": "2-17", "x": [0.1, 1.2, -0.3, 0.8], "t": 1767225600.0} to pumps/2/reading.
Some seconds later it publishes the label, {"id": "2-17", "y": "worn"}, to pumps/2/state. From
reading number --drift-after on, the readings of worn and blocked pumps are swapped.
"""

from __future__ import annotations

import argparse
import csv
import heapq
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

# Values are in standard deviations from the normal value.
COLUMNS = ("temperature", "vibration", "pressure", "current")
STATES = ("blocked", "fine", "worn")
SHARES = (0.2, 0.5, 0.3)
CENTRES = np.array([[1.5, 0.0, 2.0, 1.5], [0.0, 0.0, 0.0, 0.0], [1.0, 2.0, -1.5, 0.0]])
NOISE, SPREAD = 0.7, 0.3  # standard deviation per reading, and between devices

Send = Callable[[str, dict[str, object]], None]


def readings(device: int, seed: int, drift_after: int) -> Iterator[tuple[list[float], str]]:
    """Yield the sensor values and the label of each reading of a pump."""
    rng = np.random.default_rng([seed, device])
    own = rng.normal(0, SPREAD, len(COLUMNS))
    number = 0
    while True:
        state = int(rng.choice(len(STATES), p=SHARES))
        shown = {0: 2, 2: 0}.get(state, state) if number >= drift_after else state
        x = CENTRES[shown] + own + rng.normal(0, NOISE, len(COLUMNS))
        yield np.round(x, 3).tolist(), STATES[state]
        number += 1


def write_table(path: Path, rows: int, seed: int) -> None:
    """Write readings of ten other pumps, without drift."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*COLUMNS, "state"])
        pumps = [readings(1000 + device, seed, rows) for device in range(10)]
        for row in range(rows):
            x, state = next(pumps[row % 10])
            writer.writerow([*x, state])


def publish(args: argparse.Namespace, send: Send, now: Callable[[], float] = time.time) -> None:
    """Publish one reading per device at a time, and each label after its delay."""
    pumps = [readings(device, args.seed, args.drift_after) for device in range(args.devices)]
    labels: list[tuple[float, int, int, str]] = []  # due, number, device, state
    number, begin = 0, now()
    while number < args.count or labels:
        if number < args.count and begin + number / args.rate <= now():
            for device, pump in enumerate(pumps):
                x, state = next(pump)
                send(f"pumps/{device}/reading", {"id": f"{device}-{number}", "x": x, "t": now()})
                heapq.heappush(labels, (now() + args.label_delay, number, device, state))
            if number == args.drift_after:
                print(
                    f"reading {number}: readings of worn and blocked pumps are swapped from now on"
                )
            number += 1
        while labels and labels[0][0] <= now():
            _, labelled, device, state = heapq.heappop(labels)
            send(f"pumps/{device}/state", {"id": f"{device}-{labelled}", "y": state})
        time.sleep(min(0.2 / args.rate, 0.01))


def main(args: argparse.Namespace) -> None:
    if args.table is not None:
        write_table(args.table, args.rows, args.seed)
        return
    from paho.mqtt.client import Client
    from paho.mqtt.enums import CallbackAPIVersion

    client = Client(CallbackAPIVersion.VERSION2)
    client.connect(args.broker, args.port)
    client.loop_start()

    def send(topic: str, message: dict[str, object]) -> None:
        client.publish(topic, json.dumps(message), qos=1).wait_for_publish(60)

    try:
        publish(args, send)
    except KeyboardInterrupt:
        print("stopped")
    finally:
        client.disconnect()
        client.loop_stop()


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--broker", default="localhost", help="host of the MQTT broker")
    parser.add_argument("--port", type=int, default=1883)
    parser.add_argument("--devices", type=int, default=3)
    parser.add_argument("--rate", type=float, default=10.0, help="readings per second and device")
    parser.add_argument(
        "--drift-after", type=int, default=1200, help="readings per device before the drift"
    )
    parser.add_argument(
        "--label-delay", type=float, default=2.0, help="seconds between a reading and its label"
    )
    parser.add_argument("--count", type=int, default=10**9, help="readings per device, then stop")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--table", type=Path, help="write a CSV table of readings instead of publishing"
    )
    parser.add_argument("--rows", type=int, default=2000, help="rows of the table")
    return parser.parse_args(words)


if __name__ == "__main__":
    main(arguments())
