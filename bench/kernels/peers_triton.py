"""A matrix product in Triton, tuned over a few tiles: the peer of those who write
their kernels in Python."""

import torch
import triton
import triton.language as tl


def configurations():
    for rows, columns, depth, warps, stages in [
        (128, 128, 64, 4, 3),
        (128, 128, 64, 8, 3),
        (128, 256, 64, 8, 3),
        (256, 128, 64, 8, 3),
        (128, 256, 32, 8, 4),
    ]:
        yield triton.Config(
            {"ROWS": rows, "COLUMNS": columns, "DEPTH": depth, "GROUP": 8},
            num_warps=warps,
            num_stages=stages,
        )


@triton.autotune(list(configurations()), key=["m", "n", "k"])
@triton.jit
def _matmul(
    a, b, c, m, n, k, a_row, a_col, b_row, b_col, c_row,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr, GROUP: tl.constexpr,
):
    # Bands of GROUP tile rows, column after column, so that neighbours share L2.
    tile = tl.program_id(0)
    tile_rows, tile_columns = tl.cdiv(m, ROWS), tl.cdiv(n, COLUMNS)
    band = tile // (GROUP * tile_columns)
    first = band * GROUP
    height = min(tile_rows - first, GROUP)
    within = tile % (GROUP * tile_columns)
    row, column = first + within % height, within // height

    rows = row * ROWS + tl.arange(0, ROWS)
    columns = column * COLUMNS + tl.arange(0, COLUMNS)
    depths = tl.arange(0, DEPTH)
    a_at = a + (rows % m)[:, None] * a_row + depths[None, :] * a_col
    b_at = b + depths[:, None] * b_row + (columns % n)[None, :] * b_col
    sums = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for begin in range(0, k, DEPTH):
        inside = depths < k - begin
        left = tl.load(a_at, mask=inside[None, :], other=0.0)
        right = tl.load(b_at, mask=inside[:, None], other=0.0)
        sums = tl.dot(left, right, sums)
        a_at += DEPTH * a_col
        b_at += DEPTH * b_row
    at = c + rows[:, None] * c_row + columns[None, :]
    tl.store(at, sums.to(c.dtype.element_ty), mask=(rows < m)[:, None] & (columns < n)[None, :])


def matmul(a, b):
    """Work that computes a times b."""
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty(m, n, dtype=a.dtype, device=a.device)

    def tiles(meta):
        return (triton.cdiv(m, meta["ROWS"]) * triton.cdiv(n, meta["COLUMNS"]),)

    def work():
        _matmul[tiles](a, b, c, m, n, k, *a.stride(), *b.stride(), c.stride(0))
        return c

    return work
