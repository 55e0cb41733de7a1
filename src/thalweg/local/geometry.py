"""Mirror maps: in which geometry a step is taken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from thalweg.core.config import check_ranges

if TYPE_CHECKING:
    from torch import Tensor


class Geometry(Protocol):
    """A geometry for gradient steps. Any object of this shape will do."""

    @property
    def is_euclidean(self) -> bool:
        """Is a step a subtraction? Then an engine may do it in place."""
        ...

    def move(self, params: Tensor, step: Tensor, sizes: Sequence[int]) -> Tensor:
        """Parameters (K, P) after a step (K, P), the learning rate times a direction.

        `sizes` are the lengths of the parameter tensors that make up P.
        """
        ...


@dataclass(frozen=True)
class Euclidean:
    r"""The ordinary geometry: :math:`y \leftarrow y - \eta g`."""

    @property
    def is_euclidean(self) -> bool:
        return True

    def move(self, params: Tensor, step: Tensor, sizes: Sequence[int]) -> Tensor:
        return params - step


@dataclass(frozen=True)
class PNorm:
    r"""The geometry of :math:`\psi(y) = \tfrac12 \lVert y \rVert_p^2`, tensor by tensor.

    .. math::
        f_p(y)_i = \mathrm{sign}(y_i) |y_i|^{p-1} / \lVert y \rVert_p^{p-2}, \qquad
        y \leftarrow f_q\big(f_p(y) - \eta g\big), \qquad 1/p + 1/q = 1

    For p = 2 it is the ordinary step. Near 2 it hardly differs from it; towards 1 it favours few
    large parameters.

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
        pieces = [
            link(link(mine, self.p) - by, conjugate)
            for mine, by in zip(
                params.split(list(sizes), dim=1),  # type: ignore[no-untyped-call]
                step.split(list(sizes), dim=1),  # type: ignore[no-untyped-call]
                strict=True,
            )
        ]
        return torch.cat(pieces, dim=1)


def link(y: Tensor, p: float) -> Tensor:
    r"""(K, n) the gradient of :math:`\tfrac12 \lVert y \rVert_p^2` in each row; zero at zero."""
    import torch

    if p == 2:
        return y
    largest = y.abs().amax(1, keepdim=True)  # powers of tiny or huge numbers would not survive
    scaled = torch.where(largest > 0, y / largest, torch.zeros_like(y))
    norm = scaled.abs().pow(p).sum(1, keepdim=True).pow(1 / p)
    dual = scaled.sign() * scaled.abs().pow(p - 1) / norm.clamp_min(1e-30).pow(p - 2)
    return torch.where(largest > 0, dual * largest, torch.zeros_like(y))
