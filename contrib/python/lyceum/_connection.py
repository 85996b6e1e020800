"""Where the portal is and the token for it: arguments, variables, or the contexts of `lyceum login`."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import NamedTuple


class NotConfigured(Exception):
    """No address or no token is known."""


class Connection(NamedTuple):
    url: str
    token: str


def contexts_file() -> Path:
    """The file in which `lyceum login` keeps its contexts."""
    folder = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(folder) / "lyceum" / "contexts.toml"


def find(url: str | None, token: str | None, context: str | None) -> Connection:
    """The portal to use. An argument wins over a variable, a variable over the context in use."""
    if context is None:
        url = url or os.environ.get("LYCEUM_URL") or None
        token = token or os.environ.get("LYCEUM_TOKEN") or None
        if url and token:
            return Connection(_base(url), token)
        if url or token:
            missing = "LYCEUM_TOKEN" if url else "LYCEUM_URL"
            raise NotConfigured(f"{missing} is not set. Set it, or sign in with `lyceum login URL`.")
    elif url or token:
        raise NotConfigured("Give either a context, or an address and a token.")
    return _of_context(context)


def _of_context(name: str | None) -> Connection:
    file = contexts_file()
    try:
        if file.stat().st_mode & 0o077:
            raise NotConfigured(f"Other users can access {file}. Run `chmod 600` on it.")
        known = tomllib.loads(file.read_text())
    except FileNotFoundError:
        known = {}
    name = name or known.get("current") or ""
    chosen = known.get("contexts", {}).get(name)
    if chosen is None:
        what = f"There is no context {name!r}." if name else "No portal is known."
        raise NotConfigured(f"{what} Sign in with `lyceum login URL`, or set LYCEUM_URL and LYCEUM_TOKEN.")
    return Connection(_base(str(chosen["url"])), str(chosen["token"]))


def _base(url: str) -> str:
    """The portal's address; that of its API is meant as the same."""
    return url.rstrip("/").removesuffix("/api/v1")
