"""Computes requests of a service together: those that come at the same time share a batch, and a request
that is alone does not wait. What the last requests took is kept, for who looks.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import numpy as np

MOST = 8  # pictures of a batch
WAIT = 0.01  # seconds for others that are on their way
WINDOW = 60.0  # seconds of which the rate is told
KEPT = 10_000  # requests that are remembered

Run = Callable[[np.ndarray], np.ndarray]


class Batches:
    """One thread computes; `sizes` are the only sizes of a batch, or `None` for any."""

    def __init__(self, run: Run, sizes: tuple[int, ...] | None = None) -> None:
        self._run, self._sizes = run, sizes
        self._waiting: queue.SimpleQueue[tuple[np.ndarray, Future[tuple[np.ndarray, int]]]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._coming = 0  # requests that are not in a batch yet
        self._done: deque[tuple[float, float, int]] = deque(maxlen=KEPT)  # when, seconds, size of the batch
        self._counts = {"requests": 0, "failed": 0}
        threading.Thread(target=self._work, daemon=True).start()

    @contextlib.contextmanager
    def request(self) -> Iterator[Callable[[np.ndarray], tuple[np.ndarray, int]]]:
        """From the arrival of a request to its answer. Gives what computes one picture, which answers with how
        many were computed together; others wait a little until it is called."""
        begun, is_coming = time.monotonic(), True
        with self._lock:
            self._coming += 1
            self._counts["requests"] += 1

        def answer(picture: np.ndarray) -> tuple[np.ndarray, int]:
            nonlocal is_coming
            is_coming = False
            future: Future[tuple[np.ndarray, int]] = Future()
            self._waiting.put((picture, future))
            found, size = future.result()
            with self._lock:
                self._done.append((time.monotonic(), time.monotonic() - begun, size))
            return found, size

        try:
            yield answer
        except BaseException:
            with self._lock:
                self._counts["failed"] += 1
            raise
        finally:
            if is_coming:
                with self._lock:
                    self._coming -= 1

    def _work(self) -> None:
        while True:
            batch = [self._waiting.get()]
            until = time.monotonic() + WAIT
            while len(batch) < MOST:
                with self._lock:
                    others = self._coming - len(batch)
                left = until - time.monotonic()
                if others <= 0 or left <= 0:
                    break
                with contextlib.suppress(queue.Empty):
                    batch.append(self._waiting.get(timeout=left))
            with self._lock:
                self._coming -= len(batch)
            try:
                found = self._run(self._padded([picture for picture, _ in batch]))
            except Exception as error:  # whoever waits is told
                for _, future in batch:
                    future.set_exception(error)
                continue
            for (_, future), one in zip(batch, found):
                future.set_result((one, len(batch)))

    def _padded(self, pictures: list[np.ndarray]) -> np.ndarray:
        size = len(pictures)
        if self._sizes is not None:
            size = next(one for one in self._sizes if one >= size)
        batch = np.zeros((size, *pictures[0].shape), np.float32)
        batch[: len(pictures)] = pictures
        return batch

    def statistics(self) -> dict[str, Any]:
        """Requests since the start, and rate, latency and size of batches of the last minute."""
        now = time.monotonic()
        with self._lock:
            counts = dict(self._counts)
            recent = [one for one in self._done if now - one[0] <= WINDOW]
        about: dict[str, Any] = counts | {"window_seconds": WINDOW, "answered": len(recent)}
        if not recent:
            return about | {"per_second": 0.0, "latency_ms": None, "latency_95_ms": None, "batch": None}
        taken = np.array([seconds for _, seconds, _ in recent]) * 1000
        span = max(1.0, now - recent[0][0])
        return about | {
            "per_second": round(len(recent) / span, 3),
            "latency_ms": round(float(np.median(taken)), 3),
            "latency_95_ms": round(float(np.percentile(taken, 95)), 3),
            "batch": round(float(np.mean([size for *_, size in recent])), 3),
        }
