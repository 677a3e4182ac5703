"""The kaleidoscope layer: products of a butterfly matrix and the transpose of another."""

from __future__ import annotations

from layers.base import check_whole
from layers.butterfly import Butterfly
from layers.chain import Chain


class Kaleidoscope(Chain, name="kaleidoscope"):
    r"""Kaleidoscope matrix over all D entries of an event, (B_1 B'_1^T) ... (B_w B'_w^T); no bias.

    B and B' are butterfly matrices with separate weights: the factors that `layers.butterfly` has on D by
    default, in B'^T from the first to the last and in B back. A butterfly and its transpose have the same support in
    reverse order, so that B'^T needs no transposition. One pair (w = 1) holds every permutation, on 2^k entries also
    every circulant matrix (with complex weights), and some width w every sparse structured matrix, in nearly as few
    numbers. All factors start at the identity.

    The paper pads a D that is no power of two, which would not be invertible on the event. Here such a D has a stage
    for each of its primes, and a pair has 2m - 1 of m: the last stage of B'^T and the first of B are one matrix. As in
    the butterfly, a prime above 31 cuts D into parts that do not mix, as `remark` says.

    Determinant: log|det| = sum of log|ad - bc| over all 2x2 matrices, and of log_s for odd primes.
    Inverse: the pairs in reverse order, each 2x2 matrix in closed form, others by one batched solve.
    Parameters: those of the butterfly's stages, 4 w D for each level of 2x2 matrices on 2^k entries.
    Singular cases: ad = bc anywhere: log|det| = -inf, and the inverse is not finite.

    Family: butterflies
    Cost:
        forward: w times a butterfly's there and back; 4 w D log2(D) multiply-adds for D a power of two, by its compiled
        kernels on a CPU
        inverse: the same, after O(w p^2 D) for the matrices of an odd prime p, once per call
        log-det: 3 w D operations for each level of 2x2 matrices, w D for each other stage
    Shapes: every (C, L) and (C, H, W); every entry reaches every other unless D has a prime factor above 31
    Source: Kaleidoscope (Dao et al., ICLR 2020)

    Args:
        width: w, the number of pairs.
    """

    def __init__(self, shape: tuple[int, ...], *, width: int = 1) -> None:
        check_whole("kaleidoscope", "width", width)
        super().__init__(shape, (Butterfly(shape, bi_direction=True) for _ in range(width)))
