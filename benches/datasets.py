"""Pictures to one size, beside a loop in Pillow as people write it: open, resize, put into one
array; and one that keeps each as PNG instead, as DIGITS does unless told otherwise. Lyceum's builder
fills an array, hashes every file, looks for broken and double ones, and splits."""

import json
import os
import shutil
import subprocess
import time

from rows import in_turns, median, result, row, times

MAKE = """
import sys, random
from PIL import Image, ImageFilter
folder, count = sys.argv[1], int(sys.argv[2])
import os
noise = Image.effect_noise((640, 480), 90).filter(ImageFilter.GaussianBlur(1))
for n in range(count):
    random.seed(n)
    one = Image.merge("RGB", [noise.rotate(random.randrange(360)).point(lambda v, k=random.randrange(60): min(255, v + k)) for _ in range(3)])
    os.makedirs(f"{folder}/{n % 10}", exist_ok=True)
    one.save(f"{folder}/{n % 10}/{n:05}.jpg", quality=90)
"""

# With as many processes as are said, each of which writes every so manieth picture.
PILLOW = """
import sys, glob, multiprocessing
import numpy
from PIL import Image
files = sorted(glob.glob(sys.argv[1] + "/*/*.jpg"))
count = int(sys.argv[3])
numpy.lib.format.open_memmap(sys.argv[2], mode="w+", dtype="uint8", shape=(len(files), 256, 256, 3))
def work(first):
    array = numpy.load(sys.argv[2], mmap_mode="r+")
    for n in range(first, len(files), count):
        array[n] = numpy.asarray(Image.open(files[n]).convert("RGB").resize((256, 256), Image.BILINEAR))
    array.flush()
if count == 1:
    work(0)
else:
    multiprocessing.Pool(count).map(work, range(count))
"""

# What DIGITS' tools do with a picture, into one file instead of a database.
PILLOW_PNG = """
import sys, glob, io
from PIL import Image
with open(sys.argv[2], "wb") as out:
    for file in sorted(glob.glob(sys.argv[1] + "/*/*.jpg"))[:int(sys.argv[3])]:
        buffer = io.BytesIO()
        Image.open(file).convert("RGB").resize((256, 256), Image.BILINEAR).save(buffer, "PNG")
        out.write(buffer.getvalue())
"""

COUNT = 10_000


@row("datasets")
def datasets(stand, options):
    python = f"{options.tools}/jl/bin/python"
    pictures = stand.work / "pictures"
    count = COUNT if options.rounds > 1 else COUNT // 10
    subprocess.run([python, "-c", MAKE, str(pictures), str(count)], check=True)
    output, array = stand.work / "dataset", stand.work / "pillow.npy"
    spec = stand.work / "spec.json"
    source = {"kind": "folder", "path": str(pictures)}
    spec.write_text(json.dumps({"kind": "classification", "source": source, "output": str(output)}))
    lyceum = [str(options.binary), "dataset", "build"]
    pillow = [python, "-c", PILLOW, str(pictures), str(array)]
    # How many pictures each command takes; the slowest needs fewer to show its speed.
    compared = {
        "Lyceum": (count, [*lyceum, str(spec)]),
        "Lyceum, 1 thread": (count, [*lyceum, "--threads", "1", str(spec)]),
        "Pillow": (count, [*pillow, "1"]),
        "Pillow, all cores": (count, [*pillow, str(os.cpu_count())]),
        "Pillow, PNG": (count // 10, [python, "-c", PILLOW_PNG, str(pictures), str(array), str(count // 10)]),
    }

    def measure(_, counted):
        number, command = counted
        shutil.rmtree(output, ignore_errors=True)
        array.unlink(missing_ok=True)
        begun = time.monotonic()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return number / (time.monotonic() - begun)

    rates = in_turns(options.rounds, compared, measure)
    pillows = {name: median(rates.pop(name)) for name in compared if name.startswith("Pillow")}
    others = " · ".join(f"{name} {rate:,.0f}/s" for name, rate in pillows.items())
    for name, values in rates.items():
        figure = median(values)
        ratios = " · ".join(times(figure, rate) for rate in pillows.values())
        yield result(f"{count} JPEG of 640 × 480 to 256 × 256, {name}", f"{figure:,.0f}/s", others, ratios)


# As long as instances_train2017.json of COCO.
DOCUMENT_BYTES = 448 << 20


def coco_document(path, size):
    """Images, categories, and annotations whose outlines make most of the length, as COCO's do."""
    images = [{"id": n, "file_name": f"{n:012}.jpg", "width": 640, "height": 480} for n in range(118_000)]
    outline = [round(n * 0.37, 2) for n in range(52)]
    with open(path, "w") as file:
        file.write('{"info": {}, "images": ' + json.dumps(images) + ', "categories": [{"id": 1, "name": "person"}], "annotations": [')
        written, number = file.tell(), 0
        while written < size - 600:
            one = {"segmentation": [outline], "area": 702.1, "iscrowd": 0, "image_id": number % 118_000, "bbox": [10.5, 20.25, 99.5, 80], "category_id": 1, "id": number}
            written += file.write(("," if number else "") + json.dumps(one))
            number += 1
        file.write("]}")
    return number


@row("coco-document")
def coco_stream(stand, options):
    """A document of COCO's length, inspected: its own time, and the most memory at any moment."""
    source = stand.work / "coco"
    source.mkdir()
    count = coco_document(source / "annotations.json", DOCUMENT_BYTES)
    spec = stand.work / "coco.json"
    for kind in ("detection", "segmentation"):
        spec.write_text(json.dumps({"kind": kind, "source": {"kind": "coco", "path": str(source)}, "output": str(stand.work / "no")}))
        found = []
        for _ in range(options.rounds):
            begun = time.monotonic()
            process = subprocess.Popen([str(options.binary), "dataset", "inspect", str(spec)], stdout=subprocess.DEVNULL)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            assert process.returncode == 0, process.returncode
            found.append((time.monotonic() - begun, usage.ru_maxrss))
        seconds, memory = (median([one[at] for one in found]) for at in (0, 1))
        yield result(f"COCO document of 448 MiB, {count:,} annotations, {kind}", f"{seconds:.1f} s, {memory >> 10} MiB", "", "")
