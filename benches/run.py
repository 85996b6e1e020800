#!/usr/bin/env python3
"""Measures Lyceum beside what it is compared with, in one run, and prints a table.

    benches/run.py                 every row
    benches/run.py http websocket  some of them
    benches/run.py --list

benches/README.md says what it needs and how to read the figures."""

import argparse
import json
import pathlib
import statistics
import sys
import traceback

import curves  # noqa: F401 (it enters its rows, as datasets, directory and life do)
import datasets  # noqa: F401
import directory  # noqa: F401
import growth  # noqa: F401
import life  # noqa: F401
import rows
import slurm  # noqa: F401
import training  # noqa: F401
from stand import Stand

ROOT = pathlib.Path(__file__).resolve().parent.parent


def newest_load():
    built = [path for path in (ROOT / "target/dist/deps").glob("load-*") if not path.suffix]
    found = sorted(built, key=lambda path: path.stat().st_mtime)
    return found[-1] if found else ROOT / "target/dist/load"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", nargs="*", metavar="ROW")
    parser.add_argument("--list", action="store_true", help="the names of the rows")
    parser.add_argument("--binary", default=ROOT / "target/dist/lyceum")
    parser.add_argument("--load", default=None, help="the program of benches/load.rs")
    parser.add_argument("--tools", default="/var/tmp/lyceum-bench-tools", help="where JupyterHub and CHP are installed")
    parser.add_argument("--keras", default="python3", help="a Python with Keras and JAX, as the portal's default environment")
    parser.add_argument("--work", default="/var/tmp/lyceum-bench", help="a directory to make, and to remove again")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3, help="of load, each time")
    parser.add_argument("--minutes", type=float, default=5, help="of the soak")
    parser.add_argument("--postgres", metavar="URL", help="a server for growth and waiting, whose user may make databases")
    parser.add_argument("--sizes", default="1000,10000,100000", help="of the histories of growth",
                        type=lambda text: [int(size) for size in text.split(",")])
    parser.add_argument("--waiting", default="0,250,1000,2000", help="how many jobs wait",
                        type=lambda text: [int(count) for count in text.split(",")])
    parser.add_argument("--out", help="append the rows to this file as JSON lines")
    options = parser.parse_args()
    options.load = options.load or newest_load()
    if options.list:
        print("\n".join(rows.ROWS))
        return 0
    print("| what | figure | against | ratio |\n|---|---|---|---|", flush=True)
    failed = 0
    for name in options.rows or rows.ROWS:
        stand = Stand(options)
        try:
            for row in rows.ROWS[name](stand, options):
                print(f"| {row['what']} | {row['figure']} | {row['against']} | {row['ratio']} |", flush=True)
                if options.out:
                    with open(options.out, "a", encoding="utf-8") as out:
                        out.write(json.dumps(row) + "\n")
        except Exception:
            failed += 1
            print(f"row {name} failed:", file=sys.stderr)
            traceback.print_exc()
        finally:
            stand.remove()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
