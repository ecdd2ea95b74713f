"""A problem that is drawn at random, and what it is drawn from."""

import math

import torch


class Case:
    """A problem: how to make its inputs, our call, the peers' calls by name, and what is right."""

    def __init__(self, kind, told, make, ours, peers, right, bytes_of):
        self.kind, self.told, self.make, self.ours, self.peers = kind, told, make, ours, peers
        self.right, self.bytes = right, bytes_of


def random_of(rng, least, most, step):
    """A size whose logarithm is even between two bounds."""
    size = math.exp(rng.uniform(math.log(least), math.log(most)))
    return max(least, int(size) // step * step)


def uniform(*shape, dtype=torch.bfloat16):
    return (torch.rand(*shape, device="cuda") * 2 - 1).to(dtype)


def stored(rows, columns, turned, dtype, batch=()):
    """A matrix that lies row after row, or column after column."""
    return uniform(*batch, columns, rows, dtype=dtype).transpose(-1, -2) if turned else uniform(*batch, rows, columns, dtype=dtype)
