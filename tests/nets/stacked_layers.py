"""Check that the stacked form of a layer gives the same outputs and gradients."""

import torch


def assert_stacked_agrees(layer, shape, batch, clients, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def random(*size):
        return torch.randn(*size, generator=generator, dtype=torch.float64).requires_grad_()

    weights = [random(clients, *size) for size in layer.shapes.values()]
    x = random(clients, batch, *shape)
    upstream = random(clients, batch, *layer.out_shape(shape)).detach()
    single = torch.stack([layer.apply([w[k] for w in weights], x[k]) for k in range(clients)])
    stacked = layer.apply_stacked(weights, x.movedim(1, -1)).movedim(-1, 1)
    assert stacked.shape == upstream.shape
    one, other = (
        [y, *torch.autograd.grad((y * upstream).sum(), [*weights, x])] for y in (single, stacked)
    )
    for theirs, ours in zip(one, other, strict=True):
        torch.testing.assert_close(ours, theirs)
