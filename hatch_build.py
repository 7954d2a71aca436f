"""Build hook: compiles the digest kernel into the package.

The kernel is optional. Without a compiler the build still succeeds, says so, and Sonde falls back to
its numpy reference at run time (and says that, too). `SONDE_KERNEL=require` makes a failed build an
error, `SONDE_KERNEL=skip` leaves the kernel out.
"""

from __future__ import annotations

import os
import pathlib
import sys
import sysconfig
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class KernelHook(BuildHookInterface):
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        wish = os.environ.get("SONDE_KERNEL", "try")
        if wish == "skip":
            return
        try:
            built = compile_kernel(pathlib.Path(self.root))
        except Exception as problem:
            if wish == "require":
                raise
            self.app.display_warning(f"the digest kernel was not built, Sonde will use numpy instead: {problem}")
            return
        build_data["pure_python"] = False
        build_data["artifacts"].append(str(built.relative_to(self.root)))
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"cp311-abi3-{platform}"


def compile_kernel(root: pathlib.Path) -> pathlib.Path:
    """Compiles in place, into src/sonde/digest, and returns the path of the extension."""
    from setuptools import Distribution, Extension

    package = root / "src" / "sonde" / "digest"
    extension = Extension(
        "sonde.digest._kernel",
        sources=[str(package / "_kernel.c")],
        depends=[str(path) for path in package.glob("*.h")],
        define_macros=[("Py_LIMITED_API", "0x030B0000")],
        extra_compile_args=["-O3", "-std=c11", "-fno-math-errno", "-ffp-contract=off", "-pthread"],
        py_limited_api=True,
    )
    command = Distribution({"name": "sonde", "ext_modules": [extension]}).get_command_obj("build_ext")
    command.build_lib = str(root / "src")  # type: ignore[attr-defined]
    command.build_temp = str(root / "build")  # type: ignore[attr-defined]
    command.ensure_finalized()
    command.run()
    return root / "src" / command.get_ext_filename("sonde.digest._kernel")  # type: ignore[attr-defined]


if __name__ == "__main__":  # python hatch_build.py: rebuild in a checkout
    print(compile_kernel(pathlib.Path(__file__).parent.resolve()), file=sys.stderr)
