"""Answers of the portal that report an error, raised as an exception."""

from __future__ import annotations

from typing import TypeVar

import httpx

from .core.models import Problem
from .core.types import Unset

T = TypeVar("T")


class PortalError(Exception):
    """The portal rejected a request: `status` is the HTTP status, `fields` has a sentence for each invalid field."""

    def __init__(self, status: int, title: str, detail: str, fields: dict[str, str] | None = None) -> None:
        self.status, self.title, self.detail, self.fields = status, title, detail, fields or {}
        super().__init__(f"{title} ({status}): {detail}")


def checked(answer: T | Problem | None) -> T:
    """The answer itself, unless it is a problem document or nothing that the API describes."""
    if isinstance(answer, Problem):
        errors = [] if isinstance(answer.errors, Unset) else answer.errors
        raise PortalError(answer.status, answer.title, answer.detail, {one.field: one.message for one in errors})
    if answer is None:
        raise PortalError(0, "Unexpected response", "This is not an answer of the API; check the portal's address.")
    return answer


def succeeded(answer: httpx.Response) -> httpx.Response:
    """The answer itself, unless it has the status of an error."""
    if answer.is_success:
        return answer
    answer.read()
    try:
        checked(Problem.from_dict(answer.json()))
    except (ValueError, KeyError, TypeError):
        pass
    raise PortalError(answer.status_code, answer.reason_phrase, answer.text[:200])
