"""Trains image models with Keras 3 on whichever backend is there (KERAS_BACKEND).

A JSON configuration goes in; event files, checkpoints, an evaluation and an exit code come out.
See docs/trainer.md. Nothing here imports JAX, TensorFlow or PyTorch by itself.
"""

import os
import sys


def _leave_out_other_peoples_modules() -> None:
    """`python -m` looks for modules in the current folder first, which may be another user's: a model's, for one."""
    try:
        here = os.stat(".")
        if sys.argv[:1] == ["-m"] and sys.path[:1] == [os.getcwd()]:
            if here.st_uid != os.geteuid() or here.st_mode & 0o022:
                del sys.path[0]
    except OSError:  # It is gone, and there is nothing in it.
        pass


_leave_out_other_peoples_modules()
