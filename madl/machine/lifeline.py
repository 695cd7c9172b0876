"""Ends all processes that a run has started and removes its temporary files, however it ends.

A child of ours asks the kernel to be killed with its parent. A process that this child or a library
starts cannot be made to ask: so a **guard**, a small process in a session of its own, waits for the
end of the process that it guards. Then it kills all processes with that process's mark in their
environment, which all descendants inherit, and removes its temporary files.

Not handled: descendants that drop the environment, and a guard that is killed before the process
that it guards: what a library has started may then stay. Without `/proc` (macOS) the guard finds no
process, and only children that ask for it (`end_with`) end.
"""

import contextlib
import functools
import os
import shutil
import signal
import sys
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

MARK = "MADL_RUN"
STOPPED = "stopped; run the same command again to go on"
UNWIND_S = 1.5  # that a run has, after Ctrl-C, to end by itself
QUIET_S = 0.5  # after which, if no marked process was seen, none is left
PATIENCE_S = 10.0  # after which the guard gives up on processes that keep coming
PR_SET_PDEATHSIG = 1


def end_with(parent: int) -> None:
    """Have this process end when its parent, given by process id, ends.

    Linux kills it when the *thread* that started it ends, which in both our uses outlives it.
    """
    import threading

    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it was faster than we
            os._exit(1)
        return

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextlib.contextmanager
def guarded(folder: Path) -> Generator[Path]:
    """Have this process guarded; its and its children's temporary files go into the yielded folder.

    That folder is new, below `folder`, and removed afterwards, by the guard if need be; those that
    dead runs left there are removed first. The guard stays as long as this process lives. Ctrl-C
    kills at once what this process has started, as Python would wait for it otherwise.
    """
    import tempfile
    import uuid

    from filelock import FileLock

    own = folder.resolve() / uuid.uuid4().hex[:12]
    lock = FileLock(f"{own}.lock")
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".lock"):
        _sweep(folder)
        lock.acquire()
        own.mkdir()
    before = os.environ.get("TMPDIR")
    _tell(os.fsencode(own))
    os.environ["TMPDIR"] = tempfile.tempdir = str(own)  # nowhere else, if that is full
    try:
        with _ends_on_ctrl_c():
            yield own
    finally:
        os.environ.pop("TMPDIR")
        if before is not None:
            os.environ["TMPDIR"] = before
        tempfile.tempdir = None
        shutil.rmtree(own, ignore_errors=True)
        lock.release()
        Path(lock.lock_file).unlink(missing_ok=True)


def _sweep(folder: Path) -> None:
    """Remove the temporary files of runs that no longer live, which hold no lock."""
    from filelock import FileLock, Timeout

    for path in folder.glob("[!.]*"):
        if path.suffix == ".lock":
            continue
        with contextlib.suppress(Timeout, OSError), FileLock(f"{path}.lock", timeout=0):
            shutil.rmtree(path, ignore_errors=True)
            Path(f"{path}.lock").unlink(missing_ok=True)


@contextlib.contextmanager
def _ends_on_ctrl_c() -> Generator[None]:
    """Within the context, Ctrl-C ends what this process has started, and soon this process itself.

    A library that is interrupted while it starts a process may wait for it for ever. In a `__del__`
    Python swallows Ctrl-C and prints a traceback, which is kept back. Has no effect outside of the
    main thread, or where another handler is set.
    """
    import threading

    is_usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if threading.current_thread() is not threading.main_thread() or not is_usual:
        yield
        return
    done = threading.Event()

    def give_up() -> None:
        if not done.wait(UNWIND_S):
            os.write(2, f"\n{STOPPED}\n".encode())
            os._exit(130)

    def stop(number: int, frame: Any) -> None:
        _tell(END_ALL)
        threading.Thread(target=give_up, daemon=True).start()
        signal.default_int_handler(number, frame)

    def report(swallowed: Any) -> None:
        if not issubclass(swallowed.exc_type, KeyboardInterrupt):
            usual(swallowed)

    usual, sys.unraisablehook = sys.unraisablehook, report
    signal.signal(signal.SIGINT, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.unraisablehook = usual
        done.set()


END_ALL = b""  # to the guard: kill now; anything else is a folder to remove at the end


def _tell(message: bytes) -> None:
    """Send the guard a message: `END_ALL`, or a folder to remove at the end."""
    if (guard := _guard()) is not None:
        with contextlib.suppress(OSError):  # it was killed; the next run sweeps
            os.write(guard, message + b"\0")


@functools.cache
def _guard() -> int | None:
    """Start this process's guard, once, and return the pipe to it; None: it could not be started.

    Messages in the pipe are those of `_tell`. Children inherit the mark that is set here.
    """
    import uuid

    name = uuid.uuid4().hex
    environment = {key: value for key, value in os.environ.items() if key != MARK}
    os.environ[MARK] = f"{os.environ.get(MARK, '')} {name}".strip()
    reading, writing = os.pipe()
    null = os.open(os.devnull, os.O_RDWR)
    files = [(os.POSIX_SPAWN_DUP2, handle, i) for i, handle in enumerate((reading, null, null))]
    command = [sys.executable, "-I", "-S", str(Path(__file__).resolve()), name, str(os.getpid())]
    try:
        os.posix_spawn(sys.executable, command, environment, file_actions=files, setsid=True)
    except (OSError, NotImplementedError):  # no memory for one more process, say: then without
        os.close(writing)
        return None
    finally:
        os.close(reading)
        os.close(null)
    return writing


# ---- the guard itself: nothing of ours is imported ----------------------------------------------


def _watch(name: str, parent: int) -> None:
    """Be the guard: wait until the guarded process has ended, then end what it started.

    Messages come on stdin. `name` is the mark, `parent` the id of the guarded process.
    """
    import select

    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    folders: list[bytes] = []
    rest = b""
    while os.getppid() == parent:  # a forked child may hold the pipe open
        if select.select([0], [], [], 0.5)[0]:
            if not (more := os.read(0, 65536)):
                break
            *messages, rest = (rest + more).split(b"\0")
            folders += filter(None, messages)
            if END_ALL in messages:
                _kill(_marked(name))
    seen = start = time.monotonic()
    while (now := time.monotonic()) < min(seen + QUIET_S, start + PATIENCE_S):
        if processes := _marked(name):  # one that is just starting has its mark a little later
            _kill(processes)
            seen = now
        time.sleep(0.02)
    for folder in folders:
        shutil.rmtree(os.fsdecode(folder), ignore_errors=True)


def _kill(processes: list[int]) -> None:
    for pid in processes:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def _marked(name: str) -> list[int]:
    """The ids of living processes that carry this mark in their environment.

    Python's resource trackers are left to clean up: each ends when all processes that it serves do.
    """
    processes: list[int] = []
    for entry in os.listdir("/proc") if os.path.isdir("/proc") else []:
        with contextlib.suppress(OSError):
            if not entry.isdigit() or b"resource_tracker" in _read(f"/proc/{entry}/cmdline"):
                continue
            variables = _read(f"/proc/{entry}/environ").split(b"\0")
            marks = [value for value in variables if value.startswith(f"{MARK}=".encode())]
            if any(name.encode() in mark for mark in marks):
                processes.append(int(entry))
    return processes


def _read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


if __name__ == "__main__":
    _watch(sys.argv[1], int(sys.argv[2]))
