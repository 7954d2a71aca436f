from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensonde.errors import SyntaxProblem
from tensonde.model.site import Kind, Role, Site
from tensonde.watch.pattern import Pattern
from tensonde.watch.suggest import nearest


def site(name, role="out", index=None):
    return Site(0, name, Role(role), Kind.MODULE, index)


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("loss", ["loss:out", "loss:grad"], ["loss2:out", "a.loss:out"]),
        ("blocks.3.attn:out", ["blocks.3.attn:out", "blocks.3.attn:out[1]"],
         ["blocks.3.attn:in", "blocks.3:out"]),
        ("blocks.*.attn:out", ["blocks.3.attn:out"],
         ["blocks.3.x.attn:out", "blocks.attn:out", "blocks.3.attn:in"]),
        ("**:grad", ["a:grad", "a.b/c#0:grad", ":grad"], ["a:grad_in", "a:out"]),
        ("**.weight:update", ["weight:update", "a.weight:update", "a.b.weight:update"],
         ["a.xweight:update", "a.weight:grad"]),
        ("blocks.**", ["blocks:out", "blocks.0:out", "blocks.0.a/b#1:in", "blocks/add#0:out"],
         ["blocksy:out", "a.blocks:out"]),
        ("blocks.3.attn/softmax#0:out", ["blocks.3.attn/softmax#0:out"], ["blocks.3.attn.softmax#0:out"]),
        ("**/softmax#*:out", ["a.b/softmax#0:out", "softmax#1:out"], ["a.softmax#0:out"]),
        ("a.**/log#0", ["a/log#0:out", "a.b.c/log#0:out"], ["a.log#0:out"]),
        ("lstm:out[1]", ["lstm:out[1]"], ["lstm:out", "lstm:out[0]", "lstm:out[11]"]),
        ("{a,b.c}.w:{out,grad}", ["a.w:out", "b.c.w:grad"], ["a.w:in", "b.w:out"]),
        ("layer[12].fc?", ["layer1.fca:out", "layer2.fcb:out"], ["layer3.fca:out", "layer1.fc:out"]),
        ("layer[!12]", ["layer3:out"], ["layer1:out", "layer.:out"]),
        ("a:gr*", ["a:grad", "a:grad_in"], ["a:out"]),
        ("a.{x,{y,z}?}:out", ["a.x:out", "a.yy:out", "a.zq:out"], ["a.y:out"]),
        ("*", ["a:out"], [":out", "a.b:out"]),
    ],
)  # fmt: skip
def test_examples(pattern, yes, no):
    parsed = Pattern.parse(pattern)
    assert str(parsed) == pattern
    for address, expected in [*((a, True) for a in yes), *((a, False) for a in no)]:
        name, role, index = re.fullmatch(r"(.*):(\w+)(?:\[(\d+)\])?", address).groups()
        assert parsed.matches(site(name, role, None if index is None else int(index))) is expected, address


def segment_matches(glob, text):
    if not glob:
        return not text
    if glob[0] == "*":
        return any(segment_matches(glob[1:], text[i:]) for i in range(len(text) + 1))
    return bool(text) and glob[0] in ("?", text[0]) and segment_matches(glob[1:], text[1:])


def tokens(name):
    return [(sep, part) for sep, part in re.findall(r"(^|[./])([^./]+)", name)]


def brute(pattern, name):
    """Segment by segment. `**` takes any run of segments; the separator before it may be either."""
    if not pattern:
        return not name
    (sep, glob), rest = pattern[0], pattern[1:]
    if glob == "**":
        return any(brute(rest, name[i:]) for i in range(len(name) + 1))
    return bool(name) and name[0][0] in ("", sep) and segment_matches(glob, name[0][1]) and brute(rest, name[1:])


NAME = st.lists(st.text("ab#", min_size=1, max_size=3), min_size=1, max_size=5)
GLOB = st.lists(st.one_of(st.just("**"), st.text("ab*?", min_size=1, max_size=3)), min_size=1, max_size=4)


@settings(max_examples=600, deadline=None)
@given(st.data())
def test_agrees_with_a_matcher_that_tries_everything(data):
    def join(parts):
        seps = data.draw(st.lists(st.sampled_from("./"), min_size=len(parts), max_size=len(parts)))
        return "".join(p + s for p, s in zip(parts, seps, strict=True))[:-1]

    name, glob = join(data.draw(NAME)), join(data.draw(GLOB))
    if any("**" in part and part != "**" for part in re.split("[./]", glob)):
        with pytest.raises(SyntaxProblem):
            Pattern.parse(glob)
        return
    assert Pattern.parse(glob).matches(site(name)) is brute(tokens(glob), tokens(name)), (glob, name)


@pytest.mark.parametrize(
    ("text", "position", "words"),
    [
        ("", 0, "empty"),
        ("a b:out", 1, "no spaces"),
        ("a:outt", 2, "did you mean out?"),
        ("a:{out,gradd}", 7, "did you mean grad?"),
        ("a:", 2, "no role"),
        ("a:b:out", 1, "one colon"),
        ("lstm[1]", 4, "lstm:*[1]"),
        ("a:out[x]", 5, "number in brackets"),
        ("{a,b.c", 0, "not closed"),
        ("a}b*", 1, "not opened"),
        ("a]b", 1, "not opened"),
        ("x.a**", 3, "whole segments"),
        ("a[bc*", 1, "not closed"),
        ("a[]b", 1, "empty"),
        ("*a*a*a*a*a", 0, "at most"),
        ("{a,b}" * 9, 0, "alternatives"),
    ],
)
def test_problems_say_where_and_what(text, position, words):
    with pytest.raises(SyntaxProblem) as caught:
        Pattern.parse(text)
    assert words in str(caught.value)
    assert caught.value.position == position


def test_literal_patterns_are_recognised():
    assert Pattern.parse("a.b:out").literal == "a.b"
    assert Pattern.parse("a.*:out").literal is None


def test_no_pattern_takes_long_on_a_name_that_almost_matches():
    pattern = Pattern.parse("**.*a*a*a.**.*a*a*a.**.*a*a*a.**.*a*a*b:out")
    start = time.perf_counter()
    assert not pattern.matches(site(".".join(["aaaa"] * 20)))
    assert time.perf_counter() - start < 2


def test_nearest_knows_spelling_paths_and_case():
    addresses = [
        "encoder.layers.0.attn:out",
        "encoder.layers.0.attn:grad",
        "decoder.head.weight:value",
        "loss:out",
    ]
    assert nearest("encoder.layer.0.attn:out", addresses)[0] == "encoder.layers.0.attn:out"
    assert nearest("**.Attn:grad", addresses)[0] == "encoder.layers.0.attn:grad"
    assert nearest("head.weight", addresses)[0] == "decoder.head.weight:value"
    assert nearest("zzz.qqq", addresses) == []
