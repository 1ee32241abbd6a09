"""Models for capture tests, and a replay of a captured model that is independent of `check_capture`."""

import copy
from dataclasses import dataclass

import torch
from torch import nn

from mkevolve.capture import bind, constants_of, unflatten
from mkevolve.data.model_config import ModelConfig
from mkevolve.models.inputs import InputSource
from mkevolve.models.source import Model
from mkevolve.reference import run_graph


@dataclass(frozen=True)
class OneSize(InputSource):
    make_call: object

    def variants(self):
        return ("target",)

    def make(self, variant):
        made = self.make_call()
        return made if isinstance(made[-1], dict) else (made, {})


def model_of(module, make_call, train=False):
    """A model as from a user's file: one size, inputs from a function."""
    name = type(module).__name__
    return Model(
        name,
        module.train(train),
        ModelConfig(name, path=f"{name}.py", train=train),
        0,
        "float32",
        OneSize(make_call),
    )


class Replay:
    """Calls the graph of one variant as the module would be called, and keeps its own buffers."""

    def __init__(self, model, captured, variant):
        self.captured, self.variant = captured, variant
        self.state = {k: t.detach().clone() for k, t in constants_of(model, captured).items()}
        self.names = {i.target: i.name for i in variant.graph.params}

    def __call__(self, *args, **kwargs):
        inputs = bind(self.variant, args, kwargs)
        outputs = run_graph(self.variant.graph, {**inputs, **self.state})
        for mutation in self.captured.mutations:
            if mutation.kind == "input":
                inputs[mutation.target].copy_(outputs[mutation.output])
            elif mutation.target in self.names:
                self.state[self.names[mutation.target]] = outputs[mutation.output]
        return unflatten(self.captured, outputs)

    def buffer(self, target):
        return self.state[self.names[target]]


def both(model, captured, variant, seed):
    """Run eager (a copy of the module) and a replay on equal inputs with equal random state, twice each."""
    module, replay = copy.deepcopy(model.module), Replay(model, captured, variant)
    for number in range(2):
        args, kwargs = model.example(variant, seed + number)
        other_args, other_kwargs = model.example(variant, seed + number)
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(number)
            expected = module(*args, **kwargs)
            torch.manual_seed(number)
            found = replay(*other_args, **other_kwargs)
        yield (expected, (args, kwargs), module), (found, (other_args, other_kwargs), replay)


class Constants(nn.Module):
    """Constants of every origin: attribute, list and dict items, module-level names, literals in forward."""

    def __init__(self):
        super().__init__()
        self.table = torch.arange(4.0)
        self.many = [torch.ones(4), {"k": torch.full((4,), 2.0)}]

    def forward(self, x):
        literal = torch.tensor([1.0, 2.0, 3.0, 4.0])
        return x * literal + self.table.clone() + self.many[0] * self.many[1]["k"] + GLOBAL


GLOBAL = torch.linspace(0, 1, 4)
