"""Loads a user's model file: `Model`, `get_inputs()`, optional `get_init_inputs()`, `get_check_inputs()`.

`get_inputs()` returns the positional arguments of `forward` as a list or tuple, or its keyword arguments
as a dict. `get_init_inputs()` returns those of `Model` likewise, or `[[...], {...}]` for both.
`get_check_inputs()` returns a list of results like those of `get_inputs()`.
"""

import importlib.util
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from torch import nn

from mkevolve.errors import ModelError
from mkevolve.models.inputs import Call, InputSource


@dataclass(frozen=True)
class FileInputs(InputSource):
    """Inputs that the functions of a user's file return."""

    path: Path
    get_inputs: Callable[[], object]
    get_check_inputs: Callable[[], object] | None
    checks: int

    def variants(self) -> tuple[str, ...]:
        return ("target", *(f"check_{i + 1}" for i in range(self.checks)))

    def make(self, variant: str) -> Call:
        if variant == "target" or self.get_check_inputs is None:
            return _call(self.path, "get_inputs", self.get_inputs)
        results = _called(self.path, "get_check_inputs", self.get_check_inputs)
        number = int(variant.removeprefix("check_")) - 1
        if not isinstance(results, list | tuple) or len(results) <= number:
            raise ModelError(f"{self.path}: get_check_inputs() returned another number of inputs than before")
        return as_call(self.path, "get_check_inputs", results[number])


def load_user_file(path: str) -> tuple[str, nn.Module, FileInputs]:
    """Import a file and build its `Model`: its name (without .py), the module and its inputs."""
    file = Path(path).expanduser().resolve()
    namespace = _import(file)
    constructor = getattr(namespace, "Model", None)
    if not callable(constructor):
        classes = [n for n, v in vars(namespace).items() if isinstance(v, type) and issubclass(v, nn.Module)]
        hint = f" (it has {', '.join(classes)}: name the one to speed up Model)" if classes else ""
        raise ModelError(f"{file} defines no class Model{hint}")
    get_inputs = getattr(namespace, "get_inputs", None)
    if not callable(get_inputs):
        raise ModelError(f"{file} defines no get_inputs(); it returns the list of arguments of Model.forward")
    args, kwargs = _init_inputs(file, getattr(namespace, "get_init_inputs", None))
    try:
        module = constructor(*args, **kwargs)
    except (Exception, SystemExit) as error:
        raise ModelError(
            f"{file}: Model cannot be built from get_init_inputs(): {_describe(error, file)}"
        ) from error
    if not isinstance(module, nn.Module):
        raise ModelError(f"{file}: Model makes a {type(module).__name__}, not a torch.nn.Module")
    get_checks = getattr(namespace, "get_check_inputs", None)
    inputs = FileInputs(file, get_inputs, get_checks, _number_of_checks(file, get_checks))
    inputs.make("target")
    return file.stem, module, inputs


def as_call(file: Path, name: str, value: object) -> Call:
    """Read what `get_inputs()` returned as `(args, kwargs)`."""
    if isinstance(value, dict):
        return (), value
    if isinstance(value, list | tuple):
        return tuple(value), {}
    raise ModelError(
        f"{file}: {name}() returned a {type(value).__name__}; return the arguments of Model.forward as a list"
    )


def _call(file: Path, name: str, function: Callable[[], object]) -> Call:
    return as_call(file, name, _called(file, name, function))


def _called(file: Path, name: str, function: Callable[[], object]) -> object:
    try:
        return function()
    except (Exception, SystemExit) as error:
        raise ModelError(f"{file}: {name}() failed: {_describe(error, file)}") from error


def _init_inputs(file: Path, function: Callable[[], object] | None) -> Call:
    if function is None:
        return (), {}
    value = _called(file, "get_init_inputs", function)
    if isinstance(value, list | tuple) and len(value) == 2:
        args, kwargs = value
        if isinstance(args, list | tuple) and isinstance(kwargs, dict):
            return tuple(args), kwargs
    return as_call(file, "get_init_inputs", value)


def _number_of_checks(file: Path, function: Callable[[], object] | None) -> int:
    if function is None:
        return 0
    value = _called(file, "get_check_inputs", function)
    if not isinstance(value, list | tuple) or not all(isinstance(v, list | tuple | dict) for v in value):
        raise ModelError(
            f"{file}: get_check_inputs() must return a list of results like those of get_inputs()"
        )
    return len(value)


def _import(file: Path) -> ModuleType:
    if not file.is_file():
        what = "is a folder" if file.is_dir() else "does not exist"
        raise ModelError(
            f"model.path={file} {what}; give the Python file that defines Model and get_inputs()"
        )
    name = f"mkevolve_user_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ModelError(f"model.path={file} is no Python file; its name must end in .py")
    namespace = importlib.util.module_from_spec(spec)
    sys.modules[name] = namespace  # dataclasses and pickle look their module up
    try:
        spec.loader.exec_module(namespace)
    except ModuleNotFoundError as error:
        raise ModelError(
            f"{file} needs the module {error.name}, which is missing; install it or put it on PYTHONPATH"
        ) from error
    except SyntaxError as error:
        raise ModelError(f"{file}:{error.lineno}: {error.msg}") from error
    except (Exception, SystemExit) as error:
        raise ModelError(f"{file} cannot be imported: {_describe(error, file)}") from error
    return namespace


def _describe(error: BaseException, file: Path) -> str:
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if Path(f.filename) == file]
    first = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}" + (f" (line {lines[-1]})" if lines else "")
