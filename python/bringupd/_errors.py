"""The exceptions of this package."""


class Error(Exception):
    """The base class of all exceptions of this package."""


class NotInRunError(Error):
    """A variable is not set: the process is not part of a run, or not one of that kind."""


class RequestError(Error):
    """The request is invalid, or there is no such run: exit code 64 of the program."""


class NoPeerLinkError(Error):
    """The node has no peer link, without which ranks cannot exchange values: exit code 65."""


class UnavailableError(Error):
    """The awaited rank or the run has ended, or its head does not answer: exit code 76."""


class TimeoutExpiredError(Error, TimeoutError):
    """The timeout has expired: exit code 124. The message names the missing ranks."""
