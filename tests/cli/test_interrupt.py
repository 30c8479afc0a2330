import contextlib
import os
import signal
import subprocess
import sys

import pytest
from processes import LIMIT, wait_until

BODIES = {
    "a library that does not return": "print(1, flush=True)\nhashlib.pbkdf2_hmac('md5', b'', b'', 2**31 - 1)",
    "an interruption that is dealt with": "try:\n    print(1, flush=True)\n    time.sleep(1000)\nfinally:\n    time.sleep(1000)",
    "the end of the process": "atexit.register(time.sleep, 1000)\nprint(1, flush=True)\ntime.sleep(1000)",
}


@pytest.mark.parametrize("where", BODIES)
def test_ctrl_c_pressed_twice_ends_a_program_at_once_with_one_line(where, start):
    program = (
        "import atexit, hashlib, time\n"
        "from manyheads.cli import interrupt\n"
        "import sys; sys.excepthook = lambda *_: None\n"  # main() turns the first one into a line
        "interrupt.twice_ends_at_once()\n" + BODIES[where]
    )
    process = start(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    process.stdout.readline()

    def press_again():
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGINT)
        return process.poll() is not None

    wait_until(press_again, what="the end")
    err = process.communicate(timeout=LIMIT)[1]
    assert process.returncode == 130 and err == "error: interrupted\n"


@pytest.mark.parametrize(
    "inside",
    [
        "gc.callbacks.append(_xla_gc_callback)\n    gc.collect()",
        "Thing()",
        "discover_pjrt_plugins()",
        "forget()",
        "listen()",
    ],
)
def test_a_ctrl_c_inside_a_callback_is_neither_lost_nor_a_traceback(inside):
    """Where exceptions are printed and dropped: garbage collector, destructors, plugins, weak references, audit hooks."""
    program = (
        "import gc, signal, sys, time\n"
        "from manyheads.cli import interrupt\n"
        "interrupt.twice_ends_at_once()\n"
        "def _xla_gc_callback(*_):\n    gc.callbacks.clear()\n    signal.raise_signal(signal.SIGINT)\n"
        "class Thing:\n    def __del__(self):\n        _xla_gc_callback()\n"
        "def press():\n    signal.raise_signal(signal.SIGINT)\n"
        "def discover_pjrt_plugins():\n    try:\n        press()\n    except BaseException:\n        print('dropped')\n"
        "def _audit_fork_safety(event, _):\n    event == 'heard' and press()\n"
        "def listen():\n    sys.addaudithook(_audit_fork_safety)\n    sys.audit('heard')\n"
        "def forget():\n    import weakref\n    thing = type('Key', (), {})()\n    names = {'press': press}\n"
        "    exec(compile('def remove(_):\\n    press()', '<frozen importlib._bootstrap>', 'exec'), names)\n"
        "    kept = weakref.ref(thing, names['remove'])\n    del thing\n"
        f"try:\n    {inside}\n    time.sleep(1000)\nexcept KeyboardInterrupt:\n    print('interrupted')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "interrupted\n", "")


@pytest.mark.parametrize(("code", "expected"), [(0, 0), (1, 1), (130, 130)])
def test_the_exit_code_stands_once_all_is_said(code, expected):
    program = (
        "import atexit, signal, sys\n"
        "from manyheads.cli import interrupt\n"
        "atexit.register(lambda: [signal.raise_signal(signal.SIGINT) for _ in range(3)])\n"
        f"interrupt.twice_ends_at_once()\ninterrupt.all_is_said({code})\nsys.exit({code})\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (expected, "")


def test_a_program_that_was_told_to_ignore_ctrl_c_does(start):
    program = (
        "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "from manyheads.cli import interrupt\n"
        "interrupt.twice_ends_at_once()\n"
        "signal.raise_signal(signal.SIGINT); signal.raise_signal(signal.SIGINT)\n"
    )
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
