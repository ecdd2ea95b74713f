"""Kernels in the style of Triton's tutorials, each with a function that launches it."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    x = tl.load(x_ptr + at, mask=mask)
    y = tl.load(y_ptr + at, mask=mask)
    tl.store(out_ptr + at, x + y, mask=mask)


def add(x, y):
    out = torch.empty_like(x)
    n = out.numel()
    add_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, out, n, BLOCK=256)
    return out


@triton.jit
def triple_kernel(x_ptr, total_ptr, n, BLOCK: tl.constexpr):
    """Three times each element in its place, and their sums."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    x = tl.load(x_ptr + at, mask=mask, other=0.0)
    total = tl.sum(x, axis=0)
    tl.store(x_ptr + at, 3.0 * x, mask=mask)
    tl.store(total_ptr + tl.program_id(0), 3.0 * total)


@triton.jit
def softmax_kernel(out_ptr, in_ptr, in_stride, out_stride, rows, columns, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    first = tl.program_id(0)
    step = tl.num_programs(0)
    for row in tl.range(first, rows, step, num_stages=STAGES):
        at = tl.arange(0, BLOCK)
        mask = at < columns
        values = tl.load(in_ptr + row * in_stride + at, mask=mask, other=-float("inf"))
        values = tl.exp(values - tl.max(values, axis=0))
        tl.store(out_ptr + row * out_stride + at, values / tl.sum(values, axis=0), mask=mask)


def softmax(x):
    rows, columns = x.shape
    out = torch.empty_like(x)
    block = triton.next_power_of_2(columns)
    softmax_kernel[(min(rows, 4),)](out, x, x.stride(0), out.stride(0), rows, columns, block, 2, num_warps=4)
    return out


def matmul_configs():
    return [
        # Far too much shared memory: no device takes it, and the next is used.
        triton.Config({"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 128, "GROUP_M": 8}, num_stages=6, num_warps=4),
        triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 2}, num_stages=3, num_warps=4),
        triton.Config({"BLOCK_M": 32, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 2}, num_stages=2, num_warps=2),
    ]


@triton.autotune(configs=matmul_configs(), key=["M", "N", "K"])
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, a_m, a_k, b_k, b_n, c_m, c_n,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    ACTIVATION: tl.constexpr,
):  # fmt: skip
    block = tl.program_id(0)
    blocks_m, blocks_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    group = block // (GROUP_M * blocks_n)
    first = group * GROUP_M
    size = min(blocks_m - first, GROUP_M)
    pid_m = first + (block % (GROUP_M * blocks_n)) % size
    pid_n = (block % (GROUP_M * blocks_n)) // size
    rows = (pid_m * BLOCK_M + tl.arange(0, BLOCK_M)) % M
    columns = (pid_n * BLOCK_N + tl.arange(0, BLOCK_N)) % N
    depth = tl.arange(0, BLOCK_K)
    a = a_ptr + rows[:, None] * a_m + depth[None, :] * a_k
    b = b_ptr + depth[:, None] * b_k + columns[None, :] * b_n
    sum = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        left = K - k * BLOCK_K
        at = tl.load(a, mask=depth[None, :] < left, other=0.0)
        bt = tl.load(b, mask=depth[:, None] < left, other=0.0)
        sum = tl.dot(at, bt, sum)
        a += BLOCK_K * a_k
        b += BLOCK_K * b_k
    if ACTIVATION == "leaky_relu":
        sum = leaky_relu(sum)
    rows = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    c = c_ptr + rows[:, None] * c_m + columns[None, :] * c_n
    tl.store(c, sum.to(tl.float16), mask=(rows[:, None] < M) & (columns[None, :] < N))


@triton.jit
def leaky_relu(x):
    return tl.where(x >= 0, x, 0.01 * x)


def matmul(a, b, activation=""):
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty((m, n), dtype=a.dtype, device=a.device)
    grid = lambda meta: (triton.cdiv(m, meta["BLOCK_M"]) * triton.cdiv(n, meta["BLOCK_N"]),)
    matmul_kernel[grid](a, b, c, m, n, k, *a.stride(), *b.stride(), *c.stride(), ACTIVATION=activation)
    return c


@triton.jit
def dropout_kernel(x_ptr, out_ptr, n, p, seed, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    x = tl.load(x_ptr + at, mask=mask)
    keep = tl.rand(seed, at) > p
    tl.store(out_ptr + at, tl.where(keep, x / (1 - p), 0.0), mask=mask)


def dropout(x, p, seed):
    out = torch.empty_like(x)
    dropout_kernel[(triton.cdiv(x.numel(), 512),)](x, out, x.numel(), p, seed, BLOCK=512)
    return out


@triton.jit
def norm_forward(X, Y, W, B, Mean, Rstd, stride, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    X += row * stride
    Y += row * stride
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, N, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(X + at, mask=at < N, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / N
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, N, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(X + at, mask=at < N, other=0.0).to(tl.float32)
        x = tl.where(at < N, x - mean, 0.0)
        total += x * x
    rstd = 1 / tl.sqrt(tl.sum(total, axis=0) / N + eps)
    tl.store(Mean + row, mean)
    tl.store(Rstd + row, rstd)
    for start in range(0, N, BLOCK):
        at = start + tl.arange(0, BLOCK)
        mask = at < N
        x = tl.load(X + at, mask=mask, other=0.0).to(tl.float32)
        y = (x - mean) * rstd * tl.load(W + at, mask=mask) + tl.load(B + at, mask=mask)
        tl.store(Y + at, y, mask=mask)


@triton.jit
def norm_backward_x(
    DX, DY, DW, DB, X, W, Mean, Rstd, Lock, stride, N, GROUP: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    mask = at < N
    X += row * stride
    DY += row * stride
    DX += row * stride
    lock = row % GROUP
    Count = Lock + GROUP + lock
    Lock += lock
    DW = DW + lock * N + at
    DB = DB + lock * N + at
    x = tl.load(X + at, mask=mask, other=0).to(tl.float32)
    dy = tl.load(DY + at, mask=mask, other=0).to(tl.float32)
    w = tl.load(W + at, mask=mask).to(tl.float32)
    mean, rstd = tl.load(Mean + row), tl.load(Rstd + row)
    hat = tl.where(mask, (x - mean) * rstd, 0.0)
    wdy = tl.where(mask, w * dy, 0.0)
    c1 = tl.sum(hat * wdy, axis=0) / N
    c2 = tl.sum(wdy, axis=0) / N
    tl.store(DX + at, (wdy - (hat * c1 + c2)) * rstd, mask=mask)
    dw = (dy * hat).to(w.dtype)
    db = dy.to(w.dtype)
    while tl.atomic_cas(Lock, 0, 1) == 1:
        pass
    count = tl.load(Count)
    if count == 0:
        tl.atomic_xchg(Count, 1)
    else:
        dw += tl.load(DW, mask=mask)
        db += tl.load(DB, mask=mask)
    tl.store(DW, dw, mask=mask)
    tl.store(DB, db, mask=mask)
    tl.debug_barrier()
    tl.atomic_xchg(Lock, 0)


@triton.jit
def norm_backward_wb(DW, DB, FINAL_DW, FINAL_DB, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    columns = tl.program_id(0) * BLOCK_N + tl.arange(0, BLOCK_N)
    dw = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    db = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, M, BLOCK_M):
        rows = start + tl.arange(0, BLOCK_M)
        mask = (rows[:, None] < M) & (columns[None, :] < N)
        at = rows[:, None] * N + columns[None, :]
        dw += tl.load(DW + at, mask=mask, other=0.0)
        db += tl.load(DB + at, mask=mask, other=0.0)
    tl.store(FINAL_DW + columns, tl.sum(dw, axis=0), mask=columns < N)
    tl.store(FINAL_DB + columns, tl.sum(db, axis=0), mask=columns < N)


def layer_norm(x, weight, bias, dy, eps=1e-5, group=3):
    """The result, and the gradients of the input, the weight and the bias."""
    rows, n = x.shape
    y, dx = torch.empty_like(x), torch.empty_like(x)
    mean, rstd = (torch.empty(rows, dtype=torch.float32, device=x.device) for _ in range(2))
    block = triton.next_power_of_2(n)
    norm_forward[(rows,)](x, y, weight, bias, mean, rstd, x.stride(0), n, eps, BLOCK=block, num_warps=4)
    locks = torch.zeros(2 * group, dtype=torch.int32, device=x.device)
    dw_part, db_part = (torch.zeros((group, n), dtype=x.dtype, device=x.device) for _ in range(2))
    dw, db = torch.empty_like(weight), torch.empty_like(bias)
    norm_backward_x[(rows,)](
        dx, dy, dw_part, db_part, x, weight, mean, rstd, locks, x.stride(0), n, GROUP=group, BLOCK=block, num_warps=4
    )
    norm_backward_wb[(triton.cdiv(n, 64),)](dw_part, db_part, dw, db, group, n, BLOCK_M=4, BLOCK_N=64)
    return y, dx, dw, db


@triton.jit
def attention_kernel(
    Q, K, V, Out, L, scale, stride_h, stride_m, heads, N,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, D: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    start = tl.program_id(0)
    head = tl.program_id(1)
    base = head * stride_h
    rows = start * BLOCK_M + tl.arange(0, BLOCK_M)
    keys = tl.arange(0, BLOCK_N)
    d = tl.arange(0, D)
    q = tl.load(Q + base + rows[:, None] * stride_m + d[None, :], mask=rows[:, None] < N, other=0.0)
    most = tl.full([BLOCK_M], -float("inf"), dtype=tl.float32)
    total = tl.zeros([BLOCK_M], dtype=tl.float32)
    acc = tl.zeros([BLOCK_M, D], dtype=tl.float32)
    end = tl.minimum((start + 1) * BLOCK_M, N) if CAUSAL else N
    for first in range(0, end, BLOCK_N):
        at = first + keys
        k = tl.load(K + base + at[None, :] * stride_m + d[:, None], mask=at[None, :] < N, other=0.0)
        qk = tl.dot(q, k) * scale
        qk = tl.where(at[None, :] < N, qk, -float("inf"))
        if CAUSAL:
            qk = tl.where(rows[:, None] >= at[None, :], qk, -float("inf"))
        new = tl.maximum(most, tl.max(qk, 1))
        p = tl.exp(qk - new[:, None])
        alpha = tl.exp(most - new)
        total = total * alpha + tl.sum(p, 1)
        v = tl.load(V + base + at[:, None] * stride_m + d[None, :], mask=at[:, None] < N, other=0.0)
        acc = acc * alpha[:, None] + tl.dot(p.to(v.dtype), v)
        most = new
    acc = acc / total[:, None]
    tl.store(L + head * N + rows, most + tl.log(total), mask=rows < N)
    tl.store(Out + base + rows[:, None] * stride_m + d[None, :], acc.to(Out.dtype.element_ty), mask=rows[:, None] < N)


def attention(q, k, v, causal):
    heads, n, d = q.shape
    out = torch.empty_like(q)
    lse = torch.empty((heads, n), dtype=torch.float32, device=q.device)
    attention_kernel[(triton.cdiv(n, 64), heads)](
        q, k, v, out, lse, d**-0.5, q.stride(0), q.stride(1), heads, n, 64, 32, d, causal, num_stages=2
    )
    return out, lse


@triton.jit
def grouped_kernel(
    a_ptrs, b_ptrs, c_ptrs, sizes, strides, groups,
    PROGRAMS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    last_end = 0
    for g in range(groups):
        m, n, k = tl.load(sizes + g * 3), tl.load(sizes + g * 3 + 1), tl.load(sizes + g * 3 + 2)
        tiles_m, tiles_n = tl.cdiv(m, BLOCK_M), tl.cdiv(n, BLOCK_N)
        tiles = tiles_m * tiles_n
        while tile >= last_end and tile < last_end + tiles:
            lda, ldb, ldc = tl.load(strides + g * 3), tl.load(strides + g * 3 + 1), tl.load(strides + g * 3 + 2)
            a_ptr = tl.load(a_ptrs + g).to(tl.pointer_type(tl.float16))
            b_ptr = tl.load(b_ptrs + g).to(tl.pointer_type(tl.float16))
            c_ptr = tl.load(c_ptrs + g).to(tl.pointer_type(tl.float16))
            in_group = tile - last_end
            rows = (in_group // tiles_n) * BLOCK_M + tl.arange(0, BLOCK_M)
            columns = (in_group % tiles_n) * BLOCK_N + tl.arange(0, BLOCK_N)
            depth = tl.arange(0, BLOCK_K)
            a = a_ptr + rows[:, None] * lda + depth[None, :]
            b = b_ptr + depth[:, None] * ldb + columns[None, :]
            sum = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
            for _ in range(0, tl.cdiv(k, BLOCK_K)):
                sum += tl.dot(tl.load(a), tl.load(b))
                a += BLOCK_K
                b += BLOCK_K * ldb
            tl.store(c_ptr + rows[:, None] * ldc + columns[None, :], sum.to(tl.float16))
            tile += PROGRAMS
        last_end = last_end + tiles


def grouped_matmul(a_list, b_list):
    device = a_list[0].device
    c_list = [torch.empty((a.shape[0], b.shape[1]), dtype=a.dtype, device=device) for a, b in zip(a_list, b_list)]
    pointers = [torch.tensor([t.data_ptr() for t in group], device=device) for group in (a_list, b_list, c_list)]
    sizes = torch.tensor([(*a.shape, b.shape[1]) for a, b in zip(a_list, b_list)], dtype=torch.int32, device=device)
    sizes = sizes[:, [0, 2, 1]].contiguous()
    strides = torch.tensor(
        [(a.stride(0), b.stride(0), c.stride(0)) for a, b, c in zip(a_list, b_list, c_list)],
        dtype=torch.int32, device=device,
    )  # fmt: skip
    grouped_kernel[(4,)](*pointers, sizes, strides, len(a_list), PROGRAMS=4, BLOCK_M=32, BLOCK_N=32, BLOCK_K=32)
    return c_list


@triton.jit
def persistent_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    blocks_n = tl.cdiv(N, BLOCK_N)
    tiles = tl.cdiv(M, BLOCK_M) * blocks_n
    for tile in tl.range(tl.program_id(0), tiles, PROGRAMS, flatten=True):
        rows = (tile // blocks_n) * BLOCK_M + tl.arange(0, BLOCK_M)
        columns = (tile % blocks_n) * BLOCK_N + tl.arange(0, BLOCK_N)
        sum = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(tl.cdiv(K, BLOCK_K)):
            depth = k * BLOCK_K + tl.arange(0, BLOCK_K)
            a = tl.load(a_ptr + rows[:, None] * K + depth[None, :], mask=(rows[:, None] < M) & (depth[None, :] < K), other=0.0)
            b = tl.load(b_ptr + depth[:, None] * N + columns[None, :], mask=(depth[:, None] < K) & (columns[None, :] < N), other=0.0)
            sum = tl.dot(a, b, sum)
        c = c_ptr + rows[:, None] * N + columns[None, :]
        tl.store(c, sum.to(tl.float16), mask=(rows[:, None] < M) & (columns[None, :] < N))


def persistent_matmul(a, b):
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty((m, n), dtype=a.dtype, device=a.device)
    persistent_kernel[(3,)](a, b, c, m, n, k, 64, 64, 32, 3, num_stages=3)
    return c


@triton.jit
def descriptor_kernel(
    a_desc, b_desc, c_desc, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    row = tl.program_id(0) * BLOCK_M
    column = tl.program_id(1) * BLOCK_N
    sum = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        a = a_desc.load([row, k])
        b = b_desc.load([column, k])
        sum = tl.dot(a, b.T, sum)
    c_desc.store([row, column], sum.to(tl.float16))


def descriptor_matmul(a, b, num_ctas=1):
    """The product of `a` and the transpose of `b`, with descriptors made on the host."""
    (m, k), n = a.shape, b.shape[0]
    c = torch.empty((m, n), dtype=a.dtype, device=a.device)
    blocks = (64, 64, 32)
    of = TensorDescriptor.from_tensor
    descriptors = of(a, [64, 32]), of(b, [64, 32]), of(c, [64, 64])
    grid = (triton.cdiv(m, 64), triton.cdiv(n, 64))
    descriptor_kernel[grid](*descriptors, m, n, k, *blocks, num_warps=4, num_ctas=num_ctas, num_stages=3)
    return c


@triton.jit
def specialised_kernel(
    a_desc, b_desc, c_desc, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PROGRAMS: tl.constexpr, FLATTEN: tl.constexpr,
):  # fmt: skip
    blocks_m = tl.cdiv(M, BLOCK_M)
    tiles = blocks_m * tl.cdiv(N, BLOCK_N)
    for tile in tl.range(tl.program_id(0), tiles, PROGRAMS, flatten=FLATTEN, warp_specialize=True):
        row, column = tile % blocks_m * BLOCK_M, tile // blocks_m * BLOCK_N
        sum = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, K, BLOCK_K):
            sum = tl.dot(a_desc.load([row, k]), b_desc.load([column, k]).T, sum)
        c_desc.store([row, column], sum.to(c_desc.dtype))


def specialised_matmul(a, b, blocks=(128, 64, 64), programs=2, flatten=True, stages=2, warps=4):
    """The product of `a` and the transpose of `b` by programs that stay, with warps of their own for copies and products."""
    (m, k), n = a.shape, b.shape[0]
    c = torch.empty((m, n), dtype=torch.float16, device=a.device)
    block_m, block_n, block_k = blocks
    of = TensorDescriptor.from_tensor
    descriptors = of(a, [block_m, block_k]), of(b, [block_n, block_k]), of(c, [block_m, block_n])
    made = specialised_kernel[(programs,)](
        *descriptors, m, n, k, *blocks, programs, flatten, num_warps=warps, num_stages=stages
    )
    return c, made


@triton.jit
def described_attention_kernel(
    q_desc, k_desc, v_desc, out_desc, scale, N,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, D: tl.constexpr, SPECIALISE: tl.constexpr,
):  # fmt: skip
    first = tl.program_id(1) * N
    row = first + tl.program_id(0) * BLOCK_M
    q = q_desc.load([row, 0])
    most = tl.full([BLOCK_M], -float("inf"), dtype=tl.float32)
    total = tl.zeros([BLOCK_M], dtype=tl.float32)
    acc = tl.zeros([BLOCK_M, D], dtype=tl.float32)
    for start in tl.range(0, N, BLOCK_N, warp_specialize=SPECIALISE):
        k = k_desc.load([first + start, 0])
        scores = tl.dot(q, k.T)
        new = tl.maximum(most, tl.max(scores, 1) * scale)
        p = tl.math.exp2(scores * scale - new[:, None])
        alpha = tl.math.exp2(most - new)
        acc = acc * alpha[:, None]
        v = v_desc.load([first + start, 0])
        acc = tl.dot(p.to(v.dtype), v, acc)
        total = total * alpha + tl.sum(p, 1)
        most = new
    out_desc.store([row, 0], (acc / total[:, None]).to(out_desc.dtype))


def described_attention(q, k, v, blocks=(128, 64), specialise=False, stages=2, warps=4):
    """Attention of heads whose rows are a multiple of the tiles, through descriptors."""
    heads, n, d = q.shape
    out = torch.empty_like(q)
    block_m, block_n = blocks
    q_rows, k_rows, v_rows, out_rows = (x.reshape(heads * n, d) for x in (q, k, v, out))
    of = TensorDescriptor.from_tensor
    made = described_attention_kernel[(n // block_m, heads)](
        of(q_rows, [block_m, d]), of(k_rows, [block_n, d]), of(v_rows, [block_n, d]), of(out_rows, [block_m, d]),
        d**-0.5 * 1.4426950408889634, n, block_m, block_n, d, specialise, num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return out, made


@triton.jit
def made_descriptor_kernel(x_ptr, out_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    x = tl.make_tensor_descriptor(x_ptr, shape=[M, N], strides=[N, 1], block_shape=[BLOCK_M, BLOCK_N])
    out = tl.make_tensor_descriptor(out_ptr, shape=[M, N], strides=[N, 1], block_shape=[BLOCK_M, BLOCK_N])
    at = [tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N]
    out.store(at, x.load(at) * 2)


def doubled(x):
    """With descriptors that the kernel makes itself."""
    out = torch.empty_like(x)
    m, n = x.shape
    made_descriptor_kernel[(triton.cdiv(m, 32), triton.cdiv(n, 32))](x, out, m, n, 32, 32)
    return out


@triton.heuristics({"BLOCK": lambda args: triton.next_power_of_2(args["columns"])})
@triton.jit
def row_sum_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.program_id(0)
    tl.store(out_ptr + row, tl.sum(tl.load(x_ptr + row * columns + at, mask=at < columns, other=0.0)))


def row_sum(x):
    out = torch.empty(x.shape[0], dtype=x.dtype, device=x.device)
    row_sum_kernel[(x.shape[0],)](x, out, x.shape[1])
    return out


@triton.jit
def histogram_kernel(x_ptr, counts_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    x = tl.load(x_ptr + at, mask=mask)
    tl.atomic_add(counts_ptr + x, 1, mask=mask)


def histogram(x, bins):
    counts = torch.zeros(bins, dtype=torch.int32, device=x.device)
    histogram_kernel[(triton.cdiv(x.numel(), 128),)](x, counts, x.numel(), BLOCK=128)
    return counts


@triton.jit
def scaled_kernel(
    a_ptr, b_ptr, c_ptr, a_scales, b_scales, N, K, FORMAT: tl.constexpr, PACK: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    depth = tl.arange(0, BLOCK_K // PACK)
    scale = tl.arange(0, BLOCK_K // 32)
    sum = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, K, BLOCK_K):
        a = tl.load(a_ptr + rows[:, None] * (K // PACK) + k // PACK + depth[None, :])
        b = tl.load(b_ptr + columns[:, None] * (K // PACK) + k // PACK + depth[None, :])
        a_scale = tl.load(a_scales + rows[:, None] * (K // 32) + k // 32 + scale[None, :])
        b_scale = tl.load(b_scales + columns[:, None] * (K // 32) + k // 32 + scale[None, :])
        sum = tl.dot_scaled(a, a_scale, FORMAT, b.T, b_scale, FORMAT, sum)
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], sum)


def scaled_matmul(a, b, a_scales, b_scales, form, blocks=(128, 64, 128), stages=2, warps=4):
    """The product of `a` and the transpose of `b`, with a power of two for every 32 elements of a row."""
    m, n = a.shape[0], b.shape[0]
    pack = 2 if form == "e2m1" else 1
    c = torch.empty((m, n), dtype=torch.float32, device=a.device)
    made = scaled_kernel[(m // blocks[0], n // blocks[1])](
        a, b, c, a_scales, b_scales, n, a.shape[1] * pack, form, pack, *blocks, num_stages=stages, num_warps=warps
    )
    return c, made


@triton.jit
def mixed_kernel(
    a, b, c, a_scales, b_scales, n, k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    row, col = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    rows, cols = row + tl.arange(0, BLOCK_M), col + tl.arange(0, BLOCK_N)
    total = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for depth in range(0, k, BLOCK_K):
        groups = depth // 32 + tl.arange(0, BLOCK_K // 32)
        left = tl.load(a_scales + rows[:, None] * (k // 32) + groups[None, :])
        right = tl.load(b_scales + cols[:, None] * (k // 32) + groups[None, :])
        x, y = a.load([row, depth]), b.load([col, depth // 2])
        total = tl.dot_scaled(x, left, "e4m3", y.T, right, "e2m1", total)
    tl.store(c + rows[:, None] * n + cols[None, :], total)


def mixed_matmul(a, b, a_scales, b_scales, blocks=(128, 64, 128)):
    """The product of `a` in e4m3 and the transpose of `b` in e2m1, both through descriptors."""
    m, n, k = a.shape[0], b.shape[0], a.shape[1]
    c = torch.empty((m, n), dtype=torch.float32, device=a.device)
    left = TensorDescriptor.from_tensor(a, [blocks[0], blocks[2]])
    right = TensorDescriptor.from_tensor(b, [blocks[1], blocks[2] // 2])
    mixed_kernel[(m // blocks[0], n // blocks[1])](left, right, c, a_scales, b_scales, n, k, *blocks)
    return c


_E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
_EIGHT_BITS = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}


def scaled(rows, depth, form):
    """Elements as `scaled_matmul` takes them, their scales, and what the two mean."""
    made = torch.Generator().manual_seed(rows)
    exponents = torch.randint(-3, 4, (rows, depth // 32), generator=made)
    if form == "e2m1":
        codes = torch.randint(0, 16, (rows, depth), generator=made, dtype=torch.uint8)
        values = _E2M1[(codes & 7).long()] * torch.where(codes > 7, -1, 1)
        elements = codes[:, 0::2] | codes[:, 1::2] << 4
    else:
        elements = torch.randn(rows, depth, generator=made).to(_EIGHT_BITS[form])
        values = elements.float()
    return elements, (exponents + 127).to(torch.uint8), values * (2.0**exponents).repeat_interleave(32, 1)
