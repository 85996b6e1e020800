"""Submits, follows and evaluates jobs on a Lyceum portal.

`submit`, `wait`, `follow`, `results`, `cancel` and `files` use the portal of the environment; `Portal` names another
one. `lyceum.core` is the generated client of the whole API.
"""

from typing import TYPE_CHECKING, Any

from ._connection import NotConfigured
from ._errors import PortalError
from ._files import Files
from ._portal import Point, Portal, default

__all__ = ["Files", "NotConfigured", "Point", "Portal", "PortalError", "default"]

if TYPE_CHECKING:
    _default: Portal
    submit = _default.submit
    wait = _default.wait
    follow = _default.follow
    results = _default.results
    cancel = _default.cancel
    files = _default.files


def __getattr__(name: str) -> Any:
    """The methods of the default portal, which is looked for at the first use."""
    if name in ("submit", "wait", "follow", "results", "cancel", "files"):
        return getattr(default(), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
