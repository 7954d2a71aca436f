"""Inside a watched process: waits for a framework, opens the session when the training begins, closes it at the end.

Imported at the start of every Python process of a run, most of which never train: nothing heavy up here.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import logging
import os
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from types import FrameType, ModuleType, TracebackType
from typing import TYPE_CHECKING, Any

from tensonde.adapters.registry import ADAPTERS, adapter_of, chosen
from tensonde.log import set_up_log
from tensonde.program.imported import when_imported
from tensonde.session.failing import on_failure
from tensonde.session.options import SECONDS, Options

if TYPE_CHECKING:
    from pathlib import Path

    from tensonde.adapters.adapter import Adapter, Training
    from tensonde.session.agent import Agent

_failure: dict[str, Any] | None = None
_closed: list[Training] = []
_watched = ""
"""The framework whose training is watched in this process."""
_interrupted = False
"""Ctrl-C ends the program: the KeyboardInterrupt was not caught."""


def start(options: Options | None = None) -> None:
    """Never raises: whatever goes wrong here, the user's program runs."""
    try:
        options = options or Options.from_environment()
        if options is None:
            return
        set_up_log()
        atexit.register(_end_as_interrupted)  # the first to be registered is the last to run
        for framework in ADAPTERS:
            when_imported(framework, functools.partial(_imported, options))
    except Exception as problem:
        print(f"tensonde: could not start ({problem}); the program runs unwatched.", file=sys.stderr)


def start_here() -> None:
    """Begins in a running program that was not started by `tensonde run`: a script's or a notebook's own choice."""
    from pathlib import Path

    from tensonde.store.claim import create_run

    set_up_log()
    options = Options.from_environment()
    if options is None:
        script, argv = Path(sys.argv[0]).name if sys.argv else "", sys.argv[1:]
        if not script or "ipykernel" in sys.modules:  # the command line is the kernel's
            script, argv = "notebook", []
        run = create_run(Path(".tensonde") / "runs", None, {"script": script, "argv": argv})
        options = Options(
            run=str(run.absolute()), dump=_dump_by_environment(run), experiments=SECONDS, experiments_by_default=True
        )
    _install(options, chosen().framework)


def _dump_by_environment(run: Path) -> dict[str, Any] | None:
    from tensonde.launch.dumping import dump_of

    return dump_of((), None, None, run)


def _imported(options: Options, module: ModuleType) -> None:
    _install(options, module.__name__)


def _install(options: Options, framework: str) -> None:
    if options.replay is not None:
        if options.factory is None:
            replay(options)
        return
    try:
        adapter = adapter_of(framework)
        adapter.install(lambda: _open(adapter, options))
        sys.excepthook = _noting_early(sys.excepthook, adapter)
        if os.environ.get("TENSONDE_BLOCKING") == "1":
            adapter.launch_blocking()
        if options.prepare is not None and "schedules" in adapter.capabilities:
            module, _, function = options.prepare.partition(":")
            getattr(import_module(module), function)()
    except Exception as problem:
        logging.getLogger("tensonde").warning(
            "could not be installed into %s (%s); the program runs unwatched", framework, problem
        )


def replay(options: Options | None = None) -> None:
    """This process is only to build the model, by its script or by a factory; it must not train, whatever happens."""
    try:
        given = options or Options.from_environment()
        assert given is not None
        chosen().replay(given, (lambda training: _attach_console(training, given)) if given.debug else None)
    except Exception as problem:
        print(f"tensonde: the bundle cannot be replayed here: {problem}", file=sys.stderr, flush=True)
        os._exit(2)


def _open(adapter: Adapter, options: Options) -> Training | None:
    """The training begins."""
    global _watched
    if options.prepare is not None and "schedules" not in adapter.capabilities:
        from tensonde.adapters.capabilities import NAMES

        name = NAMES[adapter.framework]
        print(f"Error: `tensonde lr` does not work with {name}: the script was ended.", file=sys.stderr, flush=True)
        os._exit(2)
    if _watched not in ("", adapter.framework):
        logging.getLogger("tensonde").warning(
            "this program trains with both %s and %s: only %s, which came first, is watched",
            _watched, adapter.framework, _watched,
        )  # fmt: skip
        return None
    try:
        training = adapter.open(options)
        _watched = adapter.framework
        agent = attach_agent(training, options)
        if agent is None and (
            options.debug or options.on_hit == "pause" or any(action == "pause" for *_, action in options.watches)
        ):
            _attach_console(training, options)
        _at_the_end(functools.partial(_close, adapter, training, os.getpid(), agent))
        sys.excepthook = _noting(sys.excepthook, adapter, training)
        threading.excepthook = _noting_threads(threading.excepthook, adapter, training)
        on_failure(functools.partial(_note_caught, adapter, training))
        _at_the_end_of_cells(training.bring_up_to_date)
        return training
    except Exception as problem:
        if os.environ.get("TENSONDE_STRICT") == "1":
            raise
        logging.getLogger("tensonde").warning(
            "could not begin (%s: %s); the program runs unwatched", type(problem).__name__, problem
        )
        return None


def attach_agent(training: Training, options: Options) -> Agent | None:
    """To the hub that was asked for by `--ui` or in the environment; None where none was."""
    if not (options.hub or os.environ.get("TENSONDE_HUB") or os.environ.get("ENABLE_MS_DEBUGGER")):
        return None
    try:
        from tensonde.debugger.remote import RemoteConsole
        from tensonde.protocol.address import Address, from_environment
        from tensonde.session.agent import Agent

        address = Address.parse(options.hub) if options.hub else from_environment()
        if address is None:
            return None
        inspector = training.inspector()
        agent = Agent(inspector, address, RemoteConsole(inspector), epoch=lambda: training.epoch)
        agent.start()
        if options.debug:
            agent.link.wait(10.0)
        training.debugger_attached(stop_at_entry=options.debug)
        return agent
    except Exception as problem:
        training.session.guard.contain("joining the hub", problem)
        return None


def _attach_console(training: Training, options: Options) -> None:
    if os.environ.get("LOCAL_RANK", "0") != "0":
        return
    from tensonde.debugger.console import Console

    training.session.gate.controller = Console(training.inspector())
    training.debugger_attached(stop_at_entry=options.debug)


def _at_the_end(close: Callable[[], None]) -> None:
    """When the interpreter ends; or, in a child that multiprocessing has forked, which leaves by `os._exit`, when its task does."""
    atexit.register(close)
    multiprocessing = sys.modules.get("multiprocessing.process")
    if multiprocessing is not None and multiprocessing.parent_process() is not None:
        from multiprocessing.util import Finalize

        Finalize(None, close, exitpriority=0)


def _at_the_end_of_cells(write: Callable[[], None]) -> None:
    """In a notebook the process waits between cells, and what a cell has recorded is looked at meanwhile."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is not None:
        shell.events.register("post_run_cell", lambda *_: write())


def _close(adapter: Adapter, training: Training, pid: int, agent: Agent | None = None) -> None:
    if training in _closed:
        return
    _closed.append(training)
    adapter.withdraw()
    if os.getpid() != pid:
        training.detach()
        return
    training.close(_failure)
    try:
        if agent is not None:
            agent.close({"exception": _failure})
    except Exception as problem:
        training.session.guard.contain("leaving the hub", problem)


def _noting(hook: Any, adapter: Adapter, training: Training) -> Any:
    """Prints the traceback of the exception that ends the program, without Tensonde's frames, and then notes it."""

    def excepthook(kind: type[BaseException], problem: BaseException, trace: TracebackType | None) -> None:
        _note(hook, adapter, training, kind, problem, trace)

    return excepthook


def _noting_threads(hook: Any, adapter: Adapter, training: Training) -> Any:
    """The same for an exception that ends a thread. What ends the thread that trains ends the training, if not the program."""

    def excepthook(args: threading.ExceptHookArgs) -> None:
        if args.exc_value is None or args.exc_type is SystemExit:  # which `hook` passes over
            hook(args)
        else:
            whole = args.exc_traceback
            _trim(args.exc_value, adapter, training)
            trimmed = args.exc_value.__traceback__
            hook(threading.ExceptHookArgs((args.exc_type, args.exc_value, trimmed, args.thread)))
            if threading.get_ident() == training.thread:
                _describe(args.exc_value, whole, training)

    return excepthook


def _noting_early(hook: Any, adapter: Adapter) -> Any:
    """The same for a program that fails before its training begins, in an optimizer's or a loader's arguments, say."""

    def excepthook(kind: type[BaseException], problem: BaseException, trace: TracebackType | None) -> None:
        training = None
        try:
            if adapter.current() is None and adapter.concerns_training(problem, trace):
                training = adapter.begin()
        except Exception as second:
            logging.getLogger("tensonde").debug("the exception could not be noted: %s", second)
        if training is None:
            hook(kind, problem, trace)
        else:
            _note(hook, adapter, training, kind, problem, trace)

    return excepthook


def _note(
    hook: Any,
    adapter: Adapter,
    training: Training,
    kind: type[BaseException],
    problem: BaseException,
    trace: TracebackType | None,
) -> None:
    """The traceback comes first: what there is to find out may take a forward pass."""
    global _interrupted
    whole = trace
    _interrupted = issubclass(kind, KeyboardInterrupt) and _went_to_the_top(trace)
    _trim(problem, adapter, training)
    hook(kind, problem, problem.__traceback__)
    _describe(problem, whole, training)


def _note_caught(adapter: Adapter, training: Training, problem: BaseException) -> None:
    """An exception that a launcher is about to catch, and print or send on."""
    whole = problem.__traceback__
    if threading.get_ident() != training.thread or training in _closed:
        return
    if isinstance(problem, SystemExit):
        training.session.whereabouts.leaves(problem.code, whole)
    else:
        _trim(problem, adapter, training)
        _describe(problem, whole, training)


def _trim(problem: BaseException, adapter: Adapter, training: Training) -> None:
    try:
        _despite_handlers(lambda: adapter.trim(problem))
    except Exception as second:
        training.session.guard.contain("describing an exception", second)


def _describe(problem: BaseException, whole: TracebackType | None, training: Training) -> None:
    global _failure
    try:
        if _failure is None:
            _failure = _despite_handlers(lambda: training.describe(problem, whole))
            training.session.writer.event("exception", **_failure)
            training.bring_up_to_date()
    except Exception as second:
        training.session.guard.contain("describing an exception", second)


def _despite_handlers(work: Callable[[], Any]) -> Any:
    """Does it again where it failed: a signal handler may raise in the middle (torch's own does, when a worker of a loader dies)."""
    try:
        return work()
    except Exception:
        return work()


def _went_to_the_top(trace: TracebackType | None) -> bool:
    """No frame of the program is left; it was not the program itself that called `sys.excepthook`."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if trace is None or frame is trace.tb_frame:
            return False
        frame = frame.f_back
    return True


def _end_as_interrupted() -> None:
    """Python ends by SIGINT if the KeyboardInterrupt was not caught. It keeps that in a flag, which every `exec` of a
    text clears, and such may well run at the end (a named tuple that is imported, by us or by what we imported); one that
    raises it sets the flag again."""
    if _interrupted:
        with contextlib.suppress(KeyboardInterrupt):
            exec("raise KeyboardInterrupt")
