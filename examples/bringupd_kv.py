"""A client of bringupd's key-value store: put, get, fence and abort. It needs no other file or package.

    import bringupd_kv
    with bringupd_kv.Client() as meeting:
        meeting.put("addr", b"10.0.0.1:7000")
        meeting.fence()
        address = meeting.get("addr", owner=0, timeout=30)

BRINGUPD_SOCKET is the path of the daemon's socket, and BRINGUPD_RANK is the number of this rank. See docs/kv.md.
"""

import base64
import json
import os
import socket


class MeetingError(Exception):
    """An error reported by the daemon.

    late is set if the timeout has expired, gone if the request can never be fulfilled, and refused if the node has no
    peer link.
    """

    def __init__(self, says, late=False, gone=False, refused=False):
        super().__init__(says)
        self.late, self.gone, self.refused = late, gone, refused


class Client:
    def __init__(self, path=None, rank=None):
        path = path or os.environ.get("BRINGUPD_SOCKET")
        if not path:
            raise MeetingError("cannot use the key-value store of this run: BRINGUPD_SOCKET is not set; it is set for ranks (bringupd --ranks-per-node)")
        if rank is None and os.environ.get("BRINGUPD_RANK"):
            rank = int(os.environ["BRINGUPD_RANK"])
        self._last = 0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.connect(path)
            self._lines = self._socket.makefile("rb")
            self._ask(op="hello", **({} if rank is None else {"rank": rank}))
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Closes the connection. Values that were put but not committed are discarded."""
        self._lines.close()
        self._socket.close()

    def put(self, key, value, commit=True):
        """Stores bytes or text. If commit is false, other ranks see the value only after commit()."""
        if isinstance(value, str):
            value = value.encode()
        self._ask(op="put", key=key, value=base64.b64encode(value).decode(), commit=commit)

    def commit(self):
        self._ask(op="commit")

    def get(self, key, owner=None, timeout=0):
        """Waits for a value and returns its bytes. timeout is in seconds; 0 means no timeout.

        The owner is the number of a rank, or "n" and the index of a node; None means any owner.
        """
        answer = self._ask(op="get", key=key, owner="" if owner is None else str(owner), timeout=timeout)
        return base64.b64decode(answer.get("value", ""))

    def fence(self, name="", timeout=0):
        """Waits until all ranks have entered the fence of this name as many times as this rank."""
        self._ask(op="fence", name=name, timeout=timeout)

    def abort(self, code, message):
        """Ends the job with an exit code from 1 to 255."""
        self._ask(op="abort", code=code, message=message)

    def _ask(self, **ask):
        self._last += 1
        self._socket.sendall(json.dumps({"id": self._last, **ask}).encode() + b"\n")
        line = self._lines.readline()
        if not line:
            raise MeetingError("cannot read from this node's key-value store any longer: the run is over", gone=True)
        answer = json.loads(line)
        if "error" in answer:
            raise MeetingError(answer["error"], answer.get("late", False), answer.get("gone", False), answer.get("refused", False))
        return answer
