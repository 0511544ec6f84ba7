"""Schemas of payload fields from Spark's DDL text."""

import pickle
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("pyspark", reason="pyspark is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")

from amps.spark.payload_schema import ddl_of, parse_ddl, spark_type

unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

names = st.text("aZ09 `'\"<>(),:é😀\n", min_size=1, max_size=8)
simple_types = st.sampled_from(
    ["boolean", "byte", "short", "int", "long", "float", "double", "string", "binary", "date", "timestamp"]
)
decimals = st.integers(1, 38).flatmap(
    lambda precision: st.tuples(st.just("decimal"), st.just(precision), st.integers(0, precision))
)


def members_of(inner: st.SearchStrategy[Any], least: int) -> st.SearchStrategy[Any]:
    return st.dictionaries(names, inner, min_size=least, max_size=4).map(
        lambda members: tuple(members.items())
    )


types = st.recursive(
    simple_types | decimals,
    lambda inner: st.tuples(st.just("array"), inner) | st.tuples(st.just("struct"), members_of(inner, 0)),
    max_leaves=8,
)


@given(members_of(types, 1))
@unhurried
def test_text_made_of_fields_is_parsed_to_them(fields: Any) -> None:
    assert parse_ddl(ddl_of(fields)) == fields
    assert pickle.loads(pickle.dumps(fields)) == fields


@given(st.text(st.sampled_from("ab<>(),:`'1 lonstrigcuay"), max_size=30))
@unhurried
def test_any_other_text_is_refused_with_a_place(text: str) -> None:
    try:
        fields = parse_ddl(text)
    except ValueError as refused:
        told = str(refused)
    else:
        told = ""
        assert parse_ddl(ddl_of(fields)) == fields
    assert not told or ", at character " in told


def test_everything_that_ddl_has() -> None:
    assert parse_ddl(
        "a BIGINT NOT NULL COMMENT 'it''s', b struct<c string, `d``e`: decimal(10, 2)>,\n"
        "tags array<varchar_like>".replace("''", r"\'").replace("varchar_like", "string")
        + ", at timestamp_ltz, n numeric, x: dec(5), t tinyint, s smallint, i integer, r real"
    ) == (
        ("a", "long"),
        ("b", ("struct", (("c", "string"), ("d`e", ("decimal", 10, 2))))),
        ("tags", ("array", "string")),
        ("at", "timestamp"),
        ("n", ("decimal", 10, 0)),
        ("x", ("decimal", 5, 0)),
        ("t", "byte"),
        ("s", "short"),
        ("i", "int"),
        ("r", "float"),
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "the name of a field expected, at character 1"),
        ("a", "a type expected, at character 2"),
        ("a long,", "the name of a field expected, at character 8"),
        ("a long b int", "a comma or the end expected, at character 8"),
        ("a map<string, long>", "map is no type"),
        ("a interval", "interval is no type"),
        ("a array<long", "> expected"),
        ("a array long", "< expected"),
        ("a decimal(39,0)", r"decimal\(39,0\) is no type"),
        ("a decimal(2,3)", r"decimal\(2,3\) is no type"),
        ("a decimal(x)", "a number expected"),
        ("a long not", "null expected"),
        ("a long comment b", "the text of a comment expected"),
        ("a long, a int", "the field a comes twice"),
        ("a long ; b int", "';' is no part of a schema, at character 8"),
        ("a " + "array<" * 200 + "long" + ">" * 200, "nested deeper"),
    ],
)
def test_errors_name_the_fault(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        parse_ddl(text)


def test_spark_parses_a_text_alike() -> None:
    types = pytest.importorskip("pyspark.sql.types", reason="pyspark is not installed")
    fields = parse_ddl("a long, b struct<c: decimal(10,2), d array<timestamp>>, e binary, f date, g boolean")
    made = spark_type(fields)
    assert made.simpleString() == (
        "struct<a:bigint,b:struct<c:decimal(10,2),d:array<timestamp>>,e:binary,f:date,g:boolean>"
    )
    assert isinstance(made, types.StructType)
    assert all(field.nullable for field in made)
