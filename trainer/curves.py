"""Curves behind a metric, computed from scores: ROC, precision over recall, calibration, and the average
precision of boxes as COCO defines it. The tests compare each with scikit-learn or pycocotools.
"""

from __future__ import annotations

from typing import Any

import numpy as np

POINTS = 201  # of a curve that is written
CLASSES = 100  # whose curves are written
BINS = 10
RECALLS = np.linspace(0.0, 1.0, 101)
IOUS = np.linspace(0.5, 0.95, 10)
_NEARLY_ONE = 1 - 1e-10


def _steps(score: np.ndarray, positive: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """True and false positives at each distinct score, the highest first."""
    order = np.argsort(-score, kind="stable")
    score, positive = score[order], positive[order]
    last = np.r_[np.nonzero(np.diff(score))[0], len(score) - 1]
    right = np.cumsum(positive, dtype=np.int64)[last]
    return right, 1 + last - right


def roc(score: np.ndarray, positive: np.ndarray) -> tuple[np.ndarray, np.ndarray, float] | None:
    """False and true positive rates, and the area below; `None` unless both kinds occur."""
    there = int(positive.sum())
    if there in (0, len(positive)):
        return None
    right, wrong = _steps(score, positive)
    x, y = np.r_[0, wrong] / (len(positive) - there), np.r_[0, right] / there
    return x, y, float((np.diff(x) * (y[1:] + y[:-1]) / 2).sum())


def precision_recall(score: np.ndarray, positive: np.ndarray) -> tuple[np.ndarray, np.ndarray, float] | None:
    """Recall, precision, and average precision; `None` where nothing is positive."""
    there = int(positive.sum())
    if there == 0:
        return None
    right, wrong = _steps(score, positive)
    recall, precision = right / there, right / (right + wrong)
    return np.r_[0, recall], np.r_[1, precision], float((np.diff(np.r_[0, recall]) * precision).sum())


def calibration(confidence: np.ndarray, right: np.ndarray) -> tuple[list[dict[str, float]], float]:
    """Bins of equal width that contain something, and the expected calibration error."""
    edges = np.linspace(0.0, 1.0, BINS + 1)
    at = np.searchsorted(edges[1:-1], confidence)
    bins, error = [], 0.0
    for i in np.unique(at):
        mine = at == i
        sure, share = float(confidence[mine].mean(dtype=np.float64)), float(right[mine].mean())
        error += float(mine.sum()) / len(at) * abs(sure - share)
        bins.append({"from": edges[i], "to": edges[i + 1], "count": int(mine.sum()), "confidence": sure, "accuracy": share})
    return bins, error


def of_classifier(found: np.ndarray, truth: np.ndarray, classes: list[str]) -> tuple[dict[str, Any], dict[str, float], list[dict[str, Any]]]:
    """What `curves.json` holds, the metrics over all classes, and those of each class (one against the rest)."""
    rocs, recalls, rows = [], [], []
    for i, name in enumerate(classes):
        score, positive = found[:, i], truth == i
        one, other = roc(score, positive), precision_recall(score, positive)
        rows.append({"roc_auc": one and one[2], "ap": other and other[2]})
        if i < CLASSES:
            rocs += [{"class": name, "auc": one[2]} | thinned(*one[:2])] if one else []
            recalls += [{"class": name, "ap": other[2]} | thinned(*other[:2])] if other else []
    bins, error = calibration(found.max(1), found.argmax(1) == truth)
    metrics = {"ece": error}
    for key in ("roc_auc", "ap"):
        known = [row[key] for row in rows if row[key] is not None]
        if known:
            metrics["mean_ap" if key == "ap" else key] = float(np.mean(known))
    return {"roc": rocs, "precision_recall": recalls, "calibration": {"ece": error, "bins": bins}}, metrics, rows


def thinned(x: np.ndarray, y: np.ndarray) -> dict[str, list[float]]:
    """The curve in few points, its ends among them."""
    at = np.unique(np.linspace(0, len(x) - 1, min(len(x), POINTS)).round().astype(int))
    return {"x": [round(float(v), 5) for v in x[at]], "y": [round(float(v), 5) for v in y[at]]}


def overlap(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """IoU of each of the boxes x, y, width, height with each."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    low = np.maximum(a[:, None, :2], b[None, :, :2])
    high = np.minimum(a[:, None, :2] + a[:, None, 2:], b[None, :, :2] + b[None, :, 2:])
    shared = np.prod((high - low).clip(0), -1)
    return shared / np.maximum(np.prod(a[:, 2:], -1)[:, None] + np.prod(b[:, 2:], -1)[None] - shared, 1e-9)


def matched(answers: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """For each overlap of `IOUS` and each answer, best first: the true box of its class that it takes, or -1.

    Boxes are rows that begin with class, x, y, width, height. A true box is taken once.
    """
    found = np.full((len(IOUS), len(answers)), -1)
    if len(truth) == 0:
        return found
    ious = overlap(answers[:, 1:5], truth[:, 1:5])
    ious[answers[:, 0][:, None] != truth[:, 0][None]] = -1.0
    free = np.ones((len(IOUS), len(truth)), bool)
    least = np.minimum(IOUS, _NEARLY_ONE)
    for i in np.nonzero(ious.max(1) >= least[0])[0]:
        fits = np.where(free, ious[i], -1.0)
        # Of equal ones COCO takes the last.
        best = len(truth) - 1 - fits[:, ::-1].argmax(1)
        hit = np.nonzero(fits[np.arange(len(IOUS)), best] >= least)[0]
        found[hit, i] = best[hit]
        free[hit, best[hit]] = False
    return found


def precision_at(confidence: np.ndarray, hits: np.ndarray, there: int) -> np.ndarray:
    """Precision at each of `RECALLS`, by COCO's rule, for each row of hits; its mean is the average precision."""
    order = np.argsort(-confidence, kind="mergesort")
    right = np.cumsum(hits[:, order], 1, dtype=np.float64)
    precision = right / np.arange(1, len(order) + 1)
    precision = np.maximum.accumulate(precision[:, ::-1], 1)[:, ::-1]
    found = np.zeros((len(hits), len(RECALLS)))
    for row, (recall, values) in enumerate(zip(right / there, precision)):
        at = np.searchsorted(recall, RECALLS, side="left")
        inside = at < len(values)
        found[row, inside] = values[at[inside]]
    return found
