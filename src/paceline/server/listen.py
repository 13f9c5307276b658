"""The socket we listen on: a TCP address, or a path in the file system (--uds); and how many connections may come."""

import contextlib
import errno
import resource
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from paceline.errors import ConfigError

BACKLOG = 2048
MAX_DESCRIPTORS = 65_536


def allow_descriptors() -> None:
    """Raise this process's limit of open files as far as it may: many systems start with 1024, a connection each."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wish = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wish:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wish, hard))


def bind(host: str, port: int) -> socket.socket:
    """A listening TCP socket. Raises ConfigError when the address can't be had."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named because asyncio turns Nagle's algorithm off only where it sees TCP: with it on, the first
    # tokens of an answer wait for the client's delayed acknowledgement, 40 ms.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        listener.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"can't listen on {host} port {port}: {reason}; choose another --host or --port") from None
    return listener


def bind_path(path: Path) -> socket.socket:
    """A listening unix socket. One that a dead process left behind is replaced; anything else at `path` is kept.

    Raises ConfigError when the path can't be had.
    """
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if is_abandoned(path):
            path.unlink()
        listener.bind(str(path))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        # A path that is too long has no errno.
        reason = error.strerror or str(error)
        raise ConfigError(f"can't listen on --uds {path}: {reason}; choose another path") from None
    return listener


def is_abandoned(path: Path) -> bool:
    """Whether a socket is at `path` that nobody listens on."""
    try:
        if not stat.S_ISSOCK(path.stat().st_mode):
            return False
    except OSError:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except OSError as error:
            return error.errno == errno.ECONNREFUSED
    return False


@contextmanager
def listening(host: str, port: int, uds: str | None) -> Iterator[socket.socket]:
    """The listener of a server: the unix socket when one is asked for. Its path goes when the server does."""
    listener = bind(host, port) if uds is None else bind_path(Path(uds))
    try:
        yield listener
    finally:
        listener.close()
        if uds is not None:
            with contextlib.suppress(OSError):
                Path(uds).unlink()


def shown_address(listener: socket.socket, host: str) -> str:
    """The base address of the API as a user would write it."""
    if listener.family == socket.AF_UNIX:
        return f"unix:{listener.getsockname()}"
    shown_host = f"[{host}]" if ":" in host else host
    return f"http://{shown_host}:{listener.getsockname()[1]}/v1"
