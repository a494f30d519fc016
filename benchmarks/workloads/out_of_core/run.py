"""Cholesky factorizations that do not fit into the memory of their device: traffic and time, by order and eviction.

``python benchmarks/workloads/out_of_core/run.py`` needs no GPU: the device is simulated, with a link of 50 GB/s to the
host. A row is an order of the same tasks. A column is the memory of the device, as a part of the data. An entry is the
traffic between host and device in multiples of the data, and the time. Tiles are in host memory at first.

``lru`` evicts what was used longest ago. ``plan`` evicts what a plan of the program says is needed last. The bound is
the larger one of the work and of the time on the busier direction of the link.

``--tiles 141`` has 10,011 tiles and 477,191 tasks. ``--on cuda`` runs on a GPU, whose work and bus are measured before.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import on_gpu
from orders import ORDERS, TILE, measured, work_s

PARTS = (1.05, 0.5, 0.25)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiles", type=int, default=24, help="rows and columns of tiles")
    parser.add_argument("--parts", default=",".join(map(str, PARTS)), help="memory of the device over the data")
    parser.add_argument("--orders", default=",".join(ORDERS))
    parser.add_argument("--on", choices=("simulated", "cuda"), default="simulated")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    n, rows = options.tiles, []
    if options.on == "cuda":
        matrix = on_gpu.Matrix(n, TILE)
        print(f"{n} x {n} tiles of 32 MiB, one GPU, with the way there and back")
    else:
        print(f"{n} x {n} tiles of 32 MiB, one simulated device; the work alone takes {work_s(n) * 1e3:,.0f} ms")
    print(f"{'order':<20}{'memory':>7}{'':>6}{'traffic':>9}{'in':>7}{'out':>7}{'ms':>9}{'of the bound':>14}")
    for order in options.orders.split(","):
        for part in map(float, options.parts.split(",")):
            found = on_gpu.measured(matrix, order, part) if options.on == "cuda" else measured(order, n, part)
            for rule, row in zip(("lru", "plan"), found, strict=True):
                rows.append({"order": order, "memory": part, "rule": rule, **row._asdict()})
                print(
                    f"{order:<20}{part:>6.2f}x{rule:>6}{row.inward + row.outward:>9.2f}{row.inward:>7.2f}"
                    f"{row.outward:>7.2f}{row.seconds * 1e3:>9,.0f}{row.bound_s / row.seconds:>14.0%}"
                )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
