"""Errors as Spark's users see them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from ottla_pipeline.errors import PipelineError

P = ParamSpec("P")
T = TypeVar("T")


def plainly(function: Callable[P, T]) -> Callable[P, T]:
    """Spark prints the traceback of what a data source raises: an error that speaks for itself gets a short one."""

    @functools.wraps(function)
    def call(*arguments: P.args, **named: P.kwargs) -> T:
        try:
            return function(*arguments, **named)
        except PipelineError as error:
            raise error.with_traceback(None) from None

    return call
