"""The key-value store of a run, for the ranks of a world and for commands of bringupd exec.

Each call runs bringupd kv, which takes about 10 ms. docs/kv.md describes the operations.
"""

from typing import Optional, Union

from bringupd._program import run_program

__all__ = ["abort", "fence", "get", "progress", "put"]

_DEFAULT_TIMEOUT = 300.0


def put(key: str, value: Union[bytes, str]) -> None:
    """Stores a value of at most 1 MiB, which all ranks can get at once. It cannot be changed."""
    run_program(["kv", "put", key], stdin=value.encode() if isinstance(value, str) else bytes(memoryview(value)))


def get(key: str, owner: Union[int, str, None] = None, timeout: Optional[float] = _DEFAULT_TIMEOUT) -> bytes:
    """Waits for a value and returns it. The timeout is in seconds; None waits without one.

    The owner is the number of the rank that puts it, or "n" and the index of a node. None means
    any.
    """
    arguments = ["kv", "get", key, _timeout_flag(timeout)]
    if owner is not None:
        arguments.append(f"--owner={owner}")
    return run_program(arguments)


def fence(name: str = "", timeout: Optional[float] = _DEFAULT_TIMEOUT) -> None:
    """Waits until all ranks of the world have entered the fence of this name."""
    arguments = ["kv", "fence", _timeout_flag(timeout)]
    if name:
        arguments.append(name)
    run_program(arguments)


def abort(code: int, message: str = "") -> None:
    """Ends the job with an exit code from 1 to 255. It may return before this process ends."""
    # The program would take a leading hyphen for that of a flag.
    run_program(["kv", "abort", str(code), f" {message}" if message.startswith("-") else message])


def progress(step: int) -> None:
    """Reports the step that this rank has reached. It needs a program that has kv progress."""
    run_program(["kv", "progress", str(step)])


def _timeout_flag(timeout: Optional[float]) -> str:
    if timeout is None:
        return "--timeout=0"
    if not timeout > 0:
        raise ValueError(f"cannot wait for {timeout} seconds: give a positive number, or None for no timeout")
    return f"--timeout={max(timeout, 0.001):.3f}s"
