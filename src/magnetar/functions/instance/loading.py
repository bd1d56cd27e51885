"""Finds the function in user's code, and how it wants to be called. Driver.

What is named is imported once; how it is called is read from its signature, never by trying:

| Code | Called with |
|---|---|
| `def process(input)` | each message |
| `def process(input, context)`, also as a method of a class | each message and the context |
| `async def …` | the same, several at a time |
| `def process(batch)`, `def process_batch(…)`, an input annotated as a list | a list of messages |

A function that takes a list returns None, or a list of as many results, each of which may be None.

An error of the module or of the class's constructor is a CodeError with its traceback.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Final

from magnetar.functions.errors import CodeError

_BATCH_NAMES: Final = frozenset(("batch", "messages", "inputs"))
_LISTS: Final = frozenset(("list", "List", "Sequence", "Iterable", "tuple"))


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedFunction:
    """A function that can be called."""

    call: Callable[..., object]
    wants_context: bool
    is_async: bool
    is_batch: bool
    annotation: object
    """Annotation of the input, of a batch that of one message; None when there is none."""
    instance: object
    """The object of a class; the module of a plain function."""
    module: ModuleType


def load(class_name: str, package: Path, paths: Iterable[str]) -> LoadedFunction:
    """Imports the user's code and finds `class_name` in it: `module.Class`, `module.function`, `module` with
    a function `process`, or, in a single file, the name alone. Raises CodeError."""
    for path in reversed(list(paths)):
        if path not in sys.path:
            sys.path.insert(0, path)
    try:
        module, found = _named(class_name, package)
    except CodeError:
        raise
    except (Exception, SystemExit) as error:  # the user's code may raise anything
        raise CodeError(f"{package.name} cannot be imported:\n{user_trace(error)}") from error
    return described(found, module)


def _named(class_name: str, package: Path) -> tuple[ModuleType, object]:
    head, _, tail = class_name.rpartition(".")
    if package.suffix == ".py":
        module = _from_file(head or class_name, package)
        for name in (tail, "process", "process_batch"):
            if hasattr(module, name):
                return module, getattr(module, name)
        raise CodeError(f"{package.name} has neither {tail} nor a function named process")
    if head:
        module = importlib.import_module(head)
        if hasattr(module, tail):
            return module, getattr(module, tail)
    try:
        module = importlib.import_module(class_name)
    except ModuleNotFoundError as error:
        # Raised for the name itself; a module that the user's code misses is told with its traceback.
        if error.name is None or not class_name.startswith(error.name):
            raise
        raise CodeError(f"{package.name} has no {class_name}: name it as module.Class or module") from error
    for name in ("process", "process_batch"):
        if hasattr(module, name):
            return module, getattr(module, name)
    raise CodeError(f"the module {class_name} has no function named process")


def _from_file(name: str, path: Path) -> ModuleType:
    """Imports a file under the name that the function's class name begins with, however it is called."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise CodeError(f"{path.name} cannot be imported as Python code")
    module = importlib.util.module_from_spec(spec)
    before = sys.modules.get(name)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        if before is not None:
            sys.modules[name] = before
        else:
            del sys.modules[name]
        raise
    return module


def described(found: object, module: ModuleType) -> LoadedFunction:
    """How `found`, a class or a function, is called. Raises CodeError."""
    instance: object = module
    call = found
    if inspect.isclass(found):
        try:
            instance = found()
        except Exception as error:  # the user's constructor may raise anything
            raise CodeError(f"{found.__name__}() failed:\n{user_trace(error)}") from error
        call = getattr(instance, "process", None) or getattr(instance, "process_batch", None)
        if call is None:
            raise CodeError(f"the class {found.__name__} has no method named process")
    if not callable(call):
        raise CodeError(f"{found!r} is not a function: name a function or a class with a method process")
    parameters = _parameters(call)
    first = parameters[0]
    annotation = None if first.annotation is inspect.Parameter.empty else first.annotation
    is_list = _outer(annotation) in _LISTS
    is_batch = getattr(call, "__name__", "") == "process_batch" or first.name in _BATCH_NAMES or is_list
    return LoadedFunction(
        call=call,
        wants_context=len(parameters) > 1,
        is_async=inspect.iscoroutinefunction(call),
        is_batch=is_batch,
        annotation=_inner(annotation) if is_list else annotation,
        instance=instance,
        module=module,
    )


def _parameters(call: Callable[..., object]) -> list[inspect.Parameter]:
    places = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = [each for each in inspect.signature(call).parameters.values() if each.kind in places]
    needed = [each for each in parameters if each.default is inspect.Parameter.empty]
    if not parameters or len(needed) > 2:
        raise CodeError(f"process takes {len(needed)} arguments: it gets an input, or an input and a context")
    return parameters[: max(1, min(2, len(parameters)))] if _second_is_context(parameters) else parameters[:1]


def _second_is_context(parameters: list[inspect.Parameter]) -> bool:
    if len(parameters) < 2:
        return False
    second = parameters[1]
    return second.default is inspect.Parameter.empty or second.name == "context"


def _outer(annotation: object) -> str:
    if isinstance(annotation, str):
        return annotation.partition("[")[0].rpartition(".")[2]
    origin = getattr(annotation, "__origin__", annotation)
    return getattr(origin, "__name__", "")


def _inner(annotation: object) -> object:
    if isinstance(annotation, str):
        return annotation.partition("[")[2].rpartition("]")[0] or None
    arguments = getattr(annotation, "__args__", ())
    return arguments[0] if arguments else None


def user_trace(error: BaseException) -> str:
    """The traceback as far as it is the user's: without frames of this package and of imports."""
    lines = traceback.TracebackException.from_exception(error)
    own = str(Path(__file__).parents[1])
    kept = [frame for frame in lines.stack if own not in frame.filename and "<frozen " not in frame.filename]
    lines.stack = traceback.StackSummary.from_list(kept)
    return "".join(lines.format()).rstrip()
