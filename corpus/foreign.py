#!/usr/bin/env python3
"""Runs kernels that Triton and Gluon compile, of their tutorials' kinds, on simulated GPUs of sm_80, sm_90 and sm_100.

    VENV/bin/python corpus/foreign.py [--every N] [--device a100]

`cargo xtask foreign` does it in the environment of the Python tests. Each kernel is compiled in many
configurations (types, tiles, warps, stages), and each that differs in its PTX is counted once. It must compute
what PyTorch does, and the checker must say nothing. Prints what was found, then how many ran and how many of
them were silent, those with `tcgen05` apart; the status is 1 if one was not, or was wrong.
"""

import argparse
import hashlib
import itertools
import sys
import warnings
from pathlib import Path

import torch
import triton

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "python" / "tests"))
import gluon_kernels as gluon  # noqa: E402
import triton_kernels as kernels  # noqa: E402

import heist.triton  # noqa: E402

DEVICES = ("a100", "h200", "b200")


def random(*shape, dtype=torch.float32):
    made = torch.Generator().manual_seed(sum(shape))
    if dtype in (torch.int32, torch.int8):
        return torch.randint(-20, 20, shape, generator=made, dtype=dtype)
    return torch.randn(shape, generator=made).to(dtype)


def near(got, want):
    got, want = got.float(), want.float()
    return bool(((got - want).abs() <= 0.02 * want.abs().max().clamp(min=1)).all())


def vector_add(dtype, block, warps):
    x, y = random(1000, dtype=dtype), random(1000, dtype=dtype)
    out = torch.empty_like(x)
    made = kernels.add_kernel[(triton.cdiv(1000, block),)](x, y, out, 1000, BLOCK=block, num_warps=warps)
    return made, near(out, x + y)


def softmax(dtype, columns, warps, stages):
    x = random(5, columns, dtype=dtype)
    out = torch.empty_like(x)
    block = triton.next_power_of_2(columns)
    made = kernels.softmax_kernel[(3,)](out, x, columns, columns, 5, columns, block, stages, num_warps=warps)
    return made, near(out, torch.softmax(x.float(), 1))


def matmul(dtype, tile, stages, warps, activation=""):
    m, n, k = 80, 72, 96
    a, b = random(m, k, dtype=dtype), random(k, n, dtype=dtype)
    c = torch.empty((m, n), dtype=torch.float16)
    grid = (triton.cdiv(m, tile[0]) * triton.cdiv(n, tile[1]),)
    made = kernels.matmul_kernel.fn[grid](
        a, b, c, m, n, k, *a.stride(), *b.stride(), *c.stride(), *tile, 2, activation,
        num_stages=stages, num_warps=warps,
    )  # fmt: skip
    want = a.float() @ b.float()
    return made, near(c, torch.where(want >= 0, want, 0.01 * want) if activation else want)


def dropout(dtype, block, warps):
    x = random(1500, dtype=dtype)
    out = torch.empty_like(x)
    made = kernels.dropout_kernel[(triton.cdiv(1500, block),)](x, out, 1500, 0.5, 7, BLOCK=block, num_warps=warps)
    kept = out != 0
    return made, near(out[kept], 2 * x[kept]) and 600 < int(kept.sum()) < 900


def norm_forward(dtype, columns, block, warps):
    x, w, b = random(4, columns, dtype=dtype), random(columns, dtype=dtype), random(columns + 1, dtype=dtype)[1:]
    y, mean, rstd = torch.empty_like(x), torch.empty(4), torch.empty(4)
    b = b.clone()
    made = kernels.norm_forward[(4,)](x, y, w, b, mean, rstd, columns, columns, 1e-5, BLOCK=block, num_warps=warps)
    want = torch.nn.functional.layer_norm(x.float(), (columns,), w.float(), b.float(), 1e-5)
    return made, near(y, want)


def norm_backward(dtype, columns, warps):
    x, dy, w = random(6, columns, dtype=dtype), random(6, columns, dtype=dtype), random(columns, dtype=dtype)
    mean, rstd = x.float().mean(1), 1 / (x.float().var(1, unbiased=False) + 1e-5).sqrt()
    dx, part_w, part_b = torch.empty_like(x), torch.zeros(2, columns), torch.zeros(2, columns)
    locks = torch.zeros(4, dtype=torch.int32)
    block = triton.next_power_of_2(columns)
    made = kernels.norm_backward_x[(6,)](
        dx, dy, part_w, part_b, x, w, mean, rstd, locks, columns, columns, GROUP=2, BLOCK=block, num_warps=warps
    )
    return made, near(part_b.sum(0), dy.float().sum(0))


def norm_sums(columns, block_m, block_n, warps):
    dw, db = random(5, columns), random(5, columns)
    final = torch.empty(columns), torch.empty(columns)
    made = kernels.norm_backward_wb[(triton.cdiv(columns, block_n),)](
        dw, db, *final, 5, columns, BLOCK_M=block_m, BLOCK_N=block_n, num_warps=warps
    )
    return made, near(final[0], dw.sum(0)) and near(final[1], db.sum(0))


def attention(dtype, d, causal, tile, warps, stages):
    q, k, v = (random(2, 70, d, dtype=dtype) + shift for shift in (0, 1, 2))
    out, lse = torch.empty_like(q), torch.empty(2, 70)
    made = kernels.attention_kernel[(triton.cdiv(70, tile[0]), 2)](
        q, k, v, out, lse, d**-0.5, q.stride(0), q.stride(1), 2, 70, *tile, d, causal,
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
    want = torch.nn.functional.scaled_dot_product_attention(q.float(), k.float(), v.float(), is_causal=causal)
    return made, near(out, want)


def persistent(dtype, tile, stages, warps):
    a, b = random(100, 64, dtype=dtype), random(64, 136, dtype=dtype)
    c = torch.empty((100, 136), dtype=torch.float16)
    made = kernels.persistent_kernel[(3,)](a, b, c, 100, 136, 64, *tile, 3, num_stages=stages, num_warps=warps)
    return made, near(c, a.float() @ b.float())


def grouped(tile, warps, stages):
    a = [random(64, 64, dtype=torch.float16), random(128, 64, dtype=torch.float16)]
    b = [random(64, 128, dtype=torch.float16), random(64, 64, dtype=torch.float16)]
    c = [torch.empty(x.shape[0], y.shape[1], dtype=torch.float16) for x, y in zip(a, b)]
    pointers = [torch.tensor([t.data_ptr() for t in group]) for group in (a, b, c)]
    sizes = torch.tensor([(x.shape[0], y.shape[1], x.shape[1]) for x, y in zip(a, b)], dtype=torch.int32)
    strides = torch.tensor([(64, y.shape[1], y.shape[1]) for y in b], dtype=torch.int32)
    made = kernels.grouped_kernel[(3,)](*pointers, sizes, strides, 2, 3, *tile, num_warps=warps, num_stages=stages)
    return made, all(near(got, x.float() @ y.float()) for got, x, y in zip(c, a, b))


def descriptors(tile, warps, stages):
    a, b = random(128, 64, dtype=torch.float16), random(128, 64, dtype=torch.float16)
    c = torch.empty((128, 128), dtype=torch.float16)
    m, n, k = tile
    of = kernels.TensorDescriptor.from_tensor
    made = kernels.descriptor_kernel[(128 // m, 128 // n)](
        of(a, [m, k]), of(b, [n, k]), of(c, [m, n]), 128, 128, 64, m, n, k, num_warps=warps, num_stages=stages
    )
    return made, near(c, a.float() @ b.float().T)


def made_descriptors(dtype, tile, warps):
    x = random(64, 64, dtype=dtype)
    out = torch.empty_like(x)
    grid = (64 // tile[0], 64 // tile[1])
    made = kernels.made_descriptor_kernel[grid](x, out, 64, 64, *tile, num_warps=warps)
    return made, near(out, 2 * x)


def row_sum(columns, warps):
    x, out = random(4, columns), torch.empty(4)
    made = kernels.row_sum_kernel[(4,)](x, out, columns, num_warps=warps)
    return made, near(out, x.sum(1))


def histogram(block, warps):
    x, counts = random(500, dtype=torch.int32) + 20, torch.zeros(40, dtype=torch.int32)
    made = kernels.histogram_kernel[(triton.cdiv(500, block),)](x, counts, 500, BLOCK=block, num_warps=warps)
    return made, near(counts, torch.bincount(x, minlength=40))


def block_scaled(form, tile, warps):
    a, a_scales, a_means = kernels.scaled(128, 256, form)
    b, b_scales, b_means = kernels.scaled(128, 256, form)
    got, made = kernels.scaled_matmul(a, b, a_scales, b_scales, form, tile, warps=warps)
    return made, near(got, a_means @ b_means.T)


def specialised(dtype, tile, flatten, stages, warps):
    a, b = random(256, 128, dtype=dtype), random(128, 128, dtype=dtype)
    got, made = kernels.specialised_matmul(a, b, tile, 2, flatten, stages, warps)
    return made, near(got, a.float() @ b.float().T)


def described_attention(dtype, d, tile, specialise, warps):
    q, k, v = (random(1, 128, d, dtype=dtype) + shift for shift in (0, 1, 2))
    got, made = kernels.described_attention(q, k, v, tile, specialise, warps=warps)
    return made, near(got, torch.nn.functional.scaled_dot_product_attention(q.float(), k.float(), v.float()))


def gluon_tcgen05(dtype, tile):
    a, b = random(128, 128, dtype=dtype), random(128, 128, dtype=dtype)
    got, made = gluon.product(gluon.tcgen05_kernel, a, b, blocks=tile)
    return made, near(got, a.float() @ b.float())


def gluon_specialised(dtype, tile, stages):
    a, b = random(128, 128, dtype=dtype), random(128, 128, dtype=dtype)
    got, made = gluon.product(gluon.specialised_tcgen05_kernel, a, b, stages, blocks=tile)
    return made, near(got, a.float() @ b.float())


F32, F16, BF16, I32, I8 = torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int8


def cases(device):
    """A function and what it is called with."""

    def every(function, *choices):
        return ((function, chosen) for chosen in itertools.product(*choices))

    tiles = ((64, 64, 32), (32, 64, 32), (64, 32, 64), (128, 64, 32))
    yield from every(vector_add, (F32, F16, BF16, I32, I8), (128, 512), (1, 4))
    yield from every(softmax, (F32, F16), (64, 200, 500), (1, 4), (2,))
    yield from every(matmul, (F16, BF16, F32), tiles, (2, 3), (4,))
    yield from every(matmul, (F16,), tiles[:2], (4,), (4, 8), ("leaky_relu",))
    yield from every(dropout, (F32, F16), (256, 512), (1, 4))
    yield from every(norm_forward, (F32, F16), (100, 300), (128, 256), (2, 4))
    yield from every(norm_backward, (F32, F16), (128, 200), (2, 4))
    yield from every(norm_sums, (100,), (4, 8), (32, 64), (1, 4))
    yield from every(attention, (F16, BF16), (16, 32, 64), (False, True), ((32, 32),), (4,), (2,))
    yield from every(attention, (F16,), (64,), (True,), ((64, 32), (64, 64)), (4, 8), (1, 3))
    yield from every(persistent, (F16, BF16), ((64, 64, 32), (32, 64, 32)), (2, 3), (4,))
    yield from every(grouped, ((32, 32, 32), (64, 64, 32)), (2, 4), (2, 3))
    if device != "a100":
        yield from every(descriptors, ((64, 64, 32), (64, 128, 64), (128, 64, 32)), (4,), (2, 3))
        yield from every(made_descriptors, (F16, F32), ((16, 32), (32, 32)), (1, 4))
    if device == "b200":
        wide = ((128, 64, 64), (128, 128, 64), (64, 64, 64))
        yield from every(matmul, (F16, BF16), ((128, 128, 64), (128, 256, 32), (64, 128, 64)), (2, 3), (4, 8))
        yield from every(block_scaled, ("e4m3", "e5m2", "e2m1"), ((128, 64, 128), (128, 128, 128), (128, 64, 256)), (4,))
        yield from every(specialised, (F16, BF16), wide, (False, True), (2,), (4,))
        yield from every(described_attention, (F16, BF16), (64, 128), ((128, 64), (64, 64)), (False, True), (4,))
        yield from every(gluon_tcgen05, (F16, BF16), ((128, 64, 32), (128, 128, 64), (64, 64, 32)))
        yield from every(gluon_specialised, (F16, BF16), ((128, 64, 32), (128, 128, 64), (64, 64, 32)), (2, 3))
    yield from every(row_sum, (60, 1000), (1, 4, 8))
    yield from every(histogram, (64, 256), (1, 4))


def main():
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--every", type=int, default=1, help="take one of so many configurations")
    asked.add_argument("--device", choices=DEVICES, help="one device instead of all")
    asked.add_argument("--only", default="", help="functions of this file whose names begin so")
    asked = asked.parse_args()
    warnings.simplefilter("ignore")
    failed, total, refused, uncompiled, compiler = 0, 0, 0, 0, 0
    tensor_memory, silent_there = 0, 0
    for device in [asked.device] if asked.device else DEVICES:
        seen, silent = set(), 0
        for function, chosen in itertools.islice(cases(device), 0, None, asked.every):
            if not function.__name__.startswith(asked.only):
                continue
            name = f"{device} {function.__name__}{chosen}".replace("torch.", "")
            try:
                with heist.triton.simulate(device, raises=False) as session:
                    made, right = function(*chosen)
            except triton.runtime.errors.OutOfResources as why:
                refused += 1
                print(f"{name}: not run: {why}", flush=True)
                continue
            except (triton.compiler.errors.CompilationError, RuntimeError) as why:
                # An older Triton may not compile it, and says so as either.
                if isinstance(why, RuntimeError) and "PassManager" not in str(why):
                    raise
                uncompiled += 1
                print(f"{name}: not compiled: {str(why).splitlines()[0]}", flush=True)
                continue
            print_of = hashlib.sha256(made.asm["ptx"].encode()).digest()
            if print_of in seen:
                continue
            seen.add(print_of)
            in_tensor_memory = "tcgen05.mma" in made.asm["ptx"]
            tensor_memory += in_tensor_memory
            found = [one for launch in session.launches for one in launch.findings]
            theirs = {str(one.code) for launch in session.launches for one in launch.from_compiler}
            if theirs:
                # Lanes that put down sums of differently rounded products, for instance.
                compiler += 1
                print(f"{name}: of the compiler's own making: {', '.join(sorted(theirs))}", flush=True)
            if found or not right:
                failed += 1
                told = ", ".join(sorted({str(one.code) for one in found})) or "nothing"
                print(f"{name}: found {told}{'' if right else ', and the result is wrong'}", flush=True)
            elif not theirs:
                silent += 1
                silent_there += in_tensor_memory
        total += len(seen)
        print(f"{device}: {len(seen)} kernels run, {silent} silent", flush=True)
    print(f"with tcgen05: {tensor_memory} kernels run, {silent_there} silent")
    print(
        f"{total} kernels run, {total - failed - compiler} silent, {failed} not, "
        f"{compiler} with what the compiler does by itself, {refused} that no device takes, "
        f"{uncompiled} that this Triton does not compile"
    )
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
