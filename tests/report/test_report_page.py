"""The HTML page of a recording and of a trace: complete, well-formed, self-contained, and deaf to what a recording says."""

from __future__ import annotations

import json
import math
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest
from click.testing import CliRunner

import tensonde
from tensonde.cli.commands.show import show
from tensonde.errors import UsageError
from tensonde.model.finding import Finding
from tensonde.model.moment import Moment, Phase
from tensonde.model.site import SourceLine
from tensonde.model.trace import OpRecord, TensorFact, Trace
from tensonde.model.watchpoint import Hit
from tensonde.page.chart import chart, thin
from tensonde.page.markup import number
from tensonde.page.notebook import View
from tensonde.page.page import _finding, _hits_together, group_hits, report
from tensonde.page.tree import module_tree
from tensonde.store.reader import Recording

GOLDEN = Path(__file__).parent.parent / "golden" / "v1"
VOID = {"meta", "br", "path"}


class Outline(HTMLParser):
    """Tags in balance, and everything that could fetch or run."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.suspicious: list[str] = []
        self.words: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        if tag in ("script", "img", "link", "iframe", "object"):
            self.suspicious.append(tag)
        self.suspicious += [name for name, _ in attrs if name.startswith("on") or name in ("src", "href")]

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def read(html: str) -> str:
    outline = Outline(html)
    assert not outline.open
    assert not outline.suspicious
    return " ".join(" ".join(outline.words).split())


def test_the_page_has_everything_of_the_run() -> None:
    recording = Recording.open(GOLDEN)
    words = read(report(recording))
    for finding in recording.findings:
        assert finding.title in words
        assert finding.advice in words
    assert "loss" in words
    assert all(hit.site in words for hit in recording.hits)
    assert "fc1" in words
    assert "Linear" in words


def test_hits_of_one_watchpoint_in_a_row_are_one_row() -> None:
    hits = [
        Hit(1, f"blocks.{k}:out", Moment(k // 10, Phase.FORWARD), "nan", {"nan": 0.0}, {"nan": 3.0}) for k in range(65)
    ]
    hits.append(Hit(2, "loss:value", Moment(7, Phase.FORWARD), "nan", {}, {}))
    assert [len(group) for group in group_hits(hits)] == [65, 1]
    step, _, site, *_, seen = _hits_together(hits[:65])
    assert step == "0–6"
    assert "blocks.0:out</code> and 64 more" in site
    assert "65 hits" in seen
    assert "nan = 3" in seen


def test_show_writes_it(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN, tmp_path / "run")
    out = tmp_path / "report.html"
    result = CliRunner().invoke(show, [str(tmp_path / "run"), "--html", str(out)])
    assert result.exit_code == 0
    assert read(out.read_text()).count("Findings") == 1
    piped = CliRunner().invoke(show, [str(tmp_path / "run"), "--html", "-"])
    assert piped.stdout.startswith("<!doctype html>")


@pytest.mark.parametrize("more", [["fc1:out"], ["--json"], ["--steps", "1-2"]])
def test_html_is_of_a_whole_run(tmp_path: Path, more: list[str]) -> None:
    result = CliRunner().invoke(show, [str(GOLDEN), *more, "--html", str(tmp_path / "x.html")])
    assert isinstance(result.exception, UsageError)
    assert not (tmp_path / "x.html").exists()


def test_a_file_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    result = CliRunner().invoke(show, [str(GOLDEN), "--html", str(tmp_path)])
    assert isinstance(result.exception, UsageError)


def test_what_a_recording_says_is_text() -> None:
    evil = "</pre><script>alert(1)</script><img src=x onerror=alert(1)>"
    finding = Finding(evil, "error", evil, evil, site=evil, source=SourceLine(evil, 3, evil), evidence={evil: evil})
    assert evil in " ".join(Outline(_finding(finding)).words)
    read(_finding(finding))
    read(chart(evil, [(0, 1.0)]))


def test_a_chart_marks_what_is_not_finite_and_thins_without_losing_extremes() -> None:
    drawn = chart("loss", [(0, 1.0), (1, math.nan), (2, math.inf), (3, 2.0)])
    assert drawn.count('class="cross"') == 2
    assert "2 not finite" in drawn
    series = [(step, math.sin(step)) for step in range(100_000)]
    series[54_321] = (54_321, 99.0)
    thinned = thin(series, 600)
    assert len(thinned) < 700
    assert (54_321, 99.0) in thinned
    for odd in ([], [(0, math.nan)], [(5, 1.0)]):
        read(chart("x", odd))


def test_a_notebook_shows_it_in_a_frame_of_its_own(tmp_path: Path) -> None:
    shown = tensonde.view(GOLDEN)
    assert isinstance(shown, View)
    framed = shown._repr_html_()
    assert framed.startswith("<iframe srcdoc=")
    assert "sandbox" in framed
    assert read(shown.save(tmp_path / "page.html").read_text()) == read(shown.html)
    with pytest.raises(UsageError, match="was given a int"):
        tensonde.view(3)


def test_a_trace_is_a_table_of_its_ops() -> None:
    good = TensorFact(0, (2, 3), "float32", stats={"min": 0.0, "max": 1.0, "mean": 0.5, "std": 0.1})
    bad = TensorFact(1, (2, 3), "float32", stats={"min": math.nan, "nan": 6})
    ops = tuple(
        OpRecord(index, op, f"net/{op}#0", "net", "Net", SourceLine("m.py", 3), (), (tensor,), phase=Phase.FORWARD)
        for index, (op, tensor) in enumerate([("exp", good), ("log", bad)])
    )
    words = read(tensonde.view(Trace(4, "first", ops)).html)
    assert "2 ops, 1 with NaN or Inf" in words
    assert "net/log#0" in words


@pytest.mark.parametrize(
    ("value", "words"),
    [(3072, "3072"), (-1.5, "−1.5"), (math.nan, "NaN"), (-math.inf, "−Inf"), (1.23456e-5, "1.235e-5"), (None, "–")],
)
def test_numbers(value: float, words: str) -> None:
    assert number(value) == words


def test_what_a_root_holds_is_inside_it_and_a_root_is_never_better_than_that(tmp_path: Path) -> None:
    rank = tmp_path / "run" / "rank0"
    shutil.copytree(GOLDEN, tmp_path / "run")
    lines = (rank / "sites.jsonl").read_text().splitlines()
    top = next(site for site in map(json.loads, lines) if site["kind"] == "module" and "." not in site["name"])
    bad = {name.split(".")[0] for name in {hit.site.rpartition(":")[0] for hit in Recording.open(GOLDEN).ranks[0].hits}}
    root = {**top, "id": 10_000, "name": "net", "role": "out", "type": "Net"}
    (rank / "sites.jsonl").write_text("\n".join([*lines, json.dumps(root)]) + "\n")
    (rank / "facts.json").write_text(json.dumps({"roots": {"net": "Net"}}))
    html = module_tree(Recording.open(tmp_path / "run").ranks[0])
    before, _, inside = html.partition(">net<")
    assert bad, "the golden recording has hits"
    assert before.count("<details") == 1, "the root is the outermost"
    assert 'class="mark bad"' in before
    assert all(f">{name}<" in inside for name in bad)
