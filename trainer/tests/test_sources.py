"""Data from every source, and what is wrong with it: counted and listed, or refused with its name."""

import csv
import gzip
import io
import json

import numpy as np
import pytest
from PIL import Image

from trainer import config, sources
from trainer.errors import Stop
from trainer.shapes import KINDS

from .conftest import call, config_file


def load(folder, **given):
    return sources.load(config.check({"output": "o"} | given, folder), 2)


def picture(seed, size=(24, 20)):
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8))


@pytest.fixture
def pets(tmp_path):
    """Two classes of twelve pictures, and in `cat` also everything that is broken."""
    for name in ("cat", "dog"):
        (tmp_path / "pets" / name).mkdir(parents=True)
        for i in range(12):
            picture(i).save(tmp_path / "pets" / name / f"{i:02}.png")
    buffer = io.BytesIO()
    picture(99, (200, 200)).save(buffer, "JPEG")
    cat = tmp_path / "pets/cat"
    (cat / "truncated.jpg").write_bytes(buffer.getvalue()[:9000])
    (cat / "page.png").write_bytes(b"<!doctype html><p>not found</p>")
    (cat / "empty.gif").write_bytes(b"")
    (cat / "notes.txt").write_text("no picture, and none by its name")
    Image.fromarray(np.full((9, 9), 40_000, np.uint16)).save(cat / "deep.png")
    picture(5).convert("CMYK").save(cat / "print.jpg")
    return tmp_path / "pets"


def test_a_folder_with_broken_files(pets, tmp_path):
    data = load(tmp_path, data={"kind": "folder", "path": "pets"}, image={"width": 16, "height": 16})
    assert data.classes == ["cat", "dog"]
    assert {split: len(part) for split, part in data.parts.items()} == {"train": 19, "val": 7}
    assert dict(data.problems).keys() == {"cat/truncated.jpg", "cat/page.png", "cat/empty.gif"}
    again = load(tmp_path, data={"kind": "folder", "path": "pets"}, image={"width": 16, "height": 16})
    assert again.parts["val"].names == data.parts["val"].names
    deep = data.parts["train"] if "cat/deep.png" in data.parts["train"].names else data.parts["val"]
    assert deep.read(deep.names.index("cat/deep.png")).image.flatten()[0] == 40_000 // 257


def test_pictures_that_do_not_fit_in_memory_are_read_again(pets, tmp_path):
    kept, read = (
        load(tmp_path, data={"kind": "folder", "path": "pets", "memory_mb": mb}).parts["train"] for mb in (2048, 0)
    )
    assert kept.array is not None and read.array is None
    assert kept.names == read.names and (kept.labels == read.labels).all()
    assert all((kept.read(i).image == read.read(i).image).all() for i in range(len(kept)))
    (pets / read.names[3]).unlink()
    from trainer import loader

    with pytest.raises(Stop, match="was readable when the training started") as stopped:
        list(
            loader.training(
                read,
                lambda s: np.zeros(len(s)),
                4,
                0,
                0,
                config.check({"output": "o", "data": {"kind": "digits"}}, tmp_path)["augmentation"],
                2,
            )
        )
    assert stopped.value.code == 2


def test_splits_that_a_folder_brings(tmp_path):
    for split, count in (("train", 6), ("val", 3), ("Test", 2)):
        for name in ("a", "b"):
            (tmp_path / "s" / split / name).mkdir(parents=True)
            for i in range(count):
                picture(i).save(tmp_path / "s" / split / name / f"{i}.png")
    data = load(tmp_path, data={"kind": "folder", "path": "s"})
    assert {split: len(part) for split, part in data.parts.items()} == {"train": 12, "val": 6, "test": 4}


def test_one_class_no_class_and_classes_of_one(tmp_path, capsys):
    (tmp_path / "d/only").mkdir(parents=True)
    for i in range(5):
        picture(i).save(tmp_path / f"d/only/{i}.png")
    given = {"data": {"kind": "folder", "path": "d"}}
    code, lines = call(capsys, config_file(tmp_path, given))
    assert code == 2 and "only one class, 'only'" in lines[-1]["message"] and lines[-1]["code"] == 2
    (tmp_path / "d/empty").mkdir()
    assert "only one class" in call(capsys, config_file(tmp_path, given))[1][-1]["message"], (
        "an empty folder is no class"
    )
    (tmp_path / "d/single").mkdir()
    picture(9).save(tmp_path / "d/single/0.png")
    data = load(tmp_path, **given)
    assert data.classes == ["only", "single"] and dict(data.problems) == {"empty": "this class has no usable images"}
    assert "single/0.png" in data.parts["train"].names, "the only picture of a class is learnt from"
    for message, path in (("is not a folder", "nowhere"), ("does not contain folders", "d/empty")):
        with pytest.raises(Stop, match=message):
            load(tmp_path, data={"kind": "folder", "path": path})


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_manifest_as_people_save_it(pets, tmp_path, encoding, end):
    rows = [
        "path,label,split,error",
        "cat/none.png,cat,train,",
        "cat/page.png,cat,train,",
        "cat/03.png,cat,train,looked at: bad",
        ",cat,train,",
    ]
    rows += [f"cat/{i:02}.png, cat ,train," for i in (0, 1, 2)] + [
        "dog/00.png,dög,train,",
        "dog/01.png,dög,val,",
        "dog/02.png,dög,,",
        "cat/04.png,cat,valley,",
    ]
    (tmp_path / "m.csv").write_bytes(end.join(rows).encode(encoding))
    data = load(tmp_path, data={"kind": "manifest", "path": "m.csv", "root": "pets"})
    assert data.classes == ["cat", "dög"]
    assert data.parts["train"].names == ["cat/00.png", "cat/01.png", "cat/02.png", "dog/00.png"]
    assert data.parts["val"].names == ["dog/01.png"]
    problems = dict(data.problems)
    assert problems["cat/none.png"] == "does not exist" and "web page" in problems["cat/page.png"]
    assert problems["cat/03.png"] == "looked at: bad" and "valley" in problems["cat/04.png"] and "line 5" in problems


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "no rows"), ("path,label\na,b\n", "not have the column 'split'"), ("path,label,split\nx.png,a,train\n", "no images")],
)
def test_a_manifest_that_cannot_be_used(tmp_path, text, message):
    (tmp_path / "m.csv").write_text(text)
    with pytest.raises(Stop, match=message) as stopped:
        load(tmp_path, data={"kind": "manifest", "path": "m.csv"})
    assert stopped.value.code == 2


def idx(array):
    kind = {"uint8": 8, "int32": 12}[array.dtype.name]
    return (
        bytes([0, 0, kind, array.ndim])
        + np.array(array.shape, ">u4").tobytes()
        + array.astype(array.dtype.newbyteorder(">")).tobytes()
    )


def test_idx_files(tmp_path):
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 256, (60, 9, 7), dtype=np.uint8), np.tile(np.arange(3, dtype=np.uint8), 20)
    (tmp_path / "i.gz").write_bytes(gzip.compress(idx(images)))
    (tmp_path / "l").write_bytes(idx(labels))
    where = {"kind": "idx", "images": "i.gz", "labels": "l"}
    data = load(tmp_path, data=where | {"test_images": "i.gz", "test_labels": "l", "classes": ["x", "y", "z"]})
    assert data.shape.hwc == (9, 7, 1) and data.classes == ["x", "y", "z"]
    assert {split: len(part) for split, part in data.parts.items()} == {"train": 45, "val": 15, "test": 60}
    row = int(data.parts["train"].names[7].split("-")[1])
    assert (data.parts["train"].read(7).image[..., 0] == images[row]).all()
    for name, content, message in (
        ("i.gz", gzip.compress(idx(images))[:-9], "truncated|cannot read"),
        ("i.gz", idx(images)[:-1], "truncated"),
        ("i.gz", b"PK\x03\x04", "not an IDX file"),
        ("i.gz", idx(images[:5]), "60 labels for 5"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(Stop, match=message):
            load(tmp_path, data=where)


def test_fewer_pictures_are_drawn_with_the_seed(tmp_path):
    first, again, other = (
        load(tmp_path, data={"kind": "digits", "limit": 100, "seed": seed}).parts["train"].names for seed in (1, 1, 2)
    )
    assert len(first) == 100 and first == again != other


@pytest.mark.parametrize("task", ["classification", "segmentation", "detection"])
def test_generated_shapes(tmp_path, task):
    given = {"task": task, "data": {"kind": "shapes", "count": 60}, "image": {"width": 48, "height": 40}}
    data, again = load(tmp_path, **given), load(tmp_path, **given)
    part = data.parts["train"]
    for i in range(len(part)):
        sample = part.read(i)
        assert (sample.image == again.parts["train"].read(i).image).all() and sample.image.shape == (40, 48, 3)
        if task == "detection":
            assert 1 <= len(sample.boxes) <= 3 and (sample.boxes[:, 1:3] >= 0).all()
            assert (sample.boxes[:, 1] + sample.boxes[:, 3] <= 48).all() and (
                sample.boxes[:, 2] + sample.boxes[:, 4] <= 40
            ).all()
        if task == "segmentation":
            assert set(np.unique(sample.mask)) <= {0, 1, 2, 3} and sample.mask.any()
    assert data.classes == (["background"] if task == "segmentation" else []) + list(KINDS)


def built(folder, kind, about=None, cache=True):
    """A dataset as the portal builds it, small."""
    rng = np.random.default_rng(3)
    (folder / "cache").mkdir(parents=True)
    images = rng.integers(0, 256, (7, 8, 10, 3), dtype=np.uint8)
    # Splits take turns, and what is broken has a place as well.
    of_split = {"train": np.array([0, 2, 3, 5]), "val": np.array([1, 4])}
    split_of = {i: split for split, at in of_split.items() for i in at}
    rows = [
        [f"{i}.png", "ab"[i % 2] if kind == "classification" else "", split_of[i], 10, 8, 1, "0" * 64, ""]
        for i in range(6)
    ]
    rows.append(["broken.png", "", "", "", "", 3, "0" * 64, "is truncated"])
    with open(folder / "manifest.csv", "w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(
            [["path", "label", "split", "width", "height", "size", "hash", "error"], *rows]
        )
    everything = {"images": images}
    if kind == "segmentation":
        everything["masks"] = rng.integers(0, 2, (7, 8, 10), dtype=np.uint8)
    for key, array in everything.items():
        np.save(folder / f"cache/{key}.npy", array)
    listed = {}
    for split, at in of_split.items():
        arrays = {"rows": at.astype(np.int64)}
        count = len(at)
        if kind == "classification":
            arrays["labels"] = (at % 2).astype(np.int32)
        elif kind == "detection":
            arrays["boxes"] = np.array(
                [[0, 1, 2, 3, 4, 5], [count - 1, 0, 1, 1, 2, 2], [count - 1, 1, 0, 0, 3, 3]], np.float32
            )
        listed[split] = {key: f"cache/{key}.npy" for key in everything}
        for key, array in arrays.items():
            np.save(folder / f"cache/{split}.{key}.npy", array)
            listed[split][key] = f"cache/{split}.{key}.npy"
    for i, image in enumerate(images[:6]):
        Image.fromarray(image).save(folder / f"{i}.png")
    with open(folder / "boxes.csv", "w", newline="") as file:
        csv.writer(file).writerows(
            [
                ["path", "class", "x", "y", "width", "height", "error"],
                ["0.png", "b", 2, 2, 5, 4, ""],
                ["0.png", "a", 0, 0, 0, 0, "outside"],
            ]
        )
    text = {
        "version": 2,
        "kind": kind,
        "classes": ["a", "b"],
        "source": {"kind": "folder", "root": str(folder)},
        "manifest_sha256": "f" * 64,
    }
    text |= {
        "image": {"width": 10, "height": 8, "channels": 3, "resize": "squash"},
        "mean": [1, 2, 3],
        "deviation": [4, 5, 6],
    }
    (folder / "dataset.json").write_text(json.dumps(text | {"cache": listed if cache else None} | (about or {})))
    return images


@pytest.mark.parametrize("kind", ["classification", "segmentation", "detection"])
def test_a_built_dataset(tmp_path, kind):
    images = built(tmp_path / "set", kind)
    data = load(tmp_path, task=kind, data={"kind": "dataset", "path": "set"})
    assert data.classes == ["a", "b"] and data.mean == [1, 2, 3] and data.fingerprint == "f" * 64
    assert data.parts["train"].names == ["0.png", "2.png", "3.png", "5.png"] and dict(data.problems) == {
        "broken.png": "is truncated"
    }
    sample = data.parts["val"].read(1)
    assert (sample.image == images[4]).all()
    match kind:
        case "classification":
            part = data.parts["train"]
            assert sample.label == 0 and (part.array[np.array([3, 1])] == images[[5, 2]]).all()
        case "segmentation":
            assert sample.mask.shape == (8, 10)
        case _:
            assert sample.boxes.tolist() == [[0, 1, 1, 2, 2], [1, 0, 0, 3, 3]]
            assert len(data.parts["train"].read(1).boxes) == 0


@pytest.mark.parametrize("kind", ["classification", "detection"])
def test_a_built_dataset_without_a_cache(tmp_path, kind):
    images = built(
        tmp_path / "set",
        kind,
        {"image": {"width": 20, "height": 16, "channels": 3, "resize": "squash"}, "mean": None, "deviation": None},
        cache=False,
    )
    data = load(tmp_path, task=kind, data={"kind": "dataset", "path": "set"})
    assert data.shape.hwc == (16, 20, 3) and data.mean == pytest.approx(images[[0, 2, 3, 5]].mean((0, 1, 2)), abs=3)
    if kind == "detection":
        assert data.parts["train"].read(0).boxes.tolist() == [[1, 4, 4, 10, 8]]


@pytest.mark.parametrize(
    ("about", "given", "message"),
    [
        ({"version": 1}, {}, "format version 1"),
        ({"kind": "audio"}, {}, "unknown kind"),
        ({}, {"task": "detection"}, "for classification, not for detection"),
        ({}, {"image": {"width": 9}}, "built with 10"),
        ({"cache": {"train": {"images": "cache/none.npy"}}}, {}, "cannot be read"),
    ],
)
def test_a_dataset_that_does_not_fit(tmp_path, about, given, message):
    built(tmp_path / "set", "classification", about)
    with pytest.raises(Stop, match=message):
        load(tmp_path, data={"kind": "dataset", "path": "set"}, **given)


def test_a_dataset_that_is_not_finished(tmp_path):
    (tmp_path / "set").mkdir()
    with pytest.raises(Stop, match="not a complete dataset"):
        load(tmp_path, data={"kind": "dataset", "path": "set"})
