"""Makes the archive of an image with this machine's Python and ipykernel, as `docker save` writes it:
`PYTHON image.py ARCHIVE`, where PYTHON is that of an environment which has ipykernel."""

import hashlib
import io
import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
from importlib import metadata
from pathlib import Path


def distributions(*names):
    """The packages of these names and all that they require."""
    names, seen = list(names), set()
    while names:
        name = re.sub(r"[-_.]+", "-", names.pop()).lower()
        if name in seen:
            continue
        seen.add(name)
        try:
            found = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        names += [re.match(r"[A-Za-z0-9._-]+", line).group() for line in found.requires or [] if "extra ==" not in line]
        yield found


def files():
    """What is in the image: place and source."""
    series = f"python3.{sys.version_info.minor}"
    python, library = Path(sys.executable).resolve(), Path(sysconfig.get_path("stdlib"))
    yield f"usr/bin/{series}", python
    for path in library.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            yield f"usr/lib/{series}/{path.relative_to(library)}", path
    objects = [python, *library.glob("lib-dynload/*.so")]
    for found in distributions("ipykernel"):
        for file in found.files or []:
            source, place = Path(file.locate()), os.path.normpath(f"usr/lib/python3/dist-packages/{file}")
            if source.is_file() and place.startswith("usr/lib/"):
                yield place, source
                if ".so" in source.name:
                    objects.append(source)
    linked = subprocess.run(["ldd", *map(str, objects)], capture_output=True, text=True, check=False).stdout
    for path in {word.rstrip(":") for word in linked.split() if word.startswith(("/lib", "/usr/lib"))}:
        yield f"usr/lib/{Path(path).name}", Path(path).resolve()
    yield "usr/bin/busybox", Path("/bin/busybox")


def add(tar, name, content=b"", kind=tarfile.REGTYPE, mode=0o644, target=""):
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode, entry.linkname, entry.size = kind, mode, target, len(content)
    tar.addfile(entry, io.BytesIO(content))


def layer():
    buffer, seen = io.BytesIO(), set()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name in ("usr", "usr/bin", "usr/lib", "etc", "home", "tmp", "proc", "dev", "sys", "run", "opt"):
            add(tar, name, kind=tarfile.DIRTYPE, mode=0o755)
        links = {"bin": "usr/bin", "lib": "usr/lib", "lib64": "usr/lib", "usr/bin/sh": "busybox",
                 "usr/bin/python3": f"python3.{sys.version_info.minor}", "usr/bin/python": "python3"}
        for name, target in links.items():
            add(tar, name, kind=tarfile.SYMTYPE, mode=0o777, target=target)
        add(tar, "etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n")
        add(tar, "etc/os-release", b"NAME=of-the-image\n")
        for name, source in files():
            if name not in seen:
                seen.add(name)
                add(tar, name, source.read_bytes(), mode=0o755 if os.access(source, os.X_OK) else 0o644)
    return buffer.getvalue()


content = layer()
config = {"architecture": "arm64" if os.uname().machine == "aarch64" else "amd64", "os": "linux",
          "config": {"Env": ["PATH=/usr/bin"]},
          "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(content).hexdigest()}"]}}
manifest = [{"Config": "config.json", "RepoTags": ["notebook:1"], "Layers": ["layer.tar"]}]
with tarfile.open(sys.argv[1], "w") as archive:
    add(archive, "manifest.json", json.dumps(manifest).encode())
    add(archive, "config.json", json.dumps(config).encode())
    add(archive, "layer.tar", content)
