"""The exit code of `tensonde run` is the script's, whatever becomes of the diagnosis."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensonde.cli.commands import run


def test_a_diagnosis_that_fails_keeps_the_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise ZeroDivisionError("in a rule")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(run, "_finish", fail)
    (tmp_path / "script.py").write_text("raise SystemExit(7)\n")
    assert run.run_target(("script.py",)) == 7
    said = capfd.readouterr().err
    assert "the diagnosis failed (ZeroDivisionError: in a rule); tensonde diagnose" in said
    assert "Traceback" not in said

    monkeypatch.setenv("TENSONDE_STRICT", "1")
    with pytest.raises(ZeroDivisionError):
        run.run_target(("script.py",))
