"""A model: the real module, and where its example inputs come from."""

import importlib
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.utils import _pytree as pytree

from mkevolve.data.model import Variant
from mkevolve.data.model_config import ModelConfig
from mkevolve.errors import ConfigError, ModelError
from mkevolve.models.inputs import (
    Call,
    DeclaredInputs,
    InputSource,
    clone_leaf,
    normalise_call,
    resample,
    seeded,
)
from mkevolve.models.user_file import load_user_file

MEMORY_FORMATS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}


@dataclass(frozen=True)
class Model:
    """A module on the CPU, in `train()` or `eval()` as configured, with its example inputs.

    `config` and `seed` say how it was made, and make it again.
    """

    name: str
    module: nn.Module
    config: ModelConfig
    seed: int
    dtype: str
    inputs: InputSource
    targets: dict[int, Call] = field(default_factory=dict, compare=False, repr=False)  # of the last seed

    @property
    def variants(self) -> tuple[str, ...]:
        return self.inputs.variants()

    @property
    def training(self) -> bool:
        return self.config.train

    def example(self, variant: str | Variant, seed: int = 0) -> Call:
        """Return `(args, kwargs)` of a variant, as `normalise_call` does; equal seeds give equal values.

        No two leaves share memory. A captured variant that the model does not declare (its sizes were drawn)
        takes its elements, at random, from the target's inputs of the same seed, so that ids, masks and
        lengths keep their range.
        """
        name = variant if isinstance(variant, str) else variant.name
        if name in self.variants:
            with seeded(seed):
                return self._prepared(self.inputs.make(name))
        if isinstance(variant, str):
            raise ConfigError(f"model {self.name} has no variant {name}; it has {', '.join(self.variants)}")
        if seed not in self.targets:
            self.targets.clear()
            self.targets[seed] = self.example("target", seed)
        with seeded(seed):
            return resample(self.targets[seed], variant.leaves)

    def _prepared(self, call: Call) -> Call:
        dtype = getattr(torch, self.config.dtype) if self.config.dtype else None
        layout = MEMORY_FORMATS[self.config.memory_format] if self.config.memory_format else None

        def leaf(value: object) -> object:
            if not isinstance(value, torch.Tensor):
                self._refuse_foreign(value)
                return value
            if value.device.type == "meta":
                raise ModelError(
                    f"{self.name}: an input of shape {tuple(value.shape)} is on the device meta and has no"
                    " values; inputs must be real CPU tensors (CUDA tensors are moved to the CPU)"
                )
            tensor = clone_leaf(value)
            if dtype is not None and tensor.is_floating_point():
                tensor = tensor.to(dtype)
            return tensor.contiguous(memory_format=layout) if layout and tensor.dim() == 4 else tensor

        args, kwargs = pytree.tree_map(leaf, call)
        return normalise_call(self.module, args, kwargs)

    def _refuse_foreign(self, value: object) -> None:
        if value is None or isinstance(value, bool | int | float | str):
            return
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        cure = "; convert it with torch.from_numpy" if kind == "numpy.ndarray" else ""
        raise ModelError(
            f"{self.name}: an input is a {kind}; pass tensors, numbers, text, or containers of them{cure}"
        )


def build_model(config: ModelConfig, seed: int = 0) -> Model:
    """Build a module and its inputs, both random from `seed`; raises ModelError with one clear line."""
    name = config.name
    inputs: InputSource = DeclaredInputs(config)
    with seeded(seed):
        if config.path is None:
            module = _construct(config)
        else:
            name, module, inputs = load_user_file(config.path)
    if config.random_statistics:
        with seeded(seed):
            randomise_statistics(module)
    module = module.cpu().train(config.train)
    if config.dtype is not None:
        module = module.to(dtype=getattr(torch, config.dtype))
    if config.memory_format is not None:
        _convert(module, MEMORY_FORMATS[config.memory_format])
    return Model(config.name or name, module, config, seed, config.dtype or _dtype(module), inputs)


def randomise_statistics(module: nn.Module) -> None:
    """Give normalisation layers random affine parameters and running statistics (variances in [0.5, 2))."""
    norms = (nn.modules.batchnorm._BatchNorm, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)
    with torch.no_grad():
        for layer in module.modules():
            if not isinstance(layer, norms):
                continue
            for name, tensor in [*layer.named_parameters(recurse=False), *layer.named_buffers(recurse=False)]:
                match name:
                    case "weight":
                        tensor.uniform_(0.5, 1.5)
                    case "bias" | "running_mean":
                        tensor.normal_(0.0, 0.3)
                    case "running_var":
                        tensor.uniform_(0.5, 2.0)


def _convert(module: nn.Module, memory_format: torch.memory_format) -> None:
    # As nn.Module.to(memory_format=...): 4-dimensional weights only.
    with torch.no_grad():
        for tensor in (*module.parameters(), *module.buffers()):
            if tensor.dim() == 4:
                tensor.data = tensor.data.contiguous(memory_format=memory_format)


def _construct(config: ModelConfig) -> nn.Module:
    place, _, attribute = (config.target or "").rpartition(".")
    try:
        constructor = getattr(importlib.import_module(place), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ModelError(f"model.build._target_={config.target} cannot be imported: {error}") from error
    try:
        module = constructor(**dict(config.args))
    except Exception as error:
        raise ModelError(f"{config.target} cannot be built with {dict(config.args)}: {error}") from error
    if not isinstance(module, nn.Module):
        raise ModelError(f"{config.target} makes a {type(module).__name__}, not a torch.nn.Module")
    return module


def _dtype(module: nn.Module) -> str:
    floats = (p.dtype for p in module.parameters() if p.is_floating_point())
    return str(next(floats, torch.get_default_dtype())).removeprefix("torch.")
