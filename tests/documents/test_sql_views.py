"""Which views a query reads, found without Spark."""

from __future__ import annotations

import pytest

from ottla_documents.sql_views import is_query, views_read


@pytest.mark.parametrize(
    ("sql", "views"),
    [
        ("SELECT * FROM a", ("a",)),
        ("FROM a SELECT b", ("a",)),
        ("select * from a left outer join b on a.x = b.x cross join `c`", ("a", "b", "c")),
        ("select 'from x', \"from y\" from a -- from z\n/* join w on */", ("a",)),
        ("with t as (select * from a), u (n) as (select 1) select * from t join u on true", ("a",)),
        ("select * from (select * from a) join (select * from b) on true", ("a", "b")),
        ("select extract(year from ts), trim(both 'x' from y), substring(a from 2) from a", ("a",)),
        ("select extract(year from (select max(t) from b)) from a", ("b", "a")),
        ("select * from a where x is distinct from y and x is not distinct from z", ("a",)),
        ("select * from range(10)", ()),
        ("select * from values (1), (2) as t(x)", ()),
        ("select * from parquet.`/data`", ()),
        ("select * from a, lateral explode(x)", ("a",)),
        ("select * from a lateral view explode(x) t as y", ("a",)),
        ("select * from a where b in (select c from d)", ("a", "d")),
        ("select * from a join", ("a",)),
        ("from", ()),
        ("select \u00e4 from \u00fcber", ("\u00fcber",)),
    ],
)
def test_the_names_after_from_and_join(sql: str, views: tuple[str, ...]) -> None:
    assert views_read(sql) == views


@pytest.mark.parametrize("sql", ["", "  ", "-- only a comment", "insert into a values (1)", "drop view a", "set x = 1"])
def test_what_reads_nothing_is_no_query(sql: str) -> None:
    assert not is_query(sql)
