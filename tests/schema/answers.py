"""Seeds a portal over its API, asks every documented GET, and validates each answer against its schema: the status
is one that the operation names, and the body is what its schema says. What this portal cannot have, such as a trained
model, is listed with its reason; a GET that is neither asked nor listed is a failure."""

import re
import struct
import sys
import time
import zlib

import httpx
import jsonschema
from openapi_spec_validator import validate

API = "/api/v1"
NO_MODEL = "the environment that trains models is not built here"
NO_IMAGE = "no container image is pulled here"
NO_GPU = "there is no GPU here"
# Operations whose success cannot be seen on this portal.
UNSEEN = {
    "get_gpu_history": NO_GPU,
    "get_diagnostics": NO_GPU,
    "get_image": NO_IMAGE,
    "get_dataset_mask": "only datasets for segmentation have masks",
    "download_model_bundle": NO_MODEL,
    "get_model_curves": NO_MODEL,
    "get_model_evaluation": NO_MODEL,
    "get_model_layers": NO_MODEL,
    "get_model_mask": NO_MODEL,
    "get_model_preview": NO_MODEL,
    "get_model_preview_drawing": NO_MODEL,
    "get_model_test": NO_MODEL,
    "get_model_test_drawing": NO_MODEL,
    "get_model_thresholds": NO_MODEL,
    "list_model_predictions": NO_MODEL,
}
# Streams that end only with what they follow.
STREAMS = {"follow_session", "follow_job", "follow_run"}


def png(shade):
    """An image of 8 × 8 pixels in one colour."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + bytes([shade, 40, 90]) * 8 for _ in range(8))
    head = struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


class Portal:
    def __init__(self, url, token):
        headers = {"authorization": f"Bearer {token}"}
        self.http = httpx.Client(base_url=url + API, headers=headers, timeout=60)

    def call(self, method, path, **kw):
        answer = self.http.request(method, path, **kw)
        assert answer.status_code < 400, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content and "json" in answer.headers.get("content-type", "") else answer

    def until(self, path, condition, seconds=60):
        """Asks until an answer fits."""
        deadline = time.monotonic() + seconds
        while True:
            answer = self.http.get(path)
            if answer.status_code == 200 and condition(answer.json()):
                return answer.json()
            # What a job leaves behind is not there at once.
            assert answer.status_code in (200, 404), f"{path}: {answer.status_code} {answer.text}"
            assert time.monotonic() < deadline, f"{path}: {answer.text}"
            time.sleep(0.2)

    def upload(self, path, data):
        made = self.call("POST", "/files/uploads", json={"path": path, "size_bytes": len(data)})
        self.call("PATCH", f"/files/uploads/{made['id']}", content=data, headers={"upload-offset": "0"})
        self.call("POST", f"/files/uploads/{made['id']}/finish", json={})


# A host that the portal may call, where nobody listens.
HOOK = "http://127.0.0.1:9/hook"
SMALL = {"gpus": 0, "cpus": 1, "memory_bytes": 256 << 20}
SCRIPT = """#!/bin/sh
mkdir -p "$LYCEUM_LOG_DIRECTORY"
for step in 1 2 3; do echo "{\\"step\\": $step, \\"loss\\": 0.$step}"; done > "$LYCEUM_LOG_DIRECTORY/metrics.jsonl"
echo done
"""


def seed(chief, user, folder):
    """Makes one of everything, and returns the values of path and query parameters by operation or name."""
    chief.call("POST", "/groups", json={"name": "vision"})
    chief.call("PUT", "/groups/vision/members/somebody")
    chief.call("PUT", "/groups/vision/managers/somebody")
    chief.call("POST", "/users", json={"name": "guest", "password": "guest-has-a-password"})
    chief.call("POST", "/groups/vision/invitations", json={"name": "guest"})
    chief.call("PATCH", "/quotas/users/somebody", json={"gpus": 2, "note": "for the test"})
    chief.call("PATCH", "/quotas/groups/vision", json={"each": {"cpus": 8}, "total": {"gpus": 4}, "chargeable": True})
    announcement = chief.call("POST", "/announcements", json={"text": "New GPUs.", "level": "info"})
    chief.call("POST", "/users", json={"name": "svc-ci", "source": "service"})
    token = user.call("POST", "/tokens", json={"name": "notebook"})
    user.call("POST", "/files/folders", json={"path": folder})
    for split in ("red", "blue"):
        user.call("POST", "/files/folders", json={"path": f"{folder}/{split}"})
        for number in range(10):
            user.upload(f"{folder}/{split}/{number}.png", png(number * 20 + (5 if split == "red" else 9)))
    upload = user.call("POST", "/files/uploads", json={"path": f"{folder}/begun.bin", "size_bytes": 3})
    session = user.call("POST", "/sessions", json={"app": "terminal", "name": "shell"})
    user.until(f"/sessions/{session['id']}", lambda answer: answer["state"] == "running")
    job = user.call("POST", "/jobs", json={"name": "train", "script": SCRIPT, "resources": SMALL})
    ended = user.until(f"/jobs/{job['id']}", lambda answer: answer["state"] == "ended")
    assert ended["exit_code"] == 0, ended
    sweep = user.call(
        "POST", "/sweeps",
        json={"job": {"command": ["true"], "resources": SMALL}, "parameters": {"lr": [0.1, 0.2]}},
    )
    run = user.until(f"/jobs/{job['id']}/run", lambda answer: answer["complete"])
    source = {"kind": "folder", "path": folder}
    spec = {"kind": "classification", "source": source}
    dataset = user.call("POST", "/datasets", json={"name": "colours", "spec": spec, "resources": SMALL})
    user.until(f"/datasets/{dataset['id']}", lambda answer: answer["state"] in ("ready", "failed"))
    network = {"network": {"name": "small-cnn"}}
    model = user.call("POST", "/models", json={"name": "net", "dataset": dataset["id"], "config": network})
    # Its job waits for the environment.
    user.call("POST", f"/jobs/{model['job']}/cancel")
    user.until(f"/models/{model['id']}", lambda answer: answer["state"] == "stopped")
    preset = user.call("POST", "/presets", json={"name": "shell", "session": {"app": "terminal"}})
    profile = chief.call("POST", "/profiles", json={"name": "tiny", "resources": SMALL, "duration_seconds": 600})
    user.call("POST", "/jobs/queue/pause", json={"note": "maintenance of data"})
    hook = chief.call("POST", "/webhooks", json={"url": HOOK, "types": ["job.*"]})
    (node,) = user.call("GET", "/nodes")["items"]
    return {
        "/nodes": node["name"], "/environments": "default", "/profiles": profile["name"], "/models/networks": "small-cnn", "name": "somebody", "group": "vision", "tag": "loss", "row": "0", "split": "val", "number": "0",
        "/announcements": announcement["id"], "/webhooks": hook["id"], "/presets": preset["id"], "/sessions": session["id"], "/jobs": job["id"], "/runs": run["id"],
        "/sweeps": sweep["id"], "/datasets": dataset["id"], "/models": model["id"],
        "/files/uploads": upload["id"], "/tokens": token["id"],
        "get_dataset_example": {
            "path": f"{folder}/red/0.png", "resize": "squash", "width": 4, "height": 4, "channels": 3,
        },
        "get_file": {"path": f"{folder}/red"}, "download_file": {"path": f"{folder}/red/0.png"},
        "list_files": {"path": folder},
    }


def main(url, chief_token, user_token, folder):
    chief, user = Portal(url, chief_token), Portal(url, user_token)
    document = chief.call("GET", "/openapi.json")
    validate(document)
    values = seed(chief, user, folder)
    schemas = {"$schema": "https://json-schema.org/draft/2020-12/schema", "components": document["components"]}
    checked, faults, unseen = 0, [], set()
    for path, item in document["paths"].items():
        operation = item.get("get")
        if operation is None or operation["operationId"] in STREAMS:
            continue
        name, short = operation["operationId"], path.removeprefix(API)
        if name in UNSEEN:
            unseen.add(name)
            continue

        def fill(match, short=short):
            return values.get(short[: match.start() - 1], None) or values[match.group(1)]

        address = re.sub(r"{(\w+)}", fill, short)
        for who in (chief, user):
            answer = who.http.get(address, params=values.get(name, {}))
            if who is user and answer.status_code == 403:
                continue
            # What is private to one is not found by the other.
            if who is chief and answer.status_code == 404 and "{" in short:
                continue
            if who is chief and name in values and answer.status_code == 404:
                continue
            declared = operation["responses"].get(str(answer.status_code))
            if declared is None or answer.status_code >= 400:
                faults.append(f"{name} {address}: {answer.status_code} {answer.text[:300]}")
                continue
            kind = answer.headers["content-type"].split(";")[0]
            if kind not in declared.get("content", {}):
                faults.append(f"{name} {address}: {kind} is not among {list(declared.get('content', {}))}")
                continue
            checked += 1
            if kind != "application/json":
                continue
            validator = jsonschema.Draft202012Validator(
                {**schemas, **declared["content"][kind]["schema"]},
                format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER,
            )
            for error in validator.iter_errors(answer.json()):
                faults.append(f"{name} {address} {error.json_path}: {error.message[:300]}")
    user.call("POST", "/jobs/queue/resume", json={})
    user.call("DELETE", f"/sessions/{values['/sessions']}")
    user.call("DELETE", "/files", params={"path": folder, "recursive": "true"})
    print(f"{checked} answers fit their schemas, {len(unseen)} operations have no answer here")
    for fault in faults:
        print(fault)
    return 1 if faults or unseen != set(UNSEEN) else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
