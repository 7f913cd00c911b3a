"""To a Ray cluster and back, with a plain word where that fails."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cautious.errors import ClusterError, MissingPackageError

CONNECT_SECONDS = 30.0
"""How long a cluster may take to answer."""

TRY = """
import ray, sys
try:
    ray.init(address=sys.argv[1], log_to_driver=False)
except Exception as error:
    while error.__cause__ is not None:
        error = error.__cause__
    sys.exit(f"{type(error).__name__}: {error}")
"""
"""What a process of its own does to see whether a cluster answers: Ray would try for minutes, and then end the process."""


def require_ray() -> None:
    """Say how to get Ray where it is not installed."""
    try:
        import ray  # noqa: F401
    except ImportError:
        raise MissingPackageError(
            "engine='ray' needs Ray, which is not installed; get it with: pip install 'cautious[ray]'"
        ) from None


@contextmanager
def connected(address: str | None) -> Iterator[None]:
    """Be connected to a Ray cluster for as long as the block lasts.

    Args:
        address: "host:port" of a cluster that this machine is part of, or "auto" to find it; if None, that of the variable
            RAY_ADDRESS; if that is not set either, a cluster of this machine alone is started, and ended with the block.
    """
    import ray

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    place = address or os.environ.get("RAY_ADDRESS") or "local"
    options: dict[str, Any] = {"include_dashboard": False} if place == "local" else {}
    if place != "local":
        _check_answers(place)
    try:
        ray.init(address=place, logging_level=logging.ERROR, log_to_driver=False, **options)
    except (OSError, RuntimeError, ValueError) as error:
        raise _unreachable(place, str(error)) from None
    try:
        yield
    finally:
        ray.shutdown()


def _check_answers(address: str) -> None:
    """Raise unless a Ray cluster answers at `address` within `CONNECT_SECONDS`."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if host and port.isdigit():
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()
        except (OSError, OverflowError) as error:
            raise _unreachable(address, str(error)) from None
    try:
        tried = subprocess.run(
            [sys.executable, "-c", TRY, address], capture_output=True, text=True, timeout=CONNECT_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise _unreachable(address, f"no answer within {CONNECT_SECONDS:g} s; is it a Ray cluster?") from None
    if tried.returncode:
        lines = tried.stderr.strip().splitlines()
        raise _unreachable(address, lines[-1] if lines else f"exit status {tried.returncode}")


def _unreachable(address: str, why: str) -> ClusterError:
    return ClusterError(
        f"address={address!r}: no Ray cluster can be reached there ({why}). Start one with 'ray start --head', join this "
        "machine to it with 'ray start --address=HOST:PORT', and pass the same HOST:PORT."
    )
