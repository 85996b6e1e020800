"""Checks of our own beside schemathesis's: the document says of every operation what any error
looks like, so that its check of status codes could not fail. Here a success must be one that
the operation names, and an error a problem document that agrees with its status line."""

import schemathesis


@schemathesis.check
def documented_status(_context, response, case):
    status = response.status_code
    if case.method.upper() == "TRACE":
        # The accept loop refuses it in a word, before any route.
        assert status == 405
        return
    if status < 400:
        named = case.operation.definition.raw["responses"]
        assert str(status) in named, f"{status} is not among {sorted(named)}"
        return
    kind = response.headers.get("content-type", [""])[0]
    assert kind.startswith("application/problem+json"), f"{status} as {kind!r}"
    if case.method.upper() != "HEAD":
        problem = response.json()
        assert problem["status"] == status and problem["type"].startswith("/problems/"), problem


@schemathesis.check
def no_fault(_context, response, case):
    status = response.status_code
    # There is no helper that could reach files: the portal of this test runs as one account,
    # whose home may be anywhere, and says so with 503.
    files = "/files" in case.operation.path or "/me/environments" in case.operation.path
    assert status < 500 or (status == 503 and files), f"{status} {response.text[:300]}"
