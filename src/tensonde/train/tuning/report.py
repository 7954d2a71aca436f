"""What a study found: the best trials as rows, and a page with plots that needs no network to open."""

from __future__ import annotations

import html
import logging
from pathlib import Path
from typing import Any

from tensonde.train.extras import need
from tensonde.train.tuning.settings import Settings
from tensonde.train.tuning.space import words

log = logging.getLogger("tensonde.tune")

_HEAD = """<!doctype html><meta charset="utf-8"><title>{title}</title>
<style>body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; color-scheme: light dark }}
table {{ border-collapse: collapse }} td, th {{ text-align: left; padding: .2rem .8rem .2rem 0; vertical-align: top }}
tr:first-child + tr td {{ font-weight: 600 }}</style>
"""


def ranked(study: Any) -> list[Any]:
    """Finished trials, the best first, those without a value last."""
    trials = [trial for trial in study.get_trials(deepcopy=False) if trial.state.is_finished()]
    less = study.direction.name == "MINIMIZE"
    return sorted(trials, key=lambda t: (_value(t) is None, (_value(t) or 0.0) * (1 if less else -1), t.number))


def _value(trial: Any) -> float | None:
    """Of a completed trial; what a pruned one had last is no result."""
    return trial.value if trial.state.name == "COMPLETE" else None


def facts(study: Any, settings: Settings, folder: Path) -> dict[str, Any]:
    """For `--json`."""
    rows = [
        {
            "number": trial.number,
            "state": trial.user_attrs.get("outcome", trial.state.name.lower()),
            "value": _value(trial),
            "params": trial.params,
            "seconds": trial.user_attrs.get("seconds"),
            "finding": trial.user_attrs.get("finding", ""),
            "recording": str(folder / "trials" / trial.user_attrs.get("folder", f"{trial.number:04d}") / "run"),
        }
        for trial in ranked(study)
    ]
    best = rows[0] if rows and rows[0]["value"] is not None else None
    return {
        "metric": settings.metric.name,
        "direction": settings.metric.direction,
        "best": best,
        "trials": rows,
        "study": str(folder),
    }


def write_page(study: Any, settings: Settings, folder: Path) -> Path | None:
    """report.html in the study's folder; None where there is nothing to plot yet."""
    from optuna.trial import TrialState

    finished = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE,))
    if not finished:
        return None
    need("plotly", extra="tune", what="the page of plots")
    parts = [_HEAD.format(title=html.escape(f"tensonde tune {settings.target[0]}"))]
    parts.append(f"<h1>{html.escape(' '.join(settings.target))}: {html.escape(settings.metric.name)}</h1>")
    parts.append(_table(study, settings))
    script: bool | str = True
    for title, figure in _figures(study, settings):
        parts.append(f"<h2>{title}</h2>{figure.to_html(full_html=False, include_plotlyjs=script)}")
        script = False
    path = folder / "report.html"
    path.write_text("\n".join(parts), encoding="utf-8")
    return path


def _figures(study: Any, settings: Settings) -> list[tuple[str, Any]]:
    """Those that this study has enough trials for."""
    import warnings

    import optuna
    from optuna import visualization as draw

    name = settings.metric.name
    wanted: list[tuple[str, Any]] = [
        ("Best so far", lambda: draw.plot_optimization_history(study, target_name=name)),
        ("Parallel coordinates", lambda: draw.plot_parallel_coordinate(study, target_name=name)),
        (
            "Importance of the parameters",
            lambda: draw.plot_param_importances(
                study, target_name=name, evaluator=optuna.importance.PedAnovaImportanceEvaluator()
            ),
        ),
        ("Each parameter", lambda: draw.plot_slice(study, target_name=name)),
        ("Courses of the trials", lambda: draw.plot_intermediate_values(study)),
    ]
    found = []
    for title, make in wanted:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found.append((title, make()))
        except (ValueError, RuntimeError, ImportError) as problem:
            log.info("no plot of %r: %s", title, problem)
    return found


def _table(study: Any, settings: Settings) -> str:
    names = [parameter.name for parameter in settings.parameters]
    head = "".join(f"<th>{html.escape(name)}</th>" for name in ["trial", settings.metric.name, *names, ""])
    rows = []
    for trial in ranked(study)[:20]:
        value = _value(trial)
        cells = [
            str(trial.number),
            f"{value:.6g}" if value is not None else trial.user_attrs.get("outcome", "failed"),
            *(words(trial.params.get(name, "")) for name in names),
            trial.user_attrs.get("finding", ""),
        ]
        rows.append("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>")
    return f"<table><tr>{head}</tr>{''.join(rows)}</table>"
