"""Runs real jobs on this machine, whose ranks use the package."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Iterator, Mapping
from typing import Any, Optional

import bringupd
from bringupd._decode import known_keys

# Keys of result.json without a field: statistics, and those of all records. Result.raw has them.
UNTYPED = {"v", "nonce", "rank", "host", "share", "lifelines"}
# The same for causes.
UNTYPED_CAUSE = {"v", "nonce", "age_ns", "oom", "report"}
# The same for the status, with the exit code of the program.
UNTYPED_STATUS = {"v", "exit_code"}


class Job:
    """A job of two nodes on this machine with two ranks each, which run Python code."""

    def __init__(self, folder: str, code: str) -> None:
        self.log_dir = os.path.join(folder, "logs")
        self.pipe = os.path.join(folder, "pipe")
        """A named pipe that the ranks find in TEST_PIPE."""
        os.mkfifo(self.pipe)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("BRINGUPD_")}
        flags = [
            "--nodes=2",
            "--ranks-per-node=2",
            "--oversubscribe",
            "--job-id=53",
            f"--log-dir={self.log_dir}",
        ]
        self.process = subprocess.Popen(
            [
                bringupd.find_program(),
                "local",
                *flags,
                "--",
                sys.executable,
                "-c",
                "import bringupd\n" + code,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**environment, "TEST_PIPE": self.pipe},
        )

    def wait(self) -> tuple[int, list[str]]:
        output, _ = self.process.communicate(timeout=120)
        return self.process.returncode, sorted(output.decode().splitlines())

    def stop(self) -> None:
        """Ends the job, which ends its children, unless it is over."""
        if self.process.poll() is None:
            self.process.terminate()
        self.process.communicate(timeout=120)


class TestRun(unittest.TestCase):
    def start(self, code: str) -> Job:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        job = Job(folder.name, code)
        self.addCleanup(job.stop)
        return job

    def assert_known(
        self, value: Mapping[str, Any], cls: Any, untyped: Optional[Mapping[Any, Any]] = None
    ) -> None:
        """Checks that the dataclass has a field for each key of the object."""
        for path, key in unknown_keys(value, cls):
            if key not in (untyped or {}).get(path, ()):
                self.fail(f"{path.__name__} has no field for {key}: {json.dumps(value)[:1000]}")

    def test_ranks_exchange_values(self) -> None:
        job = self.start(
            "from bringupd import kv\n"
            "me = bringupd.Rank.from_environment()\n"
            "node = bringupd.Node.from_environment()\n"
            "kv.put('card', bytes([0, me.rank, 10]))\n"
            "kv.put('name', f'rank {me.rank}')\n"
            "kv.fence()\n"
            "kv.fence('again', timeout=60)\n"
            "peer = me.size - 1 - me.rank\n"
            "print(me.rank, me.local_rank, node.index, list(kv.get('card', owner=peer)), kv.get('name', owner=peer, timeout=None))\n"
        )
        code, lines = job.wait()
        self.assertEqual(code, 0, lines)
        wanted = [
            f"{rank} {rank % 2} {rank // 2} [0, {3 - rank}, 10] b'rank {3 - rank}'" for rank in range(4)
        ]
        self.assertEqual([line for line in lines if line[0].isdigit() and "[0, " in line], wanted)

        status = bringupd.read_status(job.log_dir, all_nodes=True)
        self.assertEqual((status.run, status.state, status.nodes, len(status.all)), ("53", "finished", 2, 2))
        self.assert_known(status.raw, bringupd.Status, {bringupd.Status: UNTYPED_STATUS})
        result = bringupd.read_result(status.path)
        assert result is not None
        self.assertEqual((result.code, result.nodes, result.cause), (0, 2, None))
        self.assert_known(result.raw, bringupd.Result, {bringupd.Result: UNTYPED})

    def test_errors(self) -> None:
        job = self.start(
            "from bringupd import kv\n"
            "if bringupd.Rank.from_environment().rank == 0:\n"
            "    for call in (\n"
            "        lambda: kv.get('missing', timeout=0.2),\n"
            "        lambda: kv.fence('alone', timeout=0.2),\n"
            "        lambda: kv.put('two words', b''),\n"
            "        lambda: kv.put('large', bytes(1 << 21)),\n"
            "    ):\n"
            "        try:\n"
            "            call()\n"
            "        except bringupd.Error as error:\n"
            "            print('got', type(error).__name__, str(error).splitlines()[0])\n"
            "    kv.abort(42, '-1 is no loss')\n"
            "import time\n"
            "time.sleep(60)\n"
        )
        code, lines = job.wait()
        self.assertEqual(code, 42, lines)
        got = [line.split(" ", 2)[1:] for line in lines if line.startswith("got ")]
        names = ["RequestError", "RequestError", "TimeoutExpiredError", "TimeoutExpiredError"]
        self.assertEqual([name for name, _ in got], names)
        self.assertTrue(all(text.startswith("cannot ") for _, text in got), got)

        result = bringupd.read_result(os.path.join(job.log_dir, "53"))
        assert result is not None and result.cause is not None and result.cause.world_rank is not None
        self.assertEqual((result.code, result.word, result.cause.world_rank.number), (42, "rank", 0))
        self.assertIn("-1 is no loss", result.why)
        self.assert_known(
            result.raw, bringupd.Result, {bringupd.Result: UNTYPED, bringupd.Cause: UNTYPED_CAUSE}
        )
        status = bringupd.read_status(job.log_dir)
        assert status.end is not None
        self.assertEqual((status.state, status.end.code), ("failed", 42))
        self.assert_known(status.raw, bringupd.Status, {bringupd.Status: UNTYPED_STATUS})

    def test_life(self) -> None:
        """Follows a run from its start to its end, which is a failure with an indented traceback."""
        job = self.start(
            "import os, time\n"
            "print('begins', flush=True)\n"
            "def train():\n"
            "    raise ValueError('loss is NaN')\n"
            "if bringupd.Rank.from_environment().rank == 3:\n"
            "    open(os.environ['TEST_PIPE']).read()\n"
            "    train()\n"
            "time.sleep(600)\n"
        )
        status = bringupd.wait("53", log_dir=job.log_dir, until="up", timeout=60)
        self.assertEqual((status.run, status.state, status.end), ("53", "up", None))
        with self.assertRaises(bringupd.TimeoutExpiredError):
            bringupd.wait(job.log_dir, timeout=0.1)
        lines = bringupd.logs("53", "rank-3", log_dir=job.log_dir, follow=True)
        self.assertEqual(next(lines), "begins")
        self.assertEqual([each.code for each in bringupd.list_runs(job.log_dir)], [None])

        with open(job.pipe, "w", encoding="utf-8"):  # rank 3 goes on
            pass
        traceback = list(lines)
        self.assertIn("ValueError: loss is NaN", traceback)
        status = bringupd.wait(job.log_dir, timeout=60)
        assert status.end is not None
        self.assertEqual((status.state, status.end.code), ("failed", 1))
        self.assertEqual(status.end.lines[-len(traceback) :], tuple(traceback[-len(status.end.lines) :]))
        self.assertTrue(any(line.startswith("  File ") for line in status.end.lines), status.end.lines)
        (summary,) = bringupd.list_runs(job.log_dir)
        self.assertEqual((summary.run, summary.state, summary.code), ("53", "failed", 1))
        result = bringupd.read_result(status.path)
        assert result is not None and result.cause is not None
        errors = {status.end.error, summary.error, result.error, result.cause.error}
        self.assertEqual(errors, {"ValueError: loss is NaN"})
        self.assert_known(status.raw, bringupd.Status, {bringupd.Status: UNTYPED_STATUS})
        assert summary.started_at is not None and summary.ended_at is not None
        self.assertLess(summary.started_at, summary.ended_at)
        bringupd.stop(job.log_dir)
        with self.assertRaises(bringupd.Error):
            list(bringupd.logs(job.log_dir, "rank-9"))

    def test_stop(self) -> None:
        job = self.start("import time\nprint('sleeps', flush=True)\ntime.sleep(600)\n")
        bringupd.wait("53", log_dir=job.log_dir, until="up", timeout=60)
        lines = bringupd.logs("53", 1, log_dir=job.log_dir, follow=True)
        next(lines)
        lines.close()
        bringupd.stop("53", log_dir=job.log_dir)
        self.assertEqual(job.wait()[0], 143)
        status = bringupd.wait("53", log_dir=job.log_dir)
        assert status.end is not None
        self.assertEqual(status.end.code, 143)

    def test_why(self) -> None:
        job = self.start(
            "import time\n"
            "from bringupd import kv\n"
            "if bringupd.Rank.from_environment().rank == 2:\n"
            "    print('sleeps', flush=True)\n"
            "    time.sleep(600)\n"
            "kv.fence('start')\n"
        )
        # The run has begun when rank 2 has printed its line.
        assert job.process.stdout is not None
        while line := job.process.stdout.readline():
            if b"sleeps" in line:
                break
        self.assertTrue(line, "the job has ended")
        status = bringupd.read_status(job.log_dir)
        self.assertEqual((status.state, status.end), ("up", None))
        self.assertIsNone(bringupd.read_result(status.path))
        # The other ranks enter the fence soon.
        for _ in range(20):
            snapshot = bringupd.ask_why(job.log_dir)
            waiting = {child.child: child.waits[0].missing for child in snapshot.children if child.waits}
            if len(waiting) == 3:
                break
        self.assertEqual(waiting, {f"rank {rank}": (2,) for rank in (0, 1, 3)}, snapshot.raw)
        self.assertEqual(snapshot.silent, ())
        self.assert_known(snapshot.raw, bringupd.Snapshot)


def unknown_keys(value: Mapping[str, Any], cls: Any) -> Iterator[tuple[Any, str]]:
    """Yields the keys of an object, and of those in it, for which their dataclass has no field."""
    known = known_keys(cls)
    for key, item in value.items():
        if key not in known:
            yield cls, key
        elif known[key] is not None:
            for each in item if isinstance(item, list) else [item]:
                yield from unknown_keys(each, known[key])
