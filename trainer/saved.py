"""Loads a `.keras` file, one's own or somebody else's, and runs nothing of anybody else's.

The program of a network (`network.py`, and no path that a file names) is run only where the model's folder, the
file's folder, the file and the program are this person's own and nobody else can change them. Any other file is
copied to where its owner cannot change it, and loaded only if it is made of Keras's own layers and of the trainer's.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from . import folder, program
from .errors import NO_BACKEND, Stop, bad_data
from .folder import PROGRAM, Folder, Unfit

ENDING = ".keras"
# Older ones let a file bring code in spite of the safe mode; this is the one that the tests try.
MINIMUM = (3, 15, 1)
LARGEST = 8 << 30  # of somebody else's
_LARGEST_CONFIG = 64 << 20

_ENTRIES = {"metadata.json", "config.json", "model.weights.h5"}
_MODULES = {
    *("keras.layers", "keras.initializers", "keras.regularizers", "keras.constraints", "keras.activations"),
    *("keras.dtype_policies", "keras.optimizers", "keras.optimizers.schedules", "keras.losses", "keras.metrics"),
    *("keras.models", "keras.src.models.functional", "keras.src.models.sequential"),
}
_TOP = {"DTypePolicy", "FloatDTypePolicy", "Model", "Functional", "Sequential"}
_FUNCTIONS = {"builtins", "keras.activations", "keras.losses", "keras.metrics"}
_VALUES = {"__keras_tensor__", "__tensor__", "__numpy__", "__ellipsis__", "__slice__", "__bytes__"}
# What brings code, wraps a program, or reads files by their names.
_NEVER = {
    *("Lambda", "TFSMLayer", "TorchModuleWrapper", "JaxLayer", "FlaxLayer"),
    *("StringLookup", "IntegerLookup", "IndexLookup", "TextVectorization"),
}


def load(path: Path) -> Any:
    """The model of a file that a person named; `Stop` says what is wrong with it."""
    with _unfit(path), home(path) as (place, about):
        return _loaded(place, path.name, about)


def resumed(path: Path) -> Any:
    """A checkpoint of a training that goes on, with its optimiser; its layers are known by now."""
    require_keras()
    with _unfit(path, "resume"), folder.opened(path.parent) as place, place.open(path.name) as file:
        _is_keras(path, file)
        # Which program is run was said by the configuration, so that it does not matter who could change this.
        if {place.about.st_uid, os.fstat(file.fileno()).st_uid} == {os.geteuid()}:
            with _link(file) as link:
                return _keras(path, link, compile=True)
        with _copy(file) as copy:
            if strange := _strange(copy, compile=True):
                raise Unfit(f"belongs to another user and contains more than Keras's own layers: {strange}. Use another output")
            return _keras(path, copy, compile=True)


def require_keras() -> None:
    """Refuses a Keras that would run what a file brings."""
    import keras

    numbers = re.match(r"(\d+)\.(\d+)(?:\.(\d+))?", str(keras.__version__))
    if numbers is None or tuple(int(number or 0) for number in numbers.groups()) < MINIMUM:
        wanted = ".".join(map(str, MINIMUM))
        raise Stop(
            NO_BACKEND,
            f"this environment has Keras {keras.__version__}. Versions before {wanted} may run code from a model's"
            f" file: run pip install 'keras>={wanted}' in it, or use the environment “default”",
            "backend",
        )


@contextlib.contextmanager
def home(path: Path) -> Iterator[tuple[Folder, Folder | None]]:
    """The folder of a model's file, and the one that says what the model is: the same, or one folder up."""
    with folder.opened(path.parent) as place, contextlib.ExitStack() as stack:
        about: Folder | None = place
        if not _describes(place):
            about = stack.enter_context(folder.opened(path.parent.parent))
            about = about if _describes(about) else None
        yield place, about


def _describes(place: Folder) -> bool:
    try:
        place.open("preprocessing.json").close()
    except FileNotFoundError:
        return False
    except Unfit as unfit:
        raise bad_data(f"{place.path}/preprocessing.json {unfit}", "MODEL") from None
    return True


@contextlib.contextmanager
def _unfit(path: Path, field: str = "MODEL") -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise bad_data(f"{path} does not exist", field) from None
    except Unfit as unfit:
        raise bad_data(f"{path} {unfit}", field) from None


def _loaded(place: Folder, name: str, about: Folder | None) -> Any:
    require_keras()
    path = place.path / name
    with place.open(name) as file:
        _is_keras(path, file)
        not_own = _not_own(place, file, about)
        if not_own is None:
            why = _run_program(about)
            with _link(file) as link:
                try:
                    return _keras(path, link)
                except Stop as stop:
                    raise Stop(stop.code, stop.message + (f"; {PROGRAM} {why}" if why else ""), stop.field) from None
        with _copy(file) as copy:
            if strange := _strange(copy):
                raise Unfit(_refusal(strange, not_own, (about or place).path))
            return _keras(path, copy)


def _is_keras(path: Path, file: Any) -> None:
    if path.suffix != ENDING:
        raise Unfit(f"is not supported: only Keras 3 files that end in {ENDING} are loaded")
    if not zipfile.is_zipfile(file):
        raise Unfit("cannot be loaded: not a Keras 3 model, which is a zip archive")
    file.seek(0)


def _not_own(place: Folder, file: Any, about: Folder | None) -> str | None:
    """Why other people may have had a hand in it."""
    found = [("the model's folder", about.objection if about else None), ("its folder", place.objection)]
    found.append(("it", folder.objection(os.fstat(file.fileno()))))
    return next((f"{what} {why}" for what, why in found if why), None)


def _run_program(about: Folder | None) -> str | None:
    """Runs the program of one's own network; or says why not, where it has one."""
    try:
        wanted = about.json("run.json")["config"]["network"] if about else {}
    except (OSError, Unfit, KeyError, TypeError, IndexError):
        return None
    # The name in it is for whoever reads it: what is run is called as it is called here.
    if about is None or not isinstance(wanted, dict) or "file" not in wanted:
        return None
    try:
        source = about.program()
    except FileNotFoundError:
        return f"is not in {about.path}: copy the program of this network there"
    except Unfit as unfit:
        return str(unfit)
    program.run(source, str(about.path / PROGRAM))
    return None


def _refusal(strange: str, not_own: str, path: Path) -> str:
    can = (
        f"Check the content of {path}, then run chmod -R go-w on it."
        if not_own.endswith("by other users")
        else "Ask for a model with standard layers, or read its program, copy its folder, and use the copy."
    )
    return (
        f"contains more than Keras's own layers: {strange}. Such a network needs its own program ({PROGRAM}), and"
        f" that is not run as you, because {not_own}. {can}"
    )


@contextlib.contextmanager
def _link(file: Any) -> Iterator[Path]:
    """A name with the right ending for a file that is open, whatever became of its own name."""
    with tempfile.TemporaryDirectory(prefix="model-") as private:
        link = Path(private, f"model{ENDING}")
        link.symlink_to(f"/proc/self/fd/{file.fileno()}")
        yield link


@contextlib.contextmanager
def _copy(file: Any) -> Iterator[Path]:
    """What is loaded is what was looked at."""
    size = os.fstat(file.fileno()).st_size
    if size > LARGEST:
        raise Unfit(f"is larger than {LARGEST >> 30} GiB, the limit for models of other users")
    with tempfile.TemporaryDirectory(prefix="model-") as private:
        copy = Path(private, f"model{ENDING}")
        with open(copy, "xb") as target:
            shutil.copyfileobj(_AtMost(file, size), target, 1 << 20)
        yield copy


class _AtMost:
    """The first bytes of a file that may be growing."""

    def __init__(self, file: Any, left: int) -> None:
        self.file, self.left = file, left

    def read(self, size: int) -> bytes:
        piece = self.file.read(min(size, self.left))
        self.left -= len(piece)
        return piece


def _keras(path: Path, file: Path, compile: bool = False) -> Any:
    import keras

    from . import networks  # noqa: F401  registers their layers

    try:
        return keras.saving.load_model(file, compile=compile, safe_mode=True)
    except Exception as error:
        raise bad_data(f"{path} cannot be loaded: {program.short(error)}", "MODEL") from None


def _strange(file: Path, compile: bool = False) -> str | None:
    """The first thing in it that no standard network has."""
    try:
        with zipfile.ZipFile(file) as archive:
            unknown = sorted(set(archive.namelist()) - _ENTRIES)
            if unknown:
                return f"the entry {unknown[0][:80]!r} of the archive"
            if archive.getinfo("config.json").file_size > _LARGEST_CONFIG:
                return "a configuration of more than 64 MiB"
            config = json.loads(archive.read("config.json"))
    except (OSError, ValueError, KeyError, RecursionError, NotImplementedError, RuntimeError, zipfile.BadZipFile) as error:
        raise Unfit(f"cannot be loaded: {program.short(error)}") from None
    if isinstance(config, dict) and not compile:
        config.pop("compile_config", None)  # is not read
    waiting = [config]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            if "class_name" in value and (strange := _class(value)):
                return strange
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return None


def _class(value: dict[str, Any]) -> str | None:
    """What Keras would make an object of, if that is not of its own or of the trainer's."""
    module, name, registered = value.get("module"), value["class_name"], value.get("registered_name")
    words = program.printable(str(registered or name)[:80])
    if not isinstance(name, str) or not isinstance(module, str | None) or not isinstance(registered, str | None):
        return words
    if name in _VALUES and module is None:
        return None
    called = value.get("config")
    if _is_ours(called if name == "function" else registered):
        return None
    if name in _NEVER or registered not in (None, name) and name != "function":
        return words
    if name == "function":
        fits = module in _FUNCTIONS and isinstance(called, str) and ">" not in called
        return None if fits else f"the function {program.printable(str(called)[:80])}"
    fits = module in _MODULES or (module == "keras" and name in _TOP)
    return None if fits or (module or "").startswith("keras.src.ops.") else words


def _is_ours(registered: Any) -> bool:
    """Whether the trainer registers it: a layer of its networks, or a loss."""
    import keras

    from . import networks, tasks

    tasks.of("detection")  # they register at their import
    known = keras.saving.get_registered_object(registered) if isinstance(registered, str) else None
    return (getattr(known, "__module__", None) or "").startswith((f"{networks.__name__}.", f"{tasks.__name__}."))
