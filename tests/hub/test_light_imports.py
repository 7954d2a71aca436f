"""A training pays for the hub only when there is one."""

from __future__ import annotations

import subprocess
import sys

from launch import environment

HEAVY = ("fastapi", "uvicorn", "starlette", "pydantic", "websockets", "msgspec", "tensonde.server", "tensonde.protocol")


def loaded(code: str) -> set[str]:
    program = f"{code}\nimport sys\nprint(*sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(), capture_output=True, text=True, timeout=60, check=True
    )
    return {name for name in HEAVY if name in done.stdout.split()}


def test_tensonde_and_the_session_import_no_server() -> None:
    assert loaded("import tensonde") == set()
    assert loaded("import tensonde.launch.child, tensonde.session.session") == set()


def test_an_agent_imports_no_server() -> None:
    assert loaded("import tensonde.session.agent, websockets.sync.client") == {
        "websockets",
        "msgspec",
        "tensonde.protocol",
    }
