"""Pumps that do not exist: readings over MQTT that drift while you watch.

    python examples/sensors.py --table pumps.csv      a table of readings, for a server to test on
    python examples/sensors.py --devices 3            readings for ever, to the broker on this machine

Device 2 publishes {"id": "2-17", "x": [0.1, 1.2, -0.3, 0.8], "t": 1767225600.0} to pumps/2/reading, and some
seconds later what was the matter with the pump, {"id": "2-17", "y": "worn"}, to pumps/2/state. From reading
number --drift-after on, worn pumps look as blocked ones did, and the other way round.
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

COLUMNS = ("temperature", "vibration", "pressure", "current")  # in deviations from what is usual
STATES = ("blocked", "fine", "worn")
SHARES = (0.2, 0.5, 0.3)
CENTRES = np.array([[1.5, 0.0, 2.0, 1.5], [0.0, 0.0, 0.0, 0.0], [1.0, 2.0, -1.5, 0.0]])
NOISE, SPREAD = 0.7, 0.3  # of a reading, and of the devices

Send = Callable[[str, dict[str, object]], None]


def readings(device: int, seed: int, drift_after: int) -> Iterator[tuple[list[float], str]]:
    """What a pump's sensors say and what is the matter with it, reading by reading."""
    rng = np.random.default_rng([seed, device])
    own = rng.normal(0, SPREAD, len(COLUMNS))
    number = 0
    while True:
        state = int(rng.choice(len(STATES), p=SHARES))
        looks_like = {0: 2, 2: 0}.get(state, state) if number >= drift_after else state
        x = CENTRES[looks_like] + own + rng.normal(0, NOISE, len(COLUMNS))
        yield np.round(x, 3).tolist(), STATES[state]
        number += 1


def write_table(path: Path, rows: int, seed: int) -> None:
    """Readings of ten other pumps, before any drift."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*COLUMNS, "state"])
        pumps = [readings(1000 + device, seed, rows) for device in range(10)]
        for row in range(rows):
            x, state = next(pumps[row % 10])
            writer.writerow([*x, state])


def publish(args: argparse.Namespace, send: Send, now: Callable[[], float] = time.time) -> None:
    """One reading of each device after another, each label when it is due."""
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
                    f"reading {number}: from now on worn pumps look blocked, and blocked ones worn"
                )
            number += 1
        while labels and labels[0][0] <= now():
            _, of, device, state = heapq.heappop(labels)
            send(f"pumps/{device}/state", {"id": f"{device}-{of}", "y": state})
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
    parser.add_argument("--broker", default="localhost", help="where to publish")
    parser.add_argument("--port", type=int, default=1883)
    parser.add_argument("--devices", type=int, default=3)
    parser.add_argument("--rate", type=float, default=10.0, help="readings per second and device")
    parser.add_argument("--drift-after", type=int, default=1200, help="readings of a device")
    parser.add_argument("--label-delay", type=float, default=2.0, help="seconds from a reading")
    parser.add_argument("--count", type=int, default=10**9, help="readings of a device, then stop")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--table", type=Path, help="write a table of readings instead")
    parser.add_argument("--rows", type=int, default=2000, help="of the table")
    return parser.parse_args(words)


if __name__ == "__main__":
    main(arguments())
