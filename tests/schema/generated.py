"""Asks a real portal with the client that openapi-generator makes of its document: who one is, a job from its
submission to its log, every list, and an error. Its models check each answer. The package is on the path as
`openapi_client`."""

import sys
import time

import openapi_client
from openapi_client import api
from openapi_client.models import JobRequest, Resources


def main():
    url, token = sys.argv[1:]
    with openapi_client.ApiClient(openapi_client.Configuration(host=url, access_token=token)) as client:
        me = api.MeApi(client).get_me()
        assert me.name == "chief" and me.role == "admin", me

        jobs = api.JobsApi(client)
        small = Resources(gpus=0, cpus=1, memory_bytes=256 << 20)
        job = jobs.submit_job(job_request=JobRequest(name="generated", command=["echo", "by the client"], resources=small))
        deadline = time.monotonic() + 60
        while jobs.get_job(id=job.id).state != "ended":
            assert time.monotonic() < deadline, jobs.get_job(id=job.id)
            time.sleep(0.2)
        assert "by the client" in jobs.get_job_log(id=job.id)
        assert jobs.list_jobs(search="generated").items[0].id == job.id

        lists = {
            api.SessionsApi: "sessions", api.RunsApi: "runs", api.DatasetsApi: "datasets", api.ModelsApi: "models",
            api.SweepsApi: "sweeps", api.UsersApi: "users", api.GroupsApi: "groups", api.TokensApi: "tokens",
            api.AuditApi: "audit_entries", api.AnnouncementsApi: "announcements", api.PresetsApi: "presets",
        }
        for kind, name in lists.items():
            assert isinstance(getattr(kind(client), f"list_{name}")().items, list), name
        assert {user.name for user in api.UsersApi(client).list_users().items} >= {"chief", "somebody"}

        try:
            api.UsersApi(client).get_user(name="nobody-here")
        except openapi_client.exceptions.NotFoundException as error:
            assert error.data.status == 404 and error.data.title == "Not found", error.data
        else:
            raise AssertionError("there is no such user")


if __name__ == "__main__":
    main()
