"""A portal's jobs: submitted, waited for, followed, and evaluated."""

from __future__ import annotations

import csv
import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple
from urllib.parse import quote
from uuid import UUID

import httpx

from . import _connection
from ._errors import PortalError, checked, succeeded
from ._files import Files
from .core import AuthenticatedClient
from .core.api.jobs import cancel_job, get_job, get_job_run, submit_job
from .core.api.runs import list_run_metrics
from .core.models import Job, JobRequest, Resources, Run
from .core.models.job_request_variables_type_0 import JobRequestVariablesType0
from .core.types import UNSET, Unset

_POLL_SECONDS = 1.0
_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}


class Point(NamedTuple):
    """A logged value of a metric."""

    step: int
    wall_time: float
    value: float


class Portal:
    """A portal, by arguments, by `LYCEUM_URL` and `LYCEUM_TOKEN`, or by a context of `lyceum login`."""

    def __init__(self, url: str | None = None, token: str | None = None, context: str | None = None) -> None:
        url, token = _connection.find(url, token, context)
        # A redirect would take the token elsewhere.
        self.client = AuthenticatedClient(
            base_url=url, token=token, timeout=httpx.Timeout(60, connect=10), follow_redirects=False
        )
        self.files = Files(self.client)

    def submit(
        self,
        command: Sequence[str] | None = None,
        *,
        script: str | None = None,
        name: str | None = None,
        gpus: int | None = None,
        gpu_model: str | None = None,
        cpus: int | None = None,
        memory: int | str | None = None,
        profile: str | None = None,
        group: str | None = None,
        environment: str | None = None,
        image: str | None = None,
        working_directory: str | None = None,
        time_limit: int | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> Job:
        """Submits a job: a command without a shell, or the text of a script.

        `memory` is a number of bytes or a text such as `32GiB`, `time_limit` a number of seconds. What is omitted is
        the portal's to choose.
        """
        sizes = (gpus, gpu_model, cpus, memory)
        resources: Resources | Unset = UNSET
        if any(size is not None for size in sizes):
            resources = Resources(
                gpus=UNSET if gpus is None else gpus,
                gpu_model=UNSET if gpu_model is None else gpu_model,
                cpus=UNSET if cpus is None else cpus,
                memory_bytes=UNSET if memory is None else _bytes(memory),
            )
        request = JobRequest(
            command=UNSET if command is None else list(command),
            script=UNSET if script is None else script,
            name=UNSET if name is None else name,
            resources=resources,
            profile=UNSET if profile is None else profile,
            group=UNSET if group is None else group,
            environment=UNSET if environment is None else environment,
            image=UNSET if image is None else image,
            working_directory=UNSET if working_directory is None else working_directory,
            time_limit_seconds=UNSET if time_limit is None else time_limit,
            variables=UNSET if variables is None else JobRequestVariablesType0.from_dict(dict(variables)),
        )
        return checked(submit_job.sync(client=self.client, body=request))

    def job(self, job: Job | UUID | str) -> Job:
        """The job as it is now."""
        return checked(get_job.sync(_id(job), client=self.client))

    def cancel(self, job: Job | UUID | str) -> Job:
        """Cancels a job."""
        return checked(cancel_job.sync(_id(job), client=self.client))

    def wait(self, job: Job | UUID | str, timeout: float | None = None) -> Job:
        """Waits until a job has ended, and returns it. After `timeout` seconds, `TimeoutError` is raised.

        A restart of the portal does not end the wait.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            try:
                now = self.job(job)
                if now.state == "ended":
                    return now
            except (httpx.TransportError, PortalError) as error:
                if not _may_pass(error):
                    raise
            left = _POLL_SECONDS if deadline is None else min(_POLL_SECONDS, deadline - time.monotonic())
            if left <= 0:
                raise TimeoutError(f"the job {_id(job)} has not ended within {timeout} s")
            time.sleep(left)

    def follow(self, job: Job | UUID | str) -> Iterator[str]:
        """The log of a job as it grows, from its beginning, until the job has ended. Later attempts are included."""
        last: str | None = None
        while True:
            headers = {"accept": "text/event-stream"} | ({"last-event-id": last} if last else {})
            timeout = httpx.Timeout(60, connect=10)
            try:
                http = self.client.get_httpx_client()
                path = f"/api/v1/jobs/{_id(job)}/log"
                with http.stream("GET", path, headers=headers, timeout=timeout) as answer:
                    for event, data, identity in _events(succeeded(answer)):
                        last = identity or last
                        if event == "log":
                            yield str(json.loads(data))
                        elif event == "end":
                            return
            except (httpx.TransportError, PortalError) as error:
                if not _may_pass(error):
                    raise
            time.sleep(_POLL_SECONDS)

    def results(self, run: Run | Job | UUID | str, *, timeout: float = 60) -> dict[str, list[Point]]:
        """Every point of every metric that a job or a run has logged, by the metric's tag. An id is that of a job.

        Of a job that has ended, all points are returned: until they are read, at most `timeout` seconds are waited.
        """
        found = run if isinstance(run, Run) else self._run_of(run, time.monotonic() + timeout)
        listed = checked(list_run_metrics.sync(found.id, client=self.client))
        if isinstance(listed, str) or listed.truncated:
            raise PortalError(200, "Too many metrics", "The run has more metrics than one answer lists.")
        # Several folders of event files are told apart by their name.
        several = len(listed.runs) > 1
        return {
            f"{part.run}/{tag.tag}" if several and part.run else tag.tag: self._points(found.id, part.run, tag.tag)
            for part in listed.runs
            for tag in part.tags
        }

    def _run_of(self, job: Job | UUID | str, deadline: float) -> Run:
        while True:
            ended = self.job(job).state == "ended"
            run = checked(get_job_run.sync(_id(job), client=self.client))
            if run.complete or not ended:
                return run
            if time.monotonic() > deadline:
                raise TimeoutError(f"the results of the job {_id(job)} were not read in time")
            time.sleep(_POLL_SECONDS)

    def _points(self, run: UUID, part: str, tag: str) -> list[Point]:
        path = f"/api/v1/runs/{run}/metrics/{quote(tag, safe='')}"
        answer = self.client.get_httpx_client().get(path, params={"run": part}, headers={"accept": "text/csv"})
        rows = csv.DictReader(succeeded(answer).text.splitlines())
        return [Point(int(row["step"]), float(row["wall_time"]), float(row["value"])) for row in rows]


def _id(job: Job | Run | UUID | str) -> UUID:
    return job.id if isinstance(job, (Job, Run)) else UUID(str(job))


def _bytes(size: int | str) -> int:
    """A size as the command line reads it: every unit is a power of 1024."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?\s*", str(size), re.IGNORECASE)
    if found is None:
        raise ValueError(f"{size!r} is not a size; write it like 512M, 4GiB or 1.5T")
    return int(float(found[1]) * 2 ** _UNITS[found[2].upper()])


def _may_pass(error: Exception) -> bool:
    """Whether asking again later may help: the portal restarts, or is overloaded."""
    return isinstance(error, httpx.TransportError) or (
        isinstance(error, PortalError) and (error.status >= 500 or error.status == 429)
    )


def _events(answer: httpx.Response) -> Iterator[tuple[str, str, str]]:
    """The events of a stream: name, data, id."""
    event, identity = "", ""
    data: list[str] = []
    for line in answer.iter_lines():
        if not line:
            if event:
                yield event, "\n".join(data), identity
            event, identity = "", ""
            data.clear()
            continue
        key, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if key == "event":
            event = value
        elif key == "data":
            data.append(value)
        elif key == "id":
            identity = value


@cache
def default() -> Portal:
    """The portal of the environment, which the functions of the package use."""
    return Portal()
