"""Commands that are attacked, and what they must leave behind."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import forks
import psutil

from manyheads.sweeps.assembly import open_sweep
from manyheads.sweeps.plan import make_plan
from manyheads.sweeps.spec import Sweep
from manyheads.sweeps.store import Store, StoreError

KILL, GROUP, WORKER, SCHEDULER = (
    "kill -9",
    "kill -9 of the group",
    "kill -9 of a worker",
    "kill -9 of the scheduler",
)
ONCE, TWICE, STOP = "SIGINT", "SIGINT twice", "SIGSTOP and SIGCONT"
SIGNALS = {
    "SIGTERM": signal.SIGTERM,
    "SIGHUP": signal.SIGHUP,
    ONCE: signal.SIGINT,
    TWICE: signal.SIGINT,
}
SIGNALS |= {KILL: signal.SIGKILL, GROUP: signal.SIGKILL, STOP: signal.SIGSTOP}
EXITS = {KILL: -9, GROUP: -9, "SIGTERM": -15, "SIGHUP": -1, ONCE: 130, TWICE: 130}
REFUSED = 2  # one line says why, and the same command goes on later
POINTS = ("half written", "before fsync", "before rename", "after rename")
SWEEP = Sweep(name="killed", cell="sweep_cells:drawn", seeds=24)
STEPS = 12_000
LIMIT = 300  # seconds; only what hangs takes so long


class Fault(Exception):
    """What must not happen: (outcome, detail)."""


class Victim:
    """One command, started again and again on one folder."""

    def __init__(self, engine: str, folder: Path):
        self.engine, self.folder, self.real = engine, folder, engine.startswith("real")
        self.kills, self.output, self.struck = 0, folder / "output", folder / "struck"
        self.environment = {"XDG_CACHE_HOME": str(cache()), "SWEEP_LOG": str(folder / "log")}

    def words(self) -> list[str]:
        """The command line."""
        return [sys.executable, "-c", ""]  # a command that does nothing

    def patch(self) -> None:
        """In the process of the command, before it begins."""

    def begin(self, aim=lambda: None) -> int:
        """Start the command; the number of its process."""
        self.output.write_text("")
        self.struck.write_text("")
        if self.real:
            paths = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            command = [sys.executable, "-m", "manyheads.cli.main", *map(str, self.words())]
            with open(self.output, "ab") as out:
                environment = {**os.environ, **self.environment, **paths}
                options = dict(
                    stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
                )
                self.process = subprocess.Popen(
                    command, env=environment, preexec_fn=forks.usual_signals, **options
                )
            return self.process.pid

        def body() -> int:
            self.patch()
            aim()
            return forks.program(*self.words())()

        return forks.start(body, self.output, self.environment)

    def attacked(self, attack: str, rng) -> bool:
        """Run the command once under attack; whether it refused to go on."""
        aimed = not self.real and attack != SCHEDULER and rng.random() < 0.5
        point, number = str(rng.choice(POINTS)), int(rng.integers(1, 5))
        delay, pause = float(rng.uniform(0, 0.6 * self.span())), float(rng.uniform(0, 0.3))
        whom = str(rng.choice([KILL, GROUP, WORKER])) if attack == STOP else attack
        process = self.begin(
            (lambda: self.aim(attack, whom, point, number)) if aimed else lambda: None
        )
        code = None
        if not aimed:
            self.wait_for_the_program(process)
            code = forks.wait(process, delay)
            if code is None:
                self.send(attack, whom, self.targets(whom, process))
        code = self.end_of(process, code, attack, pause)
        self.kills += len(self.struck.read_text())
        self.look_at_the_end(process, code, attack)
        return code == REFUSED

    def wait_for_the_program(self, process: int) -> None:
        """Of a real command: until it imports JAX. Before, an interpreter starts, and Ctrl-C is its own affair."""
        while self.real and state(process) not in ("Z", ""):
            with contextlib.suppress(OSError):
                if "jaxlib" in Path(f"/proc/{process}/maps").read_text():
                    return
            time.sleep(0.02)

    def targets(self, whom: str, process: int) -> list[int]:
        """The processes to attack, at most one."""
        return forks.workers(process)[:1] if whom == WORKER else [process]

    def send(self, attack: str, whom: str, targets: list[int]) -> None:
        """Attack, and note before that it happens: a killed process says nothing after it."""
        for target in targets:
            with open(self.struck, "a") as file:
                file.write("x")
            with contextlib.suppress(ProcessLookupError):
                number = SIGNALS.get(attack, signal.SIGKILL)
                if whom in (GROUP, "SIGHUP", ONCE, TWICE):  # as a terminal does
                    os.killpg(target, number)
                else:
                    os.kill(target, number)

    def aim(self, attack: str, whom: str, point: str, number: int) -> None:
        """In the process of the command: be struck at the `number`-th time that it comes to a point.

        What it survives strikes it again, every fourth time.
        """
        replace, fsync, passed = os.replace, os.fsync, [0]

        def come(here: str, file: int | None = None) -> None:
            passed[0] += here == point
            again = (
                attack in (WORKER, STOP)
                and number < passed[0] < 16
                and (passed[0] - number) % 4 == 0
            )
            if here == point and (again or passed[0] == number):
                if file is not None and EXITS.get(attack, 0) < 0:
                    os.truncate(file, os.fstat(file).st_size // 2)
                self.send(attack, whom, self.targets(whom, os.getpid()))

        def noisy_fsync(file: int) -> None:
            if os.readlink(f"/proc/self/fd/{file}").endswith(".tmp"):
                come("half written", file)
                come("before fsync")
            fsync(file)

        def noisy_replace(*names, **options) -> None:
            come("before rename")
            replace(*names, **options)
            come("after rename")

        os.replace, os.fsync = noisy_replace, noisy_fsync

    def end_of(self, process: int, code: int | None, attack: str, pause: float) -> int:
        """Wait for the end; press Ctrl-C again, and let go on what is stopped."""
        deadline = time.monotonic() + LIMIT
        while code is None:
            code = forks.wait(process, 0.05)
            if code is None and attack == TWICE and self.struck.read_text():
                time.sleep(pause)
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process, signal.SIGINT)
            if (
                code is None
                and attack == STOP
                and "T" in map(state, [process, *forks.workers(process)])
            ):
                time.sleep(pause)
                os.killpg(process, signal.SIGCONT)
            self.tend()
            if code is None and time.monotonic() > deadline:
                os.killpg(process, signal.SIGKILL)
                raise Fault("hang", self.output.read_text())
        return code

    def tend(self) -> None:
        """Do what a user would do while the command runs."""

    def look_at_the_end(self, process: int, code: int, attack: str | None) -> None:
        """No traceback, an exit code that fits, and nothing left of the session."""
        said = self.output.read_text(errors="replace")
        if "Traceback" in said:
            raise Fault("traceback", said)
        fine = {0, EXITS.get(attack or "", 0)}
        if attack in (WORKER, SCHEDULER):
            fine |= {1, REFUSED}
        if code not in fine:
            raise Fault("other exit", f"exit code {code} after {attack}: {said}")
        if code == 130 and "interrupted" not in said:
            raise Fault("other exit", f"exit code 130 and no word: {said}")
        deadline = time.monotonic() + LIMIT
        while left := session(process):
            if time.monotonic() > deadline:
                for number in left:
                    os.kill(number, signal.SIGKILL)
                raise Fault("process left", str(left))
            time.sleep(0.02)

    def span(self) -> float:
        """Seconds that a run in peace takes, at least."""
        return reference(self.engine)[0]

    def end_in_peace(self) -> None:
        process = self.begin()
        code = forks.wait(process, LIMIT)
        if code is None:
            os.killpg(process, signal.SIGKILL)
            raise Fault("hang", self.output.read_text())
        if code:
            raise Fault("other exit", f"exit code {code} in peace: {self.output.read_text()}")
        self.look_at_the_end(process, 0, None)

    def close(self) -> None:
        """End what the trial has started."""


class Sweeping(Victim):
    """A sweep of 24 cells that note when they run."""

    def __init__(self, engine: str, folder: Path):
        super().__init__(engine, folder)
        self.store, self.before, self.scheduler, self.helper = Store(folder / "out"), {}, 0, 0
        SWEEP.save(folder / "s.toml")

    def words(self) -> list:
        options = ["--engine", "here"]
        if self.engine in ("processes", "dask"):
            options = ["--engine", self.engine, "--workers", "2"]
        if self.engine == "dask at an address":
            options = ["--engine", "dask", "--scheduler", self.address()]
        return [
            "sweep",
            self.folder / "s.toml",
            "--out",
            self.store.path,
            "--no-cache",
            "--quiet",
            *options,
        ]

    def address(self) -> str:
        """Of a scheduler with one worker, started where there is none."""
        if not (
            self.scheduler and {state(self.scheduler), state(self.helper)} & {"Z", ""} == set()
        ):
            self.close()
            file = self.folder / "address"
            file.unlink(missing_ok=True)
            self.scheduler = forks.start(
                functools.partial(serve, file), self.folder / "scheduler.log"
            )
            while not file.is_file():
                time.sleep(0.02)
            self.begin_helper()
        return (self.folder / "address").read_text()

    def begin(self, aim=lambda: None) -> int:
        self.words()  # the scheduler is no child of the command
        return super().begin(aim)

    def targets(self, whom: str, process: int) -> list[int]:
        if self.engine == "dask at an address" and whom in (WORKER, SCHEDULER):
            return [self.helper if whom == WORKER else self.scheduler]
        return super().targets(whom, process)

    def tend(self) -> None:
        """Start another worker where the last one has ended."""
        if self.helper and state(self.helper) == "Z" and state(self.scheduler) not in ("Z", ""):
            os.waitpid(self.helper, 0)
            self.begin_helper()

    def begin_helper(self) -> None:
        body = functools.partial(help_at, (self.folder / "address").read_text())
        self.helper = forks.start(body, self.folder / "worker.log", self.environment)

    def finished(self) -> bool:
        return len(self.before) == len(SWEEP.seeds)

    def check(self) -> None:
        """What was there is still there and untouched, and everything can be read."""
        parts = self.store.parts
        after = (
            {p.name: (p.stat().st_ino, p.stat().st_mtime_ns) for p in parts.glob("*.npz")}
            if parts.is_dir()
            else {}
        )
        if not self.before.items() <= after.items():
            raise Fault("result lost", f"{self.before} became {after}")
        for name in after:
            try:
                self.store.check(name.removesuffix(".npz"))
            except StoreError as error:
                raise Fault("unreadable part", str(error)) from None
        self.before = after

    def compare(self) -> None:
        self.check()
        found, expected = open_sweep(self.store.path), open_sweep(reference("here")[1] / "out")
        same = set(found.variables) == set(expected.variables) and all(
            found[name].values.tobytes() == expected[name].values.tobytes()
            for name in found.variables
        )
        if not same or not (found.status == "finished").all():
            raise Fault("other bits", str(found))
        written = {}
        for batch in self.store.manifest()["batches"]:
            for position in batch["cells"]:
                written[make_plan(SWEEP).cells[position].hash] = (
                    self.store.part(batch["id"]).stat().st_mtime
                )
        ran = [line.split() for line in (self.folder / "log").read_text().splitlines()]
        late = [name for moment, name in ran if float(moment) > written[name] + 0.05]
        if late:
            raise Fault("finished batch run twice", str(late))

    def close(self) -> None:
        for process in filter(None, (self.scheduler, self.helper)):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(process, 0)
        self.scheduler = self.helper = 0


class Training(Victim):
    """A training that replaces its checkpoint after every stretch of steps."""

    def __init__(self, engine: str, folder: Path):
        super().__init__(engine, folder)
        self.file, self.last = folder / "run.npz", -1

    def words(self) -> list:
        words = [
            "train",
            "mixture",
            "--heads",
            "4",
            "--start",
            "zero",
            "--examples",
            "6",
            "--test-examples",
            "0",
        ]
        resume = ["--resume", self.file] if self.file.exists() else []
        return [*words, "--steps", STEPS, "--quiet", "--out", self.file, *resume]

    def patch(self) -> None:
        import jax

        from manyheads.training import descent, loop

        descent.CHECKPOINT_SECONDS, loop.STRETCH_SECONDS = -1, 0.02
        jax.config.update("jax_compilation_cache_dir", str(cache() / "jax"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)

    def finished(self) -> bool:
        return self.last == STEPS

    def read(self) -> tuple[int, str]:
        """(the last step, a hash of everything in it) of the file, by another process; (-1, "") without one."""
        if not self.file.exists():
            return -1, ""
        answer = self.folder / "answer"
        code = forks.wait(
            forks.start(functools.partial(digest, self.file, answer), self.output), LIMIT
        )
        if code != 0:
            raise Fault("unreadable part", self.output.read_text())
        last, said = answer.read_text().split()
        return int(last), said

    def check(self) -> None:
        last, _ = self.read()
        if last < self.last:
            raise Fault("result lost", f"step {last} after step {self.last}")
        self.last = last

    def compare(self) -> None:
        self.check()
        other = Training("train", reference("train")[1])
        if self.read() != other.read():
            raise Fault("other bits", f"{self.read()} and {other.read()}")


def digest(file: Path, answer: Path) -> int:
    """Read a trajectory; its last step and a hash go to a file."""
    import jax
    import numpy as np

    from manyheads.training.trajectory import Trajectory

    run, seen = Trajectory.load(file), hashlib.sha256()
    leaves = [
        run.steps,
        run.train_loss,
        run.gradient_norm,
        run.distance,
        run.margin,
        run.attention_mass,
    ]
    for leaf in [
        *leaves,
        *jax.tree.leaves((run.displacement, run.optimizer_state, run.final.parameters)),
    ]:
        seen.update(np.ascontiguousarray(leaf).tobytes())
    answer.write_text(f"{run.last_step} {seen.hexdigest()}")
    return 0


def serve(file: Path) -> int:
    """Be a Dask scheduler."""
    import asyncio

    import distributed

    async def run() -> None:
        async with distributed.Scheduler(host="127.0.0.1", port=0, dashboard=False) as scheduler:
            file.with_suffix(".new").write_text(scheduler.address)
            file.with_suffix(".new").rename(file)
            await scheduler.finished()

    asyncio.run(run())
    return 0


def help_at(address: str) -> int:
    """Be a Dask worker."""
    import asyncio

    import distributed

    async def run() -> None:
        async with distributed.Worker(address, nthreads=1, dashboard=False) as worker:
            await worker.finished()

    asyncio.run(run())
    return 0


def make(engine: str, folder: Path) -> Victim:
    return (Training if "train" in engine else Sweeping)(engine, folder)


@functools.cache
def reference(engine: str) -> tuple[float, Path]:
    """(seconds that a run in peace takes, its folder), the first one to compile apart."""
    for number in range(1 if engine.startswith("real") else 2):
        folder = cache() / f"{engine.replace(' ', '-')}-{number}"
        folder.mkdir()
        victim, began = make(engine, folder), time.monotonic()
        try:
            victim.end_in_peace()
        finally:
            victim.close()
    return time.monotonic() - began, folder


@functools.cache
def cache() -> Path:
    """A folder for this process: compiled programs, and runs in peace."""
    folder = tempfile.TemporaryDirectory(prefix="manyheads-torture-")
    KEPT.append(folder)
    return Path(folder.name)


KEPT: list = []  # folders that are removed when this process ends


def session(process: int) -> list[int]:
    """What is left of the session that a process began."""
    left = []
    for number in psutil.pids():
        with contextlib.suppress(OSError):
            if os.getsid(number) == process and state(number) not in ("Z", ""):
                left.append(number)
    return left


def state(process: int) -> str:
    """One letter, as the operating system has it; "" if there is no such process."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    return ""
