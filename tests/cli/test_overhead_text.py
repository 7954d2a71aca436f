"""What the summary says about Tensonde's cost is true of short runs, measured ones and debug sessions."""

from __future__ import annotations

from tensonde.model.overhead import overhead_text

BASE = {"ratio": 1.031, "budget": 0.05, "steps_measured": 5000, "ms_per_step": 0.02, "start_seconds": 0.62}


def test_a_measured_share_is_told_apart_from_the_start() -> None:
    assert overhead_text({**BASE, "measured": True}) == "overhead 3.1 % per step (budget 5 %), after 0.6 s at the start"
    assert "= 0.02 ms per step" in overhead_text({**BASE, "measured": True, "ratio": 1.08})


def test_a_share_that_is_not_known_well_says_so() -> None:
    unclear = {**BASE, "measured": True, "ratio": 1.407, "uncertainty": 0.377}
    assert overhead_text(unclear) == "overhead unclear, as steps differ too much: 41 ± 38 % per step (budget 5 %)"
    assert "unclear" not in overhead_text({**BASE, "measured": True, "uncertainty": 0.014})
    assert "overhead 40.7 %" in overhead_text({**unclear, "uncertainty": 0.1})


def test_a_short_run_is_told_in_seconds() -> None:
    short = {**BASE, "measured": False, "ratio": 1.449, "steps_measured": 59, "seconds": 0.9}
    assert overhead_text(short) == "Tensonde and the framework's own start took about 0.6 s of the 0.9 s"


def test_a_debug_session_says_no_share() -> None:
    said = overhead_text({**BASE, "measured": False, "ratio": 3387.8, "steps_measured": 2, "seconds": 1.0})
    assert "%" not in said
    assert overhead_text({**BASE, "measured": False, "steps_measured": 0}) == ""


def test_the_time_of_experiments_is_told() -> None:
    measured = {**BASE, "measured": True, "experiments_seconds": 0.43}
    assert overhead_text(measured).endswith("after 0.6 s at the start (experiments: 0.4 s)")
    assert "experiments" not in overhead_text({**measured, "experiments_seconds": 0.01})
