"""Serve TensorBoard on a Unix socket.

TensorBoard itself can only listen on a TCP port, and on a shared machine every
local user can open a TCP port. A socket file lies in the workload's own
directory, so the kernel decides who may connect: the user and the portal.

    python tensorboard.py --socket PATH --logdir DIR --path_prefix /s/ID
    python tensorboard.py --socket PATH --run NAME=DIR --run NAME=DIR …

Several runs are linked by their names into a folder beside the socket, which
TensorBoard then reads: its own list of named folders takes no comma and no
colon in a path.

Arguments that are not ours go to TensorBoard. One line on standard output says
that it is ready; until then a connection to the socket is refused. SIGTERM and
SIGINT end it at once with status 0 and remove the socket.
"""

import os
import sys

# A script's own folder comes first on Python's path, and this file is called
# like the package it needs. The current folder may be a user's, with any name
# in it. Neither may stand in for TensorBoard.
_script_folder = os.path.dirname(os.path.realpath(sys.argv[0]))
sys.path[:] = [p for p in sys.path if p not in ("", os.getcwd(), _script_folder)]

import argparse
import contextlib
import errno
import logging
import shutil
import signal
import socket
import stat


def arguments():
    parser = argparse.ArgumentParser(
        description="Serve TensorBoard on a Unix socket.",
        epilog="Other arguments are passed to TensorBoard unchanged.",
        allow_abbrev=False,
    )
    parser.add_argument("--socket", required=True, metavar="PATH")
    logs = parser.add_mutually_exclusive_group(required=True)
    logs.add_argument("--logdir", metavar="DIR", help="directory that contains the runs")
    logs.add_argument("--logdir_spec", metavar="NAME:DIR,…", help="several named directories")
    logs.add_argument("--run", action="append", metavar="NAME=DIR", help="a run; can be repeated")
    parser.add_argument("--path_prefix", default="", metavar="/s/ID")
    return parser.parse_known_args()


def link(runs, folder):
    """Make a folder with a link to each run, in place of an older one."""
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(folder)
    os.mkdir(folder, 0o700)
    for run in runs:
        name, _, directory = run.partition("=")
        os.symlink(directory, os.path.join(folder, name))
    return folder


def remove(path):
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def bind(path):
    """Bind a socket at `path` with mode 0660, in place of one nobody listens on."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if stat.S_ISSOCK(os.lstat(path).st_mode):
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
                probe.settimeout(1)
                if probe.connect_ex(path) != errno.ECONNREFUSED:
                    raise OSError("another program is listening there")
            os.unlink(path)
    except FileNotFoundError:
        pass
    # The mode comes from the umask, not from a later chmod: so the socket is
    # never open wider, not even for a moment.
    umask = os.umask(0o117)
    try:
        listener.bind(path)
    finally:
        os.umask(umask)
    return listener


def serve(listener, path, ours, rest):
    from tensorboard import program
    from werkzeug.serving import ThreadedWSGIServer

    class Server(ThreadedWSGIServer):
        def __init__(self, app, flags):
            logging.getLogger("werkzeug").setLevel(logging.WARNING)
            listener.listen(128)
            super().__init__(f"unix://{path}", 0, app, fd=listener.fileno())

        def get_url(self):
            return f"unix://{path}"

    # The fast loader is a second process that answers every local user on a
    # TCP port, without asking who they are; the reader in Python keeps the logs
    # behind the socket. Later arguments win, so `rest` may choose differently.
    argv = ["tensorboard", "--load_fast=false", "--reload_interval=5"]
    argv += [f"--path_prefix={ours.path_prefix}"]
    argv += [f"--logdir={ours.logdir}"] if ours.logdir else [f"--logdir_spec={ours.logdir_spec}"]
    board = program.TensorBoard(server_class=Server)
    board.configure(argv + rest)
    # `launch` serves in a thread and, unlike TensorBoard's own command, leaves
    # no note about this process in the machine's temporary folder.
    board.launch()
    print(f"TensorBoard is ready on {path} under {ours.path_prefix or '/'}", flush=True)
    while True:
        signal.pause()


def main():
    ours, rest = arguments()
    path = os.path.abspath(ours.socket)
    if ours.run:
        ours.logdir = link(ours.run, os.path.join(os.path.dirname(path), "runs"))
    try:
        listener = bind(path)
    except OSError as error:
        sys.exit(f"cannot listen on {path}: {error}")

    def leave(*_):
        # Threads may be in the middle of reading event files; nothing they
        # hold needs saving, so nobody has to wait for them.
        remove(path)
        os._exit(0)

    # TensorBoard takes a second to import; a stop is heard before that.
    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGINT, leave)
    try:
        serve(listener, path, ours, rest)
    finally:
        remove(path)


if __name__ == "__main__":
    main()
