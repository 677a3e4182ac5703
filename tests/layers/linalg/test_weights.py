"""The compiled matrix from PLU factors, and log-determinant, equal their formulas."""

import pytest
import torch
from compared import agree, check_errors

from layers.linalg.plu import log_abs_det, plu_matrix

pytestmark = pytest.mark.usefixtures("way")


def factors(size, dtype=torch.float64):
    """Return L and U with entries off their triangles and log_s; signs, a permutation and a number of positions."""
    lower, upper = (0.3 * torch.randn(size, size, dtype=dtype) / max(size, 1) ** 0.5 for _ in range(2))
    signs = torch.randn(size, dtype=dtype).sign()
    return [lower, upper, 0.1 * torch.randn(size, dtype=dtype)], [signs, torch.randperm(size), 7]


def plu_formula(lower, upper, log_s, sign, permutation, positions):
    one = torch.eye(len(log_s), dtype=log_s.dtype)
    product = (lower.tril(-1) + one) @ (upper.triu(1) + torch.diag(sign * log_s.exp()))
    return product[permutation], positions * log_s.sum()


def formula(matrix, positions):
    return positions * torch.linalg.slogdet(matrix).logabsdet


def test_sizes(case):
    for size in (0, 1, 2, 3, 12, 33, 64):
        with case(size=size):
            learned, fixed = factors(size)
            agree(plu_matrix, plu_formula, learned, fixed)
            matrix = torch.randn(size, size, dtype=torch.float64)
            agree(log_abs_det, formula, [matrix], [7])


def test_the_operators_equal_their_formulas_on_views_and_where_rows_must_be_exchanged():
    (lower, upper, _), fixed = factors(5)
    wide = torch.randn(10, dtype=torch.float64)
    operands = [lower.T, torch.cat([upper, upper], 1)[:, ::2], 0.1 * wide[::2]]
    agree(plu_matrix, plu_formula, operands, fixed)
    matrix = torch.randn(8, 4, dtype=torch.float64)[::2].T
    agree(log_abs_det, formula, [matrix], [7])
    # Zeros and tiny numbers on the diagonal, and permutations that are no exchanges of two rows.
    tiny = torch.tensor([[1e-20, 1.0], [1.0, 1.0]], dtype=torch.float64)
    cycle = torch.eye(5, dtype=torch.float64)[[2, 0, 4, 1, 3]] * torch.tensor([2.0, 3, 4, 5, 6], dtype=torch.float64)
    for matrix in (tiny, cycle):
        agree(log_abs_det, formula, [matrix], [7])
    matrix = torch.ones(3, 3, dtype=torch.float64)
    assert log_abs_det(matrix, 7) == -torch.inf and log_abs_det(0 * matrix, 7) == -torch.inf
    assert log_abs_det(torch.full((2, 2), torch.nan), 7).isnan()


@pytest.mark.parametrize("way", ["compiled"], indirect=True)
def test_a_singular_matrix_has_no_gradient(way):
    (gradient,) = torch.autograd.grad(log_abs_det(matrix := torch.ones(3, 3, requires_grad=True), 7), matrix)
    assert gradient.isnan().all()


def test_second_derivatives(check_derivatives):
    learned, fixed = factors(3)
    check_derivatives(lambda *operands: plu_matrix(*operands, *fixed), *learned)
    check_derivatives(lambda matrix: log_abs_det(matrix, 7), torch.randn(3, 3, dtype=torch.float64))


@pytest.mark.parametrize("way", ["compiled"], indirect=True)
def test_error_in_single_precision(way):
    learned, fixed = factors(48, torch.float32)
    check_errors(plu_matrix, plu_formula, learned, fixed, slack=1e-7)
    check_errors(log_abs_det, formula, [torch.randn(48, 48)], [7], slack=1e-7)


@pytest.mark.parametrize("way", ["compiled"], indirect=True)
def test_operands_that_do_not_fit_are_refused(way):
    (lower, upper, log_s), (sign, permutation, n) = factors(4)
    plu = torch.ops.invertbench.plu
    for wrong in (
        (lower, upper[:3], log_s, sign, permutation),
        (lower[:3], upper, log_s, sign, permutation),
        (lower, upper, log_s[:3], sign, permutation),
        (lower, upper, log_s, sign[:1], permutation),
        (lower, upper, log_s, sign, permutation.int()),
    ):
        with pytest.raises(ValueError, match="plu: L"):
            plu(*wrong, n)
    for row in (-1, 4):
        with pytest.raises(IndexError, match=f"plu: row {row}"):
            plu(lower, upper, log_s, sign, torch.tensor([0, 1, 2, row]), n)
    with pytest.raises(TypeError, match="plu"):
        plu(lower, upper.float(), log_s, sign, permutation, n)
    with pytest.raises(ValueError, match="not square"):
        torch.ops.invertbench.log_abs_det(lower[:3], n)
