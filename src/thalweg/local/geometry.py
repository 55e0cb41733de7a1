"""Geometries (mirror maps) of the local gradient step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from thalweg.core.config import check_ranges

if TYPE_CHECKING:
    from torch import Tensor


class Geometry(Protocol):
    """A geometry for gradient steps. Implement the members; no base class is needed."""

    @property
    def is_euclidean(self) -> bool:
        """Whether a step is a plain subtraction, which an engine may do in place."""
        ...

    def move(self, params: Tensor, step: Tensor, sizes: Sequence[int]) -> Tensor:
        """Return the parameters (K, P) after a step (K, P), the learning rate times a direction.

        `sizes` are the lengths of the parameter tensors that make up P.
        """
        ...


@dataclass(frozen=True)
class Euclidean:
    r"""The ordinary gradient step: :math:`y \leftarrow y - \eta g`.

    >>> import torch
    >>> Euclidean().move(torch.tensor([[0.5]]), step=torch.tensor([[0.25]]), sizes=[1]).tolist()
    [[0.25]]
    """

    @property
    def is_euclidean(self) -> bool:
        return True

    def move(self, params: Tensor, step: Tensor, sizes: Sequence[int]) -> Tensor:
        return params - step


@dataclass(frozen=True)
class PNorm:
    r"""Mirror descent with a p-norm, separately for each parameter tensor (FedOMD).

    The mirror map is :math:`\psi(y) = \tfrac12 \lVert y \rVert_p^2`, and a step is

    .. math::
        f_p(y)_i = \mathrm{sign}(y_i) |y_i|^{p-1} / \lVert y \rVert_p^{p-2}, \qquad
        y \leftarrow f_q\big(f_p(y) - \eta g\big), \qquad 1/p + 1/q = 1

    For p = 2 this is the ordinary step, and near 2 almost; towards 1 it favours few large
    parameters.

    Symbols, Mitra, Hassani, Pappas (2021) -> here
        p                      -> p
        :math:`\eta g`         -> the argument `step` of `move`

    Differs from the paper: it leaves the mirror map open; this one is a choice of this library.

    >>> import torch
    >>> y, g = torch.tensor([[0.5, -0.3]]), torch.tensor([[1.0, 2.0]])
    >>> [round(v, 6) for v in PNorm(1.5).move(y, 0.1 * g, [2])[0].tolist()]
    [0.306445, -0.573206]
    """

    p: float = 1.99

    def __post_init__(self) -> None:
        check_ranges(self, p="(1, 16]")

    @property
    def is_euclidean(self) -> bool:
        return False

    def move(self, params: Tensor, step: Tensor, sizes: Sequence[int]) -> Tensor:
        import torch

        conjugate = self.p / (self.p - 1)
        moved = [
            link(link(tensor, self.p) - tensor_step, conjugate)
            for tensor, tensor_step in zip(
                params.split(list(sizes), dim=1),  # type: ignore[no-untyped-call]
                step.split(list(sizes), dim=1),  # type: ignore[no-untyped-call]
                strict=True,
            )
        ]
        return torch.cat(moved, dim=1)


def link(y: Tensor, p: float) -> Tensor:
    r"""Return (K, n) the gradient of :math:`\tfrac12 \lVert y \rVert_p^2` by row; zero at zero."""
    import torch

    if p == 2:
        return y
    largest = y.abs().amax(1, keepdim=True)  # scale first: powers could under- or overflow
    scaled = torch.where(largest > 0, y / largest, torch.zeros_like(y))
    norm = scaled.abs().pow(p).sum(1, keepdim=True).pow(1 / p)
    dual = scaled.sign() * scaled.abs().pow(p - 1) / norm.clamp_min(1e-30).pow(p - 2)
    return torch.where(largest > 0, dual * largest, torch.zeros_like(y))
