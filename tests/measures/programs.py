"""Whether a call runs programs that were compiled before: with equal shapes, the same work."""

import contextlib
import logging

import jax


@contextlib.contextmanager
def same_program(caplog, wanted=True):
    """Fail if anything is compiled inside (unless not `wanted`)."""
    caplog.clear()
    with jax.log_compiles(), caplog.at_level(logging.WARNING):
        yield
    compiled = [record.getMessage() for record in caplog.records if "ompil" in record.getMessage()]
    assert not wanted or compiled == []
