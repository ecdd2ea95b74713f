"""Kernels with one mistake each, in the line that says so, and launches that show it."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

BUGS = {}


def bug(*codes):
    """A function that launches a kernel, and the rules that may be told."""

    def add(launch):
        BUGS[launch.__name__] = (launch, codes)
        return launch

    return add


def floats(*shape):
    return torch.arange(1, 1 + torch.Size(shape).numel(), dtype=torch.float32).reshape(shape)




@triton.jit
def unmasked_load(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at)  # BUG
    tl.store(out + at, value, mask=at < n)


@bug("M001")
def missing_mask():
    unmasked_load[(2,)](floats(100), floats(100), 100, BLOCK=64)


@triton.jit
def inclusive(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at <= n
    value = tl.load(x + at, mask=mask)  # BUG
    tl.store(out + at, value, mask=mask)


@bug("M001")
def mask_off_by_one():
    inclusive[(2,)](floats(100), floats(100), 100, BLOCK=64)


@triton.jit
def unmasked_store(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n, other=0.0)
    tl.store(out + at, value)  # BUG


@bug("M001")
def store_without_mask():
    unmasked_store[(2,)](floats(100), floats(100), 100, BLOCK=64)


@triton.jit
def left_neighbour(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    before = tl.load(x + at - 1, mask=mask)  # BUG
    tl.store(out + at, before, mask=mask)


@bug("M001")
def before_the_start():
    left_neighbour[(2,)](floats(100), floats(100), 100, BLOCK=64)


@triton.jit
def rows(x, out, stride, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    value = tl.load(x + row * stride + at, mask=at < columns, other=0.0)  # BUG
    tl.store(out + row, tl.sum(value))


@bug("M001")
def wrong_stride():
    x = floats(8, 100)
    rows[(8,)](x, floats(8), x.stride(0) + 8, 100, BLOCK=128)


@triton.jit
def plain(x, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    tl.store(out + at, value, mask=at < n)  # BUG


@bug("M001")
def output_too_small():
    plain[(2,)](floats(100), floats(50), 100, BLOCK=64)


@bug("R002")
def output_of_one_row():
    x = floats(2, 64)
    plain_rows[(2,)](x, floats(1, 64).expand(2, 64), *x.stride(), 0, 1, BLOCK=64)


@triton.jit
def plain_rows(x, out, x_row, x_column, out_row, out_column, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.load(x + row * x_row + at * x_column)
    tl.store(out + row * out_row + at * out_column, value)  # BUG


@triton.jit
def same_place(out):
    tl.store(out, tl.program_id(0).to(tl.float32))  # BUG


@bug("R002")
def everybody_writes_one_element():
    same_place[(4,)](floats(1))


@triton.jit
def plain_sum(x, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    before = tl.load(out)
    tl.store(out, before + tl.sum(tl.load(x + at)))  # BUG


@bug("R002")
def sum_without_atomics():
    plain_sum[(4,)](floats(256), torch.zeros(1), BLOCK=64)


@triton.jit
def plain_histogram(x, counts, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    bin = tl.load(x + at)
    count = tl.load(counts + bin)
    tl.store(counts + bin, count + at)  # BUG


@bug("R002", "R006")
def histogram_without_atomics():
    plain_histogram[(2,)](torch.zeros(128, dtype=torch.int32), torch.zeros(4, dtype=torch.int32), BLOCK=64)


@triton.jit
def atomic_sum(x, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out, tl.sum(tl.load(x + at)))  # BUG


@bug("M011")
def sum_into_empty():
    atomic_sum[(4,)](floats(256), torch.empty(1), BLOCK=64)


@bug("M011")
def grid_too_small():
    half = torch.empty(128)
    plain[(1,)](floats(128), half, 128, BLOCK=64)
    reader[(2,)](half, floats(128), BLOCK=64)


@triton.jit
def reader(x, out, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at) + 1)  # BUG


@triton.jit
def shift(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    right = tl.load(x + at + 1, mask=at + 1 < n)
    tl.store(x + at, right, mask=at + 1 < n)  # BUG


@bug("R002")
def shift_in_place():
    shift[(2,)](floats(128), 128, BLOCK=64)


@triton.jit
def reversed_in_place(x, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at) * 2)
    mirrored = tl.load(x + BLOCK - 1 - at)  # BUG
    tl.store(x + BLOCK + at, mirrored)


@bug("R002", "R001")
def no_barrier_between_store_and_load():
    reversed_in_place[(1,)](floats(256), BLOCK=128)


@triton.jit
def product(a_ptr, b_ptr, c_ptr, M, N, K, BLOCK: tl.constexpr, DEPTH: tl.constexpr):
    rows = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    sum = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, K, DEPTH):
        depth = k + tl.arange(0, DEPTH)
        a = tl.load(a_ptr + rows[:, None] * K + depth[None, :])
        b = tl.load(b_ptr + depth[:, None] * N + columns[None, :])  # BUG
        sum = tl.dot(a, b, sum)
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], sum)


@bug("M001")
def product_without_mask_of_the_depth():
    half = torch.float16
    a, b = torch.ones(32, 80, dtype=half), torch.ones(80, 32, dtype=half)
    # The last row of `a` ends where the tensor does, too: any of the two loads may be first.
    product[(1, 1)](a, b, floats(32, 32), 32, 32, 80, BLOCK=32, DEPTH=32)


@triton.jit
def split_product(a_ptr, b_ptr, c_ptr, N: tl.constexpr, DEPTH: tl.constexpr):
    at = tl.arange(0, N)
    depth = tl.program_id(0) * DEPTH + tl.arange(0, DEPTH)
    a = tl.load(a_ptr + at[:, None] * 2 * DEPTH + depth[None, :])
    b = tl.load(b_ptr + depth[:, None] * N + at[None, :])
    tl.store(c_ptr + at[:, None] * N + at[None, :], tl.dot(a, b))  # BUG


@bug("R002")
def split_depth_without_atomics():
    a = floats(16, 64).to(torch.float16) / 1024
    split_product[(2,)](a, a.reshape(64, 16), floats(16, 16), N=16, DEPTH=32)


@triton.jit
def wide_rows(x, out, columns, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.arange(0, BLOCK)
    value = tl.exp(tl.load(x + row * columns + at, mask=at < columns, other=0.0))
    tl.store(out + row * columns + at, value)  # BUG


@bug("R002", "M001")
def row_that_runs_into_the_next():
    wide_rows[(4,)](floats(4, 48) / 192, floats(4, 48), 48, BLOCK=64)


@triton.jit
def locked(out, lock, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(out + at, tl.load(out + at) + 1)
    tl.debug_barrier()
    tl.store(lock, 0)  # BUG


@bug("R005", "R007", "R002")
def lock_given_back_by_a_plain_store():
    locked[(4,)](torch.zeros(64), torch.zeros(1, dtype=torch.int32), BLOCK=64)


@triton.jit
def unlocked(out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    before = tl.load(out + at)
    tl.store(out + at, before + tl.program_id(0))  # BUG


@bug("R002")
def critical_section_without_a_lock():
    unlocked[(4,)](torch.zeros(64), BLOCK=64)


@triton.jit
def never_given_back(out, lock):
    while tl.atomic_cas(lock, 0, 1) == 1:  # BUG
        pass
    tl.atomic_add(out, 1)


@bug("X002", "B013", "B006")
def lock_that_is_kept():
    never_given_back[(2,)](torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32))


@triton.jit
def far_row(x, out, row, stride, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(x + row * stride + at)  # BUG
    tl.store(out + at, value)


@bug("M001")
def offset_that_overflows():
    # 70,000 rows of 40,000 elements: the product is above 2^31, and an i32 wraps.
    far_row[(1,)](floats(64), floats(64), 70_000, 40_000, BLOCK=64)


@triton.jit
def promised(x, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK) + tl.multiple_of(tl.load(x).to(tl.int32), 4)
    value = tl.load(x + at)  # BUG
    tl.store(out + tl.arange(0, BLOCK), value)


@bug("M007")
def promise_of_alignment_that_is_broken():
    promised[(1,)](floats(600), floats(512), BLOCK=512)


@triton.jit
def asserting(x, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    index = tl.load(x + at)
    tl.device_assert(index < n, "an index beyond the table")  # BUG


@bug("X018")
def assertion_that_fails():
    asserting[(1,)](torch.arange(64, dtype=torch.int32), 63, BLOCK=64, debug=True)


@triton.jit
def gather(table, index, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(table + tl.load(index + at))  # BUG
    tl.store(out + at, value)


@bug("M001")
def index_beyond_the_table():
    index = torch.arange(64, dtype=torch.int64)
    index[17] = 1000
    gather[(1,)](floats(64), index, floats(64), BLOCK=64)


@triton.jit
def through_table(tables, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    pointer = tl.load(tables + tl.program_id(0)).to(tl.pointer_type(tl.float32))
    tl.store(out + tl.program_id(0) * BLOCK + at, tl.load(pointer + at))  # BUG


@bug("M001")
def table_with_a_short_tensor():
    parts = [floats(64), floats(40)]
    through_table[(2,)](torch.tensor([part.data_ptr() for part in parts]), floats(128), BLOCK=64)


@triton.jit
def described(desc, out, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = desc.load([0, 0])
    tl.store(out + at[:, None] * BLOCK + at[None, :], value)


@bug("X013")
def descriptor_larger_than_its_tensor():
    x = floats(32, 32)
    desc = TensorDescriptor(x, [64, 32], [32, 1], [32, 32])
    described[(1,)](desc, floats(32, 32), BLOCK=32)


@triton.jit
def moved(x, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    value = tl.load(x + at + 1)  # BUG
    tl.store(x + at, value)  # BUG


@bug("R002", "R006")
def few_elements_that_move_in_place():
    moved[(1,)](floats(17), BLOCK=16)


@triton.jit
def first_everywhere(x, BLOCK: tl.constexpr):
    first = tl.load(x)  # BUG
    tl.store(x + tl.arange(0, BLOCK), 2.0 * first)  # BUG


@bug("R002", "R006")
def one_element_that_all_need():
    first_everywhere[(1,)](floats(64), BLOCK=64)


@triton.jit
def waits_for(flag, out):
    if tl.program_id(0) == 0:
        tl.store(out, 1.0)
        tl.atomic_xchg(flag, 1, sem="relaxed")
    else:
        while tl.atomic_add(flag, 0, sem="relaxed") == 0:
            pass
        value = tl.load(out)  # BUG
        tl.store(out + 1, value)


@bug("R007", "R002")
def flag_that_orders_nothing():
    waits_for[(2,)](torch.zeros(1, dtype=torch.int32), floats(2))
