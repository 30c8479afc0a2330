"""A Dask scheduler and workers that speak TLS, listen where they are told, and open no HTTP port."""

from __future__ import annotations

from typing import Any

import distributed

PROTOCOL = "tls://"


class Scheduler(distributed.Scheduler):
    """A scheduler without the HTTP server that a dashboard would use."""

    def start_http_server(self, *_: Any, **__: Any) -> None:
        """Open no port."""


class Worker(distributed.Worker):
    """A worker without the HTTP server that a dashboard would use."""

    def start_http_server(self, *_: Any, **__: Any) -> None:
        """Open no port."""


def own_security() -> distributed.Security:
    """A key and a certificate for one run: whoever has them not can neither connect nor listen in."""
    return distributed.Security.temporary()


def scheduler(security: distributed.Security, **where: Any) -> dict[str, Any]:
    """What a SpecCluster needs to know of its scheduler; `where` is its host or its interface."""
    options = dict(
        port=0,
        protocol=PROTOCOL,
        security=security,
        dashboard=False,
        dashboard_address=None,
        **where,
    )
    return {"cls": Scheduler, "options": options}


def local_cluster(
    count: int, environment: dict[str, str], log_level: int
) -> distributed.SpecCluster:
    """A scheduler in this process and `count` worker processes, all on the loopback interface."""
    security, host = own_security(), "127.0.0.1"
    options = dict(
        host=host,
        nthreads=1,
        protocol=PROTOCOL,
        security=security,
        env=environment,
        silence_logs=log_level,
        worker_class=Worker,
        dashboard=False,
    )
    worker = {"cls": distributed.Nanny, "options": options}
    return distributed.SpecCluster(
        workers=dict.fromkeys(range(count), worker),
        worker=worker,
        scheduler=scheduler(security, host=host),
        security=security,
        silence_logs=log_level,
    )
