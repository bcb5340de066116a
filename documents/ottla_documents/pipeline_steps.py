"""spec.steps of a KafkaPipeline: each makes one view of those before it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ottla_broker.config import is_meant
from ottla_documents.fields import Fields
from ottla_documents.sql_views import is_query, views_read

SOURCE_VIEW = "source"
ERROR_COLUMN = "_error"
"""Rows of the last view in which this column is not null go to the dead letters."""
_VIEW = r"[A-Za-z_][A-Za-z0-9_]{0,127}"
_VIEW_FORM = "letters, digits and _, not beginning with a digit, at most 128"
_FUNCTION = r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*"


@dataclass(frozen=True, slots=True)
class SqlStep:
    """A query over the views before it."""

    name: str
    sql: str


@dataclass(frozen=True, slots=True)
class PythonStep:
    """A function that takes the DataFrame of `view` and returns one. `function`: "module:function"."""

    name: str
    function: str
    view: str


Step = SqlStep | PythonStep


@dataclass(slots=True)
class Views:
    """The views that a step or the sink can read. `is_known`: false after a step without a usable name, since a view
    that is missing may be that one."""

    names: list[str]
    is_known: bool = True

    def check(self, fields: Fields, field: str, view: str) -> None:
        """A view that is read and not there is a problem of the field. Names have no case, as in Spark's SQL."""
        if self.is_known and view and not self.has(view):
            names = ", ".join(self.names)
            fields.problem(field, f"no view {view!r} is there; there are {names}{is_meant(view, self.names)}")

    def has(self, view: str) -> bool:
        return view.lower() in map(str.lower, self.names)


def parse_steps(spec: Fields) -> tuple[tuple[Step, ...], Views]:
    """Reads `steps` below spec; none makes `source` the result."""
    steps: list[Step] = []
    views = Views([SOURCE_VIEW])
    known = len(spec.problems)
    for item in spec.items("steps"):
        if len(spec.problems) > known:  # of an item that is no mapping
            views.is_known = False
        before = len(spec.problems)
        name = item.text("name", pattern=_VIEW, form=_VIEW_FORM)
        if name.lower() == SOURCE_VIEW:
            item.problem("name", f"{name} is the view of the source; choose another name")
        elif name and views.has(name):
            item.problem("name", f"{name} is the name of a step before; names have no case")
        is_usable = len(spec.problems) == before
        step = _python(item, name, views) if item.has("python") else _sql(item, name, views)
        item.finish()
        steps.append(step)
        if is_usable:
            views.names.append(name)
        else:
            views.is_known = False
        known = len(spec.problems)
    if len(spec.problems) > known:
        views.is_known = False
    return tuple(steps), views


def _python(item: Fields, name: str, views: Views) -> PythonStep:
    if item.has("sql"):
        item.problem("python", "a step has either sql or python")
    function = item.text("python", "")
    if isinstance(item.values.get("python"), str) and not re.fullmatch(_FUNCTION, function):
        item.problem("python", f"must be module:function, such as flights.steps:clean, not {function!r}")
    view = item.text("from", views.names[-1])
    views.check(item, "from", view)
    return PythonStep(name, function, view)


def _sql(item: Fields, name: str, views: Views) -> SqlStep:
    sql = item.text("sql", "").strip().rstrip(";").strip()
    if item.has("from"):
        item.problem("from", "goes with python; a query names its views itself")
    if not item.has("sql"):
        item.problem("sql", "is required, or python")
    elif isinstance(item.values["sql"], str):
        if not is_query(sql):
            item.problem("sql", "must be a query: SELECT ... or WITH ...")
        else:
            for view in views_read(sql):
                views.check(item, "sql", view)
    return SqlStep(name, sql)
