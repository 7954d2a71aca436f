"""The settings of a dump, from MindSpore's JSON (`common_dump_settings` and so on) or from the command line."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tensonde.errors import UsageError
from tensonde.session.dump.choice import check_kernel
from tensonde.session.dump.iterations import Ranges, parse_iterations

COMMON, SYNCHRONOUS, ASYNCHRONOUS = "common_dump_settings", "e2e_dump_settings", "async_dump_settings"
_KEYS = {
    COMMON: (
        "dump_mode",
        "path",
        "net_name",
        "iteration",
        "input_output",
        "kernels",
        "support_device",
        "op_debug_mode",
        "saved_data",
        "statistic_category",
        "file_format",
        "overflow_number",
    ),
    SYNCHRONOUS: (
        "enable",
        "trans_flag",
        "stat_calc_mode",
        "device_stat_precision_mode",
        "save_kernel_args",
        "sample_mode",
        "sample_num",
    ),
    ASYNCHRONOUS: ("enable", "op_debug_mode"),
}


@dataclass(frozen=True, slots=True)
class DumpSettings:
    """`sites` and `kernels` are () for everything; `roles` is in, out or both. `iterations` is () for every step, `ranks` for
    every rank."""

    folder: str
    iterations: Ranges = ()
    everything: bool = False
    sites: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()
    inputs: bool = True
    outputs: bool = True
    ranks: tuple[int, ...] | None = None
    asynchronous: bool = True
    overflow_only: bool = False
    net_name: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(content: Mapping[str, Any]) -> DumpSettings:
        """Of what `to_json` gave. Raises KeyError, TypeError, ValueError."""
        fields = dict(content)
        fields["iterations"] = tuple((int(first), int(last)) for first, last in fields["iterations"])
        for name in ("sites", "kernels"):
            fields[name] = tuple(map(str, fields[name]))
        if fields["ranks"] is not None:
            fields["ranks"] = tuple(map(int, fields["ranks"]))
        return DumpSettings(**fields)


def from_command_line(sites: tuple[str, ...], steps: str | None, folder: Path) -> DumpSettings:
    """`--dump SITE... --dump-steps 0,10-20`."""
    for site in sites:
        check_kernel(site, where="--dump")
    ranges = parse_iterations(steps if steps is not None else "all", key="--dump-steps")
    return DumpSettings(str(folder.absolute()), ranges, sites=tuple(sites))


def from_file(path: Path, *, said_by: str = "--dump-config") -> DumpSettings | None:
    """The settings in a JSON file; None when they are there and switched off. Raises UsageError."""
    try:
        content = json.loads(path.read_text())
    except OSError as problem:
        raise UsageError(
            f"the dump configuration {path} (from {said_by}) cannot be read: {problem.strerror}."
        ) from None
    except (ValueError, RecursionError) as problem:
        raise UsageError(f"the dump configuration {path} (from {said_by}) is not JSON: {problem}.") from None
    return Checked(content, path).settings()


class Checked:
    """One configuration file, on its way to settings. Every method raises UsageError that names the file and the key."""

    def __init__(self, content: Any, path: Path) -> None:
        self.path = path
        if not isinstance(content, dict):
            raise UsageError(f"{path} holds a {type(content).__name__}; it should be an object with {COMMON!r}.")
        self._known(content, tuple(_KEYS), "")
        for section in content:
            if not isinstance(content[section], dict):
                raise UsageError(f"{path}: {section} is {content[section]!r}; it should be an object.")
            self._known(content[section], _KEYS[section], f" in {section}")
        if COMMON not in content:
            raise UsageError(f"{path} has no {COMMON}, which says what to dump and where.")
        self.common: dict[str, Any] = content[COMMON]
        self.synchronous: dict[str, Any] = content.get(SYNCHRONOUS, {})
        self.asynchronous: dict[str, Any] = content.get(ASYNCHRONOUS, {})

    def settings(self) -> DumpSettings | None:
        together = self._flag(self.synchronous, SYNCHRONOUS, "enable")
        behind = self._flag(self.asynchronous, ASYNCHRONOUS, "enable")
        self._flag(self.synchronous, SYNCHRONOUS, "trans_flag")
        self._whole_tensors()
        debug = self.asynchronous if "op_debug_mode" in self.asynchronous else self.common
        overflow = self._number(debug, "op_debug_mode", {0: "off", 1: "overflow", 2: "overflow", 3: "overflow"}, 0)
        mode = self._number(self.common, "dump_mode", {0: "everything", 1: "kernels"}, 0)
        way = self._number(self.common, "input_output", {0: "inputs and outputs", 1: "inputs", 2: "outputs"}, 0)
        kernels = self._kernels(mode)
        settings = DumpSettings(
            folder=str(self._folder()),
            iterations=parse_iterations(self.common.get("iteration", "all"), key=f"{self.path}: iteration"),
            everything=mode == 0,
            kernels=kernels,
            inputs=way in (0, 1),
            outputs=way in (0, 2),
            ranks=self._ranks(),
            asynchronous=behind,
            overflow_only=overflow != 0,
            net_name=self._net_name(),
        )
        if together and behind:
            raise UsageError(f"{self.path} enables both {SYNCHRONOUS} and {ASYNCHRONOUS}; enable one of them.")
        return settings if together or behind else None

    def _known(self, content: dict[str, Any], keys: tuple[str, ...], where: str) -> None:
        for key in content:
            if key not in keys:
                everywhere = {name: section for section, names in _KEYS.items() for name in names}
                close = difflib.get_close_matches(key, keys, 1, cutoff=0.5)
                if close:
                    hint = f"did you mean {close[0]!r}?"
                elif key in everywhere:
                    hint = f"it belongs in {everywhere[key]}."
                else:
                    hint = f"known are {', '.join(keys)}."
                raise UsageError(f"{self.path} has an unknown key {key!r}{where}; {hint}")

    def _flag(self, section: dict[str, Any], name: str, key: str) -> bool:
        given = section.get(key, False)
        if not isinstance(given, bool):
            raise UsageError(f"{self.path}: {key} in {name} is {given!r}; it may be true or false.")
        return given

    def _whole_tensors(self) -> None:
        """Newer releases of MindSpore dump statistics, or samples of tensors, where they are asked to."""
        saved = self.common.get("saved_data", "tensor")
        if saved not in ("tensor", "full"):
            raise UsageError(
                f"{self.path}: saved_data is {saved!r}; it may be 'tensor' or 'full', for a dump keeps whole tensors. "
                "Statistics of every step are in the recording without a dump."
            )

    def _number(self, section: dict[str, Any], key: str, meanings: dict[int, str], default: int) -> int:
        given = section.get(key, default)
        if isinstance(given, bool) or not isinstance(given, int) or given not in meanings:
            told = ", ".join(f"{number} ({meaning})" for number, meaning in meanings.items())
            raise UsageError(f"{self.path}: {key} is {given!r}; it may be {told}.")
        return given

    def _kernels(self, mode: int) -> tuple[str, ...]:
        given = self.common.get("kernels", [])
        if not isinstance(given, list) or not all(isinstance(name, str) and name for name in given):
            raise UsageError(f"{self.path}: kernels is {given!r}; it should be a list of names, op types or patterns.")
        if mode == 0:
            return ()
        if not given:
            raise UsageError(f"{self.path}: dump_mode is 1, so kernels must name what to dump; it is empty.")
        for name in given:
            check_kernel(name, where=f"{self.path}: kernels")
        return tuple(given)

    def _ranks(self) -> tuple[int, ...] | None:
        given = self.common.get("support_device")
        if given is None:
            return None
        if not isinstance(given, list) or not all(
            isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in given
        ):
            raise UsageError(f"{self.path}: support_device is {given!r}; it should be a list of ranks, such as [0, 1].")
        return tuple(given)

    def _net_name(self) -> str:
        given = self.common.get("net_name", "")
        if not isinstance(given, str) or "/" in given or given in (".", ".."):
            raise UsageError(f"{self.path}: net_name is {given!r}; it should be a name without slashes.")
        return given

    def _folder(self) -> Path:
        given = self.common.get("path")
        if not isinstance(given, str) or not given:
            raise UsageError(f"{self.path}: path is {given!r}; it should be the folder where the dump goes.")
        return (Path(given).expanduser() / self._net_name()).absolute()
