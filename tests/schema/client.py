"""Drives a real portal with the client that openapi-python-client generates from its document: sessions, jobs, runs,
datasets, models, quotas, users, groups and files, and the errors. The client's own package is on the path as
`lyceum_api`; the portal was seeded by nothing."""

import io
import sys
import time

from lyceum_api import AuthenticatedClient
from lyceum_api.api.datasets import create_dataset, get_dataset, get_dataset_mean, list_dataset_items
from lyceum_api.api.files import (
    append_upload, create_folder, delete_file, download_file, finish_upload, list_files, start_upload,
)
from lyceum_api.api.groups import add_group_member, create_group, get_group, list_group_members
from lyceum_api.api.jobs import cancel_job, get_job, get_job_log, get_job_run, list_jobs, submit_job
from lyceum_api.api.me import get_me
from lyceum_api.api.models import get_model, list_models, train_model
from lyceum_api.api.quotas import change_group_quota, change_user_quota, get_group_quota, get_user_quota
from lyceum_api.api.runs import get_results, get_run, get_run_curve, list_run_metrics
from lyceum_api.api.sessions import get_session, list_sessions, start_session, stop_session
from lyceum_api.api.users import create_user, get_user, list_users, update_user
from lyceum_api.models import (
    GroupQuotaChange, GroupRequest, JobRequest, NewDataset, NewModel, NewPath, NewUserRequest, Problem, QuotaChange,
    QuotaFields, Resources, StartRequest, UploadRequest, UserChangeRequest,
)
from lyceum_api.types import File

SCRIPT = """#!/bin/sh
mkdir -p "$LYCEUM_LOG_DIRECTORY"
for step in 1 2 3; do echo "{\\"step\\": $step, \\"loss\\": 0.$step}"; done > "$LYCEUM_LOG_DIRECTORY/metrics.jsonl"
echo written by the client
exit 3
"""
SMALL = Resources(gpus=0, cpus=1, memory_bytes=256 << 20)


def until(ask, fits, seconds=60):
    """Asks until an answer fits, and returns it."""
    deadline = time.monotonic() + seconds
    while True:
        answer = ask()
        if not isinstance(answer, Problem) and fits(answer):
            return answer
        assert time.monotonic() < deadline, answer
        time.sleep(0.2)


def people(chief):
    made = create_user.sync(client=chief, body=NewUserRequest(name="grace", password="grace-has-a-password"))
    assert made.name == "grace" and made.role == "user" and made.last_seen_at is None, made
    changed = update_user.sync("grace", client=chief, body=UserChangeRequest(display_name="Grace Hopper"))
    assert get_user.sync("grace", client=chief).display_name == changed.display_name == "Grace Hopper"
    assert {user.name for user in list_users.sync(client=chief).items} >= {"grace", "chief"}
    group = create_group.sync(client=chief, body=GroupRequest(name="compilers"))
    assert get_group.sync("compilers", client=chief).id == group.id
    add_group_member.sync_detailed("compilers", "grace", client=chief)
    assert [member.name for member in list_group_members.sync("compilers", client=chief).items] == ["grace"]

    change_user_quota.sync("grace", client=chief, body=QuotaChange(gpus=2, note="a course"))
    quota = get_user_quota.sync("grace", client=chief)
    assert quota.user == "grace" and quota.effective["gpus"].limit == 2, quota
    change_group_quota.sync(
        "compilers", client=chief, body=GroupQuotaChange(each=QuotaFields(cpus=4), total=QuotaFields(gpus=8))
    )
    quota = get_group_quota.sync("compilers", client=chief)
    assert quota.total["gpus"].value == 8 and quota.each["cpus"].value == 4, quota
    # An error is a problem document, with the field that is wrong.
    problem = change_user_quota.sync("grace", client=chief, body=QuotaChange(gpus=-7))
    assert isinstance(problem, Problem) and problem.errors[0].field == "gpus", problem


def files(user, folder):
    create_folder.sync(client=user, body=NewPath(path=folder))
    data = bytes(range(256)) * 40
    upload = start_upload.sync(client=user, body=UploadRequest(path=f"{folder}/data.bin", size_bytes=len(data)))
    for offset in (0, 6000):
        part = data[offset : offset + 6000]
        append_upload.sync(upload.id, client=user, body=File(payload=io.BytesIO(part)), upload_offset=offset)
    finish_upload.sync(upload.id, client=user)
    assert [entry.name for entry in list_files.sync(client=user, path=folder).items] == ["data.bin"]
    content = download_file.sync(client=user, path=f"{folder}/data.bin")
    assert content.payload.read() == data
    missing = download_file.sync(client=user, path=f"{folder}/missing")
    assert isinstance(missing, Problem) and missing.status == 404


def work(user):
    session = start_session.sync(client=user, body=StartRequest(app="terminal", name="from the client"))
    until(lambda: get_session.sync(session.id, client=user), lambda answer: answer.state == "running")
    assert session.id in [item.id for item in list_sessions.sync(client=user, state="running").items]
    stop_session.sync_detailed(session.id, client=user)
    ended = until(lambda: get_session.sync(session.id, client=user), lambda answer: answer.state == "ended")
    assert ended.ended_at is not None and ended.gpus == []

    job = submit_job.sync(client=user, body=JobRequest(script=SCRIPT, resources=SMALL, name="client"))
    job = until(lambda: get_job.sync(job.id, client=user), lambda answer: answer.state == "ended")
    assert (job.exit_code, job.outcome) == (3, "failed"), job
    assert "written by the client" in get_job_log.sync(job.id, client=user)
    assert job.id in [item.id for item in list_jobs.sync(client=user, state="ended").items]
    run = until(lambda: get_job_run.sync(job.id, client=user), lambda answer: answer.complete)
    assert get_run.sync(run.id, client=user).points == 3
    metrics = list_run_metrics.sync(run.id, client=user)
    assert [tag.tag for tag in metrics.runs[0].tags] == ["loss"], metrics
    curve = get_run_curve.sync(run.id, "loss", client=user)
    assert curve.count == 3 and curve.buckets[0].min_ == 0.1, curve
    rows = get_results.sync(client=user)
    assert rows.matched == 1 and rows.items[0].id == run.id, rows


def data(user, folder, picture):
    create_folder.sync(client=user, body=NewPath(path=folder))
    for label in ("one", "two"):
        create_folder.sync(client=user, body=NewPath(path=f"{folder}/{label}"))
        for number in range(10):
            content = picture(number * 20 + (3 if label == "one" else 7))
            path = f"{folder}/{label}/{number}.png"
            upload = start_upload.sync(client=user, body=UploadRequest(path=path, size_bytes=len(content)))
            append_upload.sync(upload.id, client=user, body=File(payload=io.BytesIO(content)), upload_offset=0)
            finish_upload.sync(upload.id, client=user)
    spec = {"kind": "classification", "source": {"kind": "folder", "path": folder}}
    wanted = NewDataset.from_dict({"name": "from-the-client", "spec": spec, "resources": SMALL.to_dict()})
    dataset = create_dataset.sync(client=user, body=wanted)
    ready = until(
        lambda: get_dataset.sync(dataset.id, client=user), lambda answer: answer.state in ("ready", "failed")
    )
    assert (ready.state, ready.classes, ready.pictures) == ("ready", 2, 20), ready
    items = list_dataset_items.sync(dataset.id, client=user, split="train")
    assert items.items and {item.split for item in items.items} == {"train"}
    assert get_dataset_mean.sync(dataset.id, client=user).payload.read().startswith(b"\x89PNG")

    assert list_models.sync(client=user).items == []
    wanted = {"name": "net", "dataset": str(dataset.id), "config": {"network": {"name": "small-cnn"}}}
    model = train_model.sync(client=user, body=NewModel.from_dict(wanted))
    # Its job waits for an environment that is not built on this portal.
    cancel_job.sync(model.job, client=user)
    ended = until(lambda: get_model.sync(model.id, client=user), lambda answer: answer.state != "training")
    assert ended.state == "stopped" and ended.bundle is None and ended.dataset == dataset.id, ended
    assert [item.id for item in list_models.sync(client=user).items] == [model.id]


def main(url, chief_token, user_token, folder):
    from answers import png

    chief, user = (AuthenticatedClient(base_url=url, token=token) for token in (chief_token, user_token))
    assert get_me.sync(client=user).name == "somebody"
    nobody = get_me.sync(client=AuthenticatedClient(base_url=url, token="lyc_wrong"))
    assert isinstance(nobody, Problem) and nobody.status == 401
    people(chief)
    files(user, folder)
    work(user)
    data(user, f"{folder}/pictures", png)
    delete_file.sync_detailed(client=user, path=folder, recursive=True)
    print("the generated client drove everything")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
