"""Any PyTorch module as a stacked reward model, by `torch.func`."""

from __future__ import annotations

import copy
import hashlib
import math
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cautious.errors import InvalidInputError
from cautious.io.arrays import fingerprint_of
from cautious.validation import as_float_tensor, check_size

ModuleFactory = Callable[[], nn.Module]
Loss = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""From predictions and targets, [..., B, A] each, to the loss [...] and its slope by the predictions [..., B, A]."""

MODELS_PER_CALL = 16
"""Number of models in a call; on the CPU always exactly this many (`beliefs.fixed_shapes`)."""

_BUILDING = threading.Lock()
"""PyTorch's layers draw their initial weights from one generator for the whole process: one model is built at a time."""


class ModuleNetwork:
    """An architecture given by a function that makes a module from inputs [B, ...] to rewards [B, A].

    Parameters with requires_grad=False, such as a pretrained part's, are not trained: all models share those of the module as
    the function makes it.
    """

    name = "module"
    block: Mapping[str, tuple[int, int]] = MappingProxyType(
        {"cpu": (MODELS_PER_CALL, 64), "cuda": (MODELS_PER_CALL, 1024)}
    )
    rows_per_call = 64
    blocks_per_task = 16
    reward_scale, action_units = 1.0, None  # predictions are in the rewards' own units (`VectorNetwork` has others)

    def __init__(self, factory: ModuleFactory, example: Tensor) -> None:
        """Build one module to learn its shape, and try it on an example [B, ...]."""
        self._factory = factory
        self._module = _built(factory, 0)
        self._copies: dict[tuple[int, torch.device], nn.Module] = {}
        buffers = [name for name, _ in self._module.named_buffers()]
        if buffers:
            raise InvalidInputError(
                f"network: the module keeps buffers ({', '.join(buffers[:3])}), as batch normalisation does; they mix the "
                "samples of a batch and cannot be stacked. Use layer or group normalisation instead."
            )
        self._shapes = {name: tuple(part.shape) for name, part in _trained(self._module).items()}
        if not self._shapes:
            raise InvalidInputError(
                "network: the module has no parameters to train (none at all, or all with requires_grad=False)."
            )
        self._fixed = tuple(part.detach() for part in self._module.parameters() if not part.requires_grad)
        self.constants = self._fixed
        """Numbers beside weights and data that the result of training depends on."""
        self.num_parameters = sum(math.prod(shape) for shape in self._shapes.values())
        self.state_shape = tuple(example.shape[1:])
        self.num_actions = self._try_out(example[:2].float())

    def _try_out(self, example: Tensor) -> int:
        first = _as_vector(self._module)[None]
        try:
            found = self.predict(first.cpu(), example.cpu())
        except InvalidInputError:
            raise
        except Exception as error:  # whatever a user's module may raise
            raise InvalidInputError(
                f"network: the module could not be stacked by torch.func or does not take inputs of shape "
                f"{list(example.shape)} ({type(error).__name__}: {str(error).splitlines()[0] if str(error) else error}). "
                "It must be free of dropout and of decisions that depend on values."
            ) from error
        if found.dim() != 3 or found.shape[1] != len(example):
            raise InvalidInputError(f"network: expected rewards [B, A] from the module, got {list(found.shape[1:])}.")
        return int(found.shape[2])

    def _caller(self, device: torch.device) -> Callable[[dict[str, Tensor], Tensor], Tensor]:
        """One model's rewards from its weights and inputs [B, ...] there: [B, A].

        `functional_call` lends weights to the module, so each thread has a copy of it.
        """
        place = threading.get_ident(), device
        if place not in self._copies:
            self._copies[place] = copy.deepcopy(self._module).to(device)
        module = self._copies[place]
        return lambda own, inputs: torch.func.functional_call(module, own, (inputs,))

    def module(self) -> nn.Module:
        """A new module of this architecture, with its own initial weights."""
        return self._factory()

    @property
    def title(self) -> str:
        """A name for this architecture in folders of unfinished work, with a hash of the module's printed form."""
        printed = re.sub(r" at 0x[0-9a-f]+", "", repr(self._module))
        digest = hashlib.sha256(f"{printed} {self._shapes}".encode()).hexdigest()
        return f"{self.name} {type(self._module).__name__} {digest[:16]}"

    def describe(self) -> dict[str, Any]:
        """Shape of a state, and names and shapes of the parameters. The code of the module is not kept."""
        shapes = {name: list(shape) for name, shape in self._shapes.items()}
        fixed = {"untrained": fingerprint_of(*self._fixed)} if self._fixed else {}
        return {"state_shape": list(self.state_shape), "parameters": shapes, **fixed}

    def init(self, rng: np.random.Generator) -> np.ndarray:
        """Initial weights of one model, drawn by the module itself, [P]."""
        return initial_weights(self._factory, rng)

    def as_states(self, states: Any) -> tuple[Tensor, ...]:
        """States as numbers [S, ...] of the shape that the network was made for."""
        return (as_inputs(states, self.state_shape).float(),)

    def _by_name(self, parameters: Tensor) -> dict[str, Tensor]:
        """The parameters of the module by name, [M, ...] each, from weights [M, P]."""
        return dict(zip(self._shapes, split_parameters(parameters, self._shapes.values()), strict=True))

    def predict(self, parameters: Tensor, *states: Tensor) -> Tensor:
        """Every model's rewards on the same inputs: [M, P], [S, ...] -> [M, S, A]."""
        (inputs,) = states
        call = self._caller(inputs.device)
        run = torch.func.vmap(lambda own: call(own, inputs))
        return run(self._by_name(parameters))

    def gradient(self, parameters: Tensor, inputs: Tensor, targets: Tensor, loss: Loss) -> tuple[Tensor, Tensor]:
        """Loss of each model on its own batch, and its gradient: [M, P], [M, B, ...], [M, B, A] -> [M], [M, P]."""
        call = self._caller(inputs.device)

        def one(weights: dict[str, Tensor], inputs: Tensor, targets: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
            predictions, pull_back = torch.func.vjp(lambda own: call(own, inputs), weights)  # type: ignore[misc]
            value, slope = loss(predictions, targets)
            return value.detach(), pull_back(slope)[0]

        losses, slopes = torch.func.vmap(one)(self._by_name(parameters), inputs, targets)
        return losses, torch.cat([slopes[name].reshape(len(parameters), -1) for name in self._shapes], dim=1).detach()


def split_parameters(parameters: Tensor, shapes: Iterable[tuple[int, ...]]) -> list[Tensor]:
    """Weights [M, P], cut into parts of these shapes; each part [M, ...] has memory of its own."""
    known = list(shapes)
    parts = parameters.split([math.prod(shape) for shape in known], dim=1)
    return [
        part.contiguous().unflatten(1, shape) if shape else part.contiguous().squeeze(1)
        for part, shape in zip(parts, known, strict=True)
    ]


def initial_weights(factory: ModuleFactory, rng: np.random.Generator) -> np.ndarray:
    """Initial weights as the module draws them itself, [P]."""
    return _as_vector(_built(factory, int(rng.integers(2**62)))).double().numpy()


def _trained(module: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters of a module that are trained, by name: those with requires_grad=True."""
    return {name: part for name, part in module.named_parameters() if part.requires_grad}


def _as_vector(module: nn.Module) -> Tensor:
    """A module's trained parameters, joined, [P]."""
    return torch.nn.utils.parameters_to_vector(_trained(module).values()).detach()


def _built(factory: ModuleFactory, seed: int) -> nn.Module:
    """A module whose initial weights depend on `seed` alone. The global generator of PyTorch is left as it was."""
    with _BUILDING, torch.random.fork_rng(devices=[]), _in_float32():
        torch.default_generator.manual_seed(seed)
        try:
            module = factory()
        except Exception as error:  # whatever a user's function may raise
            raise InvalidInputError(
                f"network: made no module when called without arguments ({type(error).__name__}: {error}); pass a function "
                "that does, such as lambda: MyModule(3)."
            ) from error
    if not isinstance(module, nn.Module):
        raise InvalidInputError(
            f"network: expected a function that returns a torch module, got {type(module).__name__}."
        )
    return copy.deepcopy(module).float().cpu()  # parts that it shares with others stay theirs


@contextmanager
def _in_float32() -> Iterator[None]:
    """Set the default type of PyTorch to float32 meanwhile: it determines the draws of initial weights."""
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(usual)


def as_inputs(states: Any, shape: tuple[int, ...] | None = None) -> Tensor:
    """Inputs [S, ...], checked: finite, in the range of float32, and with the given shape of a state. float64 stays float64."""
    inputs = as_float_tensor(states, "inputs")
    if inputs.dim() and not len(inputs):
        raise InvalidInputError(f"inputs: there are none (shape {list(inputs.shape)}); give at least one row.")
    if inputs.dim() < 2:
        one = "; for one state pass states[None], a batch of one" if inputs.dim() == 1 else ""
        raise InvalidInputError(f"inputs: expected one row per state, [S, ...], got shape {list(inputs.shape)}{one}.")
    if 0 in inputs.shape:
        raise InvalidInputError(
            f"inputs: states of shape {list(inputs.shape[1:])} hold no number; each needs at least one."
        )
    check_size(inputs, "inputs", torch.finfo(torch.float32).max)
    if shape is not None and tuple(inputs.shape[1:]) != shape:
        raise InvalidInputError(f"inputs: expected shape [S, {', '.join(map(str, shape))}], got {list(inputs.shape)}.")
    return inputs
