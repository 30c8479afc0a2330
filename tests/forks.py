"""Processes of manyheads that start in milliseconds: forks of this one, which has imported everything and started nothing.

Importing JAX takes seconds, and an attack by thousands of kills needs thousands of processes. `start` forks a process that
then is the program, leader of its own session. Worker processes, which the program would start as new interpreters, are
forked from a nursery, a copy of the program from before its first thread; they are made children of the program by the
kernel (it reaps for its descendants), so that signals, deaths and waiting are those of real ones. Linux only.

The process that uses this must have no threads and must not have used JAX.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import select
import signal
import socket
import sys
import time
import traceback
import warnings
from pathlib import Path
from types import SimpleNamespace

SET_DEATH_SIGNAL, SET_NAME, SET_REAPER = 1, 15, 36  # of prctl
WORKER = "forked worker"  # as the operating system names them
MESSAGE = 2**20  # bytes


def preload():
    """Import what the program and its workers need."""
    import dask.array
    import distributed
    import rich.progress
    import scipy.linalg
    import sweep_cells
    import threadpoolctl
    import xarray

    import manyheads.cli.main
    import manyheads.cli.sweep
    import manyheads.cli.train
    import manyheads.sweeps.cell
    import manyheads.sweeps.engine
    import manyheads.sweeps.servers
    import manyheads.sweeps.worker

    warnings.filterwarnings("ignore", message=".*fork.*")
    return (
        dask,
        distributed,
        rich,
        scipy,
        sweep_cells,
        threadpoolctl,
        xarray,
        manyheads,
    )  # all of them used


def start(body, output, environment=()):
    """Run `body()` in a process of its own session, its exit code the number returned; what it says goes to a file."""
    sys.stdout.flush(), sys.stderr.flush()
    heard, said = os.pipe()
    child = os.fork()
    if child:
        os.close(said)
        os.read(heard, 1)  # until it is the program
        os.close(heard)
        return child
    code = 70
    try:
        os.close(heard)
        os.setsid()
        usual_signals()
        _talk_to(output)
        os.environ.update(environment)
        _control(SET_REAPER, 1)
        _use(_nursery(said))
        os.close(said)
        code = body()
    except SystemExit as end:
        code = end.code or 0
    except KeyboardInterrupt:
        print("interrupted before the program began")
        code = 130
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(code)


def usual_signals():
    """As a terminal starts a program; one in the background may be told to ignore some."""
    for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def program(*words):
    """The command `manyheads`, as a body."""

    def body():
        from manyheads.cli.main import main

        sys.argv = ["manyheads", *map(str, words)]
        return main()

    return body


def wait(child, limit):
    """The exit code of a process, negative for a signal; None if it runs after `limit` seconds."""
    watched = os.pidfd_open(child)
    try:
        if not select.select([watched], [], [], limit)[0]:
            return None
    finally:
        os.close(watched)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def workers(parent):
    """The forked workers of a program."""
    found = []
    for number in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            status = Path("/proc", number, "stat").read_text()
            name, rest = status.partition("(")[2].rpartition(")")[::2]
            if name == WORKER and rest.split()[1] == str(parent) and rest.split()[0] not in "ZX":
                found.append(int(number))
    return found


def _control(what, value):
    ctypes.CDLL(None).prctl(what, value, 0, 0, 0)


def _talk_to(output):
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for number in (1, 2):
        os.dup2(file, number)
    os.close(nothing), os.close(file)


def _nursery(said):
    """Fork the process from which workers are forked; the socket to ask it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    program_id = os.getpid()
    if os.fork():
        theirs.close()
        return ours
    ours.close()
    os.close(said)
    _control(SET_DEATH_SIGNAL, signal.SIGKILL)
    _control(SET_NAME, b"nursery")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while os.getppid() == program_id:
        try:
            message, files, _, _ = socket.recv_fds(theirs, MESSAGE, 32)
        except ConnectionError:  # the program is gone
            break
        if not message:
            break
        heard, said = os.pipe()
        between = os.fork()
        if not between:  # its child becomes the program's when it ends
            worker = os.fork()
            if not worker:
                os.close(heard), os.close(said)
                _work(json.loads(message), files, theirs, program_id)
            os.write(said, str(worker).encode())
            os._exit(0)
        os.waitpid(between, 0)
        with contextlib.suppress(OSError):
            theirs.send(os.read(heard, 100))
        for file in (*files, heard, said):
            os.close(file)
    os._exit(0)


def _work(request, files, theirs, program_id):
    """Be a worker process: the same files under the same numbers, the same signals, the same code."""
    try:
        theirs.close()
        _control(SET_NAME, WORKER.encode())
        while os.getppid() != program_id and os.path.exists(f"/proc/{program_id}"):
            time.sleep(0.001)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, request["mask"])
        high = [fcntl.fcntl(file, fcntl.F_DUPFD, 200) for file in files]
        for file in files:
            os.close(file)
        for file, number in zip(high, request["numbers"], strict=True):
            os.dup2(file, number)
            os.close(file)
        os.environ.clear()
        os.environ.update(request["environment"])
        sys.argv = request["argv"]
        exec(request["code"], {"__name__": "worker"})
    except SystemExit as end:
        os._exit(end.code or 0)
    except EOFError:  # a program killed between starting a process and telling it what to do; with real ones, at once
        end = (
            time.monotonic() + 10
        )  # a program that is killed closes its files before its children learn of its end
        while os.getppid() == program_id and time.monotonic() < end:
            time.sleep(0.01)
        if os.getppid() == program_id:
            traceback.print_exc()
        os._exit(1)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


def _use(nursery):
    """From now on this process has its workers forked: those of the engine `processes` and those of Dask."""
    import multiprocessing.util

    from manyheads.sweeps import local

    launch = multiprocessing.util.spawnv_passfds

    def forked(code, argv, numbers, environment):
        numbers = sorted({int(number) for number in numbers})
        mask = [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, [])]
        request = dict(
            code=code, argv=argv, numbers=numbers, environment=dict(environment), mask=mask
        )
        socket.send_fds(nursery, [json.dumps(request).encode()], numbers)
        return int(nursery.recv(MESSAGE) or 0)

    def spawn(path, words, numbers):
        code = os.fsdecode(
            words[-2] if words[-1] in ("--multiprocessing-fork", b"--multiprocessing-fork") else b""
        )
        if not code:
            return launch(path, words, numbers)
        return forked(code, ["-c", "--multiprocessing-fork"], numbers, os.environ)

    class Process:
        def __init__(self, command, env, pass_fds, **_):
            code = f"from manyheads.sweeps.worker import main; main({command[-1]})"
            self.pid = forked(code, command[1:], pass_fds, env)

        def kill(self):
            os.kill(self.pid, signal.SIGKILL)

        def wait(self):
            return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    multiprocessing.util.spawnv_passfds = spawn
    local.subprocess = SimpleNamespace(Popen=Process, DEVNULL=None)
