"""spec.steps of a KafkaPipeline: each makes one view of those before it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, TypeAlias

from ottla_broker.config import is_meant
from ottla_documents.schema.marks import Problem, Rule, Text
from ottla_documents.sql_views import is_query, views_read

SOURCE_VIEW = "source"
ERROR_COLUMN = "_error"
"""Rows of the last view in which this column is not null go to the dead letters."""
ViewName: TypeAlias = Annotated[
    str, Text(r"[A-Za-z_][A-Za-z0-9_]*", "letters, digits and _, not beginning with a digit", most=128)
]
_FUNCTION = Text(
    r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", "module:function, such as flights.steps:clean", most=512
)


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


@dataclass(frozen=True, slots=True)
class StepDocument:
    """A step makes a view, by a query or by a function."""

    RULES: ClassVar[tuple[Rule, ...]] = (
        Rule("has(self.sql) != has(self.python)", "a step has either sql or python"),
        Rule("!has(self.sql) || !has(self.from)", "from goes with python; a query names its views itself"),
    )
    name: ViewName
    """The name of the view. Names have no case; `source` is the view of the source."""
    sql: Annotated[str | None, Text(least=1, most=65536)] = None
    """A query over the views before it."""
    python: Annotated[str | None, _FUNCTION] = None
    """In place of sql, module:function; the image has the module. The function takes a DataFrame and returns one."""
    from_: Annotated[str | None, Text(most=128)] = None
    """The view whose DataFrame the function takes. Default: the one before."""

    def problems(self) -> Iterator[tuple[str, str]]:
        if self.sql is None and self.python is None:
            yield "sql", "is required, or python"
        elif self.sql is not None and self.python is not None:
            yield "python", "a step has either sql or python"
        if self.sql is not None and not is_query(self.sql):
            yield "sql", "must be a query: SELECT ... or WITH ..."
        if self.sql is not None and self.from_ is not None:
            yield "from", "goes with python; a query names its views itself"


@dataclass(slots=True)
class Views:
    """The views that a step or the sink can read. `is_known`: false after a step without a usable name, since a view
    that is missing may be that one."""

    names: list[str]
    is_known: bool = True

    def check(self, path: str, view: str, problems: list[Problem]) -> None:
        """A view that is read and not there is a problem of the field. Names have no case, as in Spark's SQL."""
        if self.is_known and view and not self.has(view):
            names = ", ".join(self.names)
            problems.append(Problem(path, f"no view {view!r} is there; there are {names}{is_meant(view, self.names)}"))

    def has(self, view: str) -> bool:
        return view.lower() in map(str.lower, self.names)


def steps_declared(
    documents: Sequence[StepDocument], path: str, problems: list[Problem]
) -> tuple[tuple[Step, ...], Views]:
    """The steps of `steps` below spec, and the views that there are; without steps `source` is the result.

    Args:
        path: of `steps`.
        problems: also those of the steps themselves, which have been read.
    """
    steps: list[Step] = []
    wrong = {problem.path for problem in problems}
    views = Views([SOURCE_VIEW], path not in wrong)
    for index, document in enumerate(documents):
        place, name = f"{path}[{index}]", document.name
        is_usable = not {f"{place}.name", place} & wrong
        if is_usable and (taken := _taken(name, views)):
            problems.append(Problem(f"{place}.name", taken))
            is_usable = False
        if place in wrong:  # no mapping, so its view is not known
            views.is_known = False
        step = _step(document, views)
        if isinstance(step, PythonStep):
            views.check(f"{place}.from", step.view, problems)
        elif f"{place}.sql" not in wrong:
            for view in views_read(step.sql):
                views.check(f"{place}.sql", view, problems)
        steps.append(step)
        if is_usable:
            views.names.append(name)
        else:
            views.is_known = False
    return tuple(steps), views


def _taken(name: str, views: Views) -> str:
    if name.lower() == SOURCE_VIEW:
        return f"{name} is the view of the source; choose another name"
    return f"{name} is the name of a step before; names have no case" if views.has(name) else ""


def _step(document: StepDocument, views: Views) -> Step:
    if document.python is not None:
        return PythonStep(document.name, document.python, document.from_ or views.names[-1])
    return SqlStep(document.name, (document.sql or "").strip().rstrip(";").strip())
