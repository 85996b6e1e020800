"""Faults that tests inject, so that each check is seen to find what it is for: `link-wrong:0:1`, `bits:2`."""

from __future__ import annotations

# The name of each, and how many devices it names. A collective is named by its word.
NAMES = {"host-wrong": 1, "link-wrong": 2, "link-slow": 2, "matmul-slow": 1, "bits": 1, "unsteady": 1, "memory": 1}
COLLECTIVE = "collective"


class Faults:
    def __init__(self, all: set[tuple]) -> None:
        self.all = all

    def has(self, name: str, *where: int | str) -> bool:
        return (name, *where) in self.all


def parse(words: list[str]) -> Faults:
    """Reads `NAME:DEVICE[:DEVICE]`; ValueError for what is not a fault."""
    found = set()
    for word in words:
        name, *where = word.split(":")
        if name == COLLECTIVE and len(where) == 1:
            found.add((name, where[0]))
        elif NAMES.get(name) == len(where) and all(number.isdigit() for number in where):
            found.add((name, *map(int, where)))
        else:
            raise ValueError(f"{word!r} is not a fault")
    return Faults(found)
