from __future__ import annotations

import ast
import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from watch_rows import row, rows

from tensonde.errors import SyntaxProblem
from tensonde.watch.conditions import parse as condition
from tensonde.watch.expression import Expression

FIELDS = ("norm", "mean", "std", "absmax")
number = st.sampled_from(["0", "1", "2.5", "-3", "1e2", *FIELDS])
numeric = st.recursive(
    number,
    lambda inner: st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from(["+", "-", "*", "/", "%", "**"]), inner),
        st.builds("-{}".format, inner),
        st.builds("abs({})".format, inner),
        st.builds("{}({}, {})".format, st.sampled_from(["min", "max"]), inner, inner),
    ),
    max_leaves=4,
)
sign = st.sampled_from(["<", "<=", ">", ">=", "==", "!="])
truth = st.recursive(
    st.one_of(
        st.builds("{} {} {}".format, numeric, sign, numeric),
        st.builds("{} {} {} {} {}".format, numeric, sign, numeric, sign, numeric),
        numeric,
        st.sampled_from(["True", "False"]),
    ),
    lambda inner: st.one_of(
        st.builds("({}) and ({})".format, inner, inner),
        st.builds("({}) or ({})".format, inner, inner),
        st.builds("not ({})".format, inner),
    ),
    max_leaves=5,
)


def python_says(text, values):
    """Python's own answer; None where Python has none (errors, complex numbers) or NaN and Inf come up."""
    for node in ast.walk(ast.parse(text, mode="eval")):
        if isinstance(node, ast.BinOp | ast.Call | ast.UnaryOp):
            try:
                got = eval(ast.unparse(node), {"min": min, "max": max, "abs": abs}, dict(values))
            except (ArithmeticError, TypeError):
                return None
            if isinstance(got, complex) or not math.isfinite(got):
                return None
    return bool(eval(text, {"min": min, "max": max, "abs": abs}, dict(values)))


@settings(max_examples=500, deadline=None)
@given(truth, st.tuples(*[st.sampled_from([-2.0, -0.5, 0.0, 0.5, 1.0, 3.0])] * 4))
def test_agrees_with_python(text, values):
    named = dict(zip(FIELDS, values, strict=True))
    expected = python_says(text, named)
    assume(expected is not None)
    got = Expression.parse(text).evaluate({name: np.array([value]) for name, value in named.items()})
    assert got.tolist() == [expected]


def holds(text, *values):
    return condition(text).evaluate(rows(*(row(v) for v in values))).tolist()


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        ("nan or inf", [1, np.nan], True),
        ("nan or inf", [1, -np.inf], True),
        ("nan or inf", [1, 2], False),
        ("nan == 2 and nans == 0.5", [np.nan, np.nan, 1, 2], True),
        ("inf == 3 and pos_inf == 2 and neg_inf == 1 and infs == 0.75", [np.inf, np.inf, -np.inf, 1], True),
        ("nonfinite == 2 and finite == 2", [np.nan, np.inf, 1, 2], True),
        ("zero == 1 and zeros == 0.25 and negative == 2 and negatives == 0.5", [0, -1, -2, 3], True),
        ("range == 4 and min == -1 and max == 3", [-1, 3, np.nan], True),
        ("rms == 2 and absmean == 2", [2, -2, np.nan], True),
        ("sqrt(norm) == 2 and log10(absmax) == 0", [1] * 16, True),
        ("zeros > 0", [], False),
        ("not zeros > 0", [], True),
        ("min(min, 0) == -5", [-5, 1], True),
    ],
)
def test_fields(text, values, expected):
    assert holds(text, values) == [expected]


def test_nan_makes_comparisons_false_and_never_fails():
    no_finite = [np.nan, np.nan]
    for sign_ in ("<", "<=", ">", ">=", "==", "!="):
        assert holds(f"mean {sign_} 0", no_finite) == [False]
    assert holds("mean", no_finite) == [False]
    assert holds("zero / zero > 0 or zero / zero <= 0", [1.0]) == [False]
    assert holds("1 / zero > 5", [1.0]) == [True]
    assert holds("2 ** 99999 > 1", [1.0]) == [True]


def test_a_nan_hides_nothing():
    assert holds("absmax > 10", [np.nan, np.inf, 11.0], [np.nan, 9.0]) == [True, False]


def test_a_constant_condition_has_one_value_a_row():
    assert holds("True", [1], [2]) == [True, True]


@pytest.mark.parametrize(
    ("text", "position", "words"),
    [
        ("abs_max > 3", 0, "did you mean absmax?"),
        ("  nan or normm > 3", 9, "did you mean norm?"),
        ("norm = 3", 5, "write =="),
        ("nan && inf", 4, "write and"),
        ("nan || inf", 4, "write or"),
        ("!nan", 0, "write not"),
        ("norm => 3", 5, "write <= or >="),
        ("nan & inf", 0, "write and"),
        ("zeros > 99%", 9, "0.99"),
        ("average(norm, 3) > 1", 0, "there is no function"),
        ("avgg(norm, 3) > 1", 0, "did you mean avg?"),
        ("avg > 3", 0, "avg(field, n)"),
        ("norm(3)", 0, "without parentheses"),
        ("avg(norm, 0) > 1", 10, "1 to 1000"),
        ("avg(norm, 2000) > 1", 10, "1 to 1000"),
        ("avg(norm, 2.5) > 1", 10, "whole number"),
        ("avg(norm * 2, 5) > 1", 4, "is a field"),
        ("avg(fed, 5) > 1", 4, "no history"),
        ("avg(norm, n=5) > 1", 10, "no named arguments"),
        ("min(norm) > 1", 0, "min(x, y)"),
        ("inside(3, 1) > 0", 0, "empty"),
        ("value.absmean > 3", 0, "plain names"),
        ("'nan'", 0, "without quotes"),
        ("(lambda: 1)() > 2", 0, "only functions"),
        ("lambda: nan", 0, "lambda"),
        ("norm[0] > 1", 0, "lstm:out[1]"),
        ("nan, inf", 0, "comma"),
        ("1 if nan else 0", 0, "if is not"),
        ("(nan > 0) + 1 > 1", 1, "number is needed"),
        ("norm in 3", 0, "use <"),
        ("norm >", 6, "too early"),
        ("norm > > 3", 7, "cannot stand here"),
        ("", 0, "empty"),
        ("   ", 0, "empty"),
        ("µ > 3", 0, "there is no field"),
        ("nan or µµ or foo()", 7, "there is no field"),
        ("too_large", 0, "at least one limit"),
        ("too_large(abs=3)", 0, "no parameter 'abs'"),
        ("too_large(1, absmean=3)", 0, "twice"),
        ("all_zero(1, 2)", 0, "at most 1"),
        ("dead(n=0)", 0, "1 to 1000"),
        ("all_zero(1e999)", 0, "is a number"),
        ("activation_range(kind=gelu)", 0, "one of tanh"),
        ("too_large(absmean=norm)", 18, "plain number"),
        ("tensor_overfow", 0, "did you mean tensor_overflow?"),
        ("__import__('os')", 0, "there is no function"),
    ],
)
def test_problems_say_where_and_what(text, position, words):
    with pytest.raises(SyntaxProblem) as caught:
        condition(text)
    assert words in str(caught.value)
    assert caught.value.position == position


@pytest.mark.parametrize("text", ["(" * 500 + "nan" + ")" * 500, "-" * 1500 + "1 > 0", "nan or " * 400 + "nan", "a\0b"])
def test_size_is_bounded(text):
    with pytest.raises(SyntaxProblem):
        condition(text)


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=30))
def test_any_text_parses_or_is_a_syntax_problem(text):
    try:
        condition(text)
    except SyntaxProblem as caught:
        problem = caught
    else:
        return
    assert 0 <= problem.position <= len(problem.text)


def test_fields_and_presets():
    parsed = condition("norm > 1e3 and (nan or 5 * 2 >= absmax) or avg(std, 5) < -0.5")
    assert parsed.fields == {"norm", "nan", "absmax", "std"}
    assert parsed.presets == {"norm >": 1000.0, "nan >": 0.0, "absmax <=": 10.0, "avg(std, 5) <": -0.5}
    assert condition("0 < zeros < 0.5").presets == {"zeros >": 0.0, "zeros <": 0.5}
    assert condition("norm > 10 * avg(norm, 5)").presets == {}
