"""What is checked on a real GPU. Without pytest: `python cuda_checks.py` runs all, `python cuda_checks.py NAME ...` some."""

import sys
import threading
import traceback

import torch
import torch.nn.functional as F

import heist
import heist.torch as ht
from cuda_masks import CHECKS as MASKS
from references import attention, close, grouped
from texts import ADD

F16, BF16 = torch.float16, torch.bfloat16


def randn(*shape, dtype=BF16):
    return torch.randn(*shape, dtype=dtype, device="cuda")


def no_worse(found, torchs, exact, slack=2.0):
    """The error is at most `slack` times that of PyTorch's own, or a rounding."""
    ours, theirs = ((x.double() - exact).abs().max() / exact.abs().max() for x in (found, torchs))
    assert ours <= max(slack * theirs, 1e-2), f"off by {ours:.2e}, PyTorch by {theirs:.2e}"


def attention_of_many_shapes():
    for batch, heads, kv, queries, keys, dim, causal in [
        (2, 8, 8, 256, 256, 64, False), (1, 4, 4, 1000, 1000, 128, True), (2, 8, 2, 512, 512, 128, True),
        (1, 2, 1, 77, 77, 80, False), (4, 16, 4, 1, 333, 64, False), (1, 4, 4, 2048, 2048, 64, True),
        (1, 8, 8, 2048, 2048, 256, False), (1, 2, 2, 8, 8, 16, True), (2, 4, 2, 300, 700, 72, False), (1, 4, 4, 500, 500, 104, True),
        (1, 2, 1, 900, 900, 64, False), (6, 8, 2, 100, 100, 192, True), (3, 4, 4, 60, 60, 256, True),
    ]:  # fmt: skip
        for dtype in (F16, BF16):
            for rows in (False, True):
                make = lambda h, n: (  # noqa: E731
                    randn(batch, n, h, dim, dtype=dtype).transpose(1, 2) if rows else randn(batch, h, n, dim, dtype=dtype)
                )
                q, k, v = make(heads, queries), make(kv, keys), make(kv, keys)
                exact = attention(q, k, v, causal=causal)[0]
                theirs = F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=heads != kv)
                ours = ht.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)
                no_worse(ours, theirs, exact)


def packed_and_cached_attention():
    lengths = [100, 1, 0, 513, 64]
    starts = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], dtype=torch.int32, device="cuda")
    q, k, v = randn(678, 8, 64), randn(678, 2, 64), randn(678, 2, 64)
    out, lse, _ = ht.flash_attn_varlen_func(q, k, v, starts, starts, 513, 513, causal=True, return_attn_probs=True)
    for begin, length in zip(starts.tolist(), lengths):
        if length:
            part = slice(begin, begin + length)
            want, sums = attention(*(t[part].transpose(0, 1)[None] for t in (q, k, v)), causal=True)
            close(out[part].transpose(0, 1)[None], want)
            close(lse[:, part][None], sums)
    q, k_cache, v_cache = randn(3, 1, 8, 128), randn(3, 700, 2, 128), randn(3, 700, 2, 128)
    k, v = randn(3, 1, 2, 128), randn(3, 1, 2, 128)
    filled = torch.tensor([5, 699, 300], dtype=torch.int32, device="cuda")
    out = ht.flash_attn_with_kvcache(q, k_cache, v_cache, k, v, cache_seqlens=filled)
    for i, end in enumerate((filled + 1).tolist()):
        assert torch.equal(k_cache[i, end - 1], k[i, 0])
        keys, values = (c[i, :end].transpose(0, 1)[None] for c in (k_cache, v_cache))
        close(out[i].transpose(0, 1)[None], attention(q[i].transpose(0, 1)[None], keys, values)[0])


def a_cache_of_eight_bits():
    heads, e4m3 = 2, torch.float8_e4m3fn
    filled = torch.tensor([5, 699, 300], dtype=torch.int32, device="cuda")
    pages = torch.randperm(3 * 44, device="cuda").to(torch.int32).reshape(3, 44)
    for dim, table in [(64, None), (128, None), (64, pages), (128, pages)]:
        shape = (3, 704, heads, dim) if table is None else (3 * 44, 16, heads, dim)
        caches = [torch.randn(shape, device="cuda").to(e4m3) for _ in range(2)]
        factors = torch.rand(2, heads, device="cuda") + 0.5
        q, k, v = randn(3, 1, 8, dim), randn(3, 1, heads, dim), randn(3, 1, heads, dim)
        out = ht.flash_attn_with_kvcache(
            q, *caches, k, v, cache_seqlens=filled, block_table=table, k_descale=factors[0], v_descale=factors[1]
        )
        for i, end in enumerate((filled + 1).tolist()):
            whole = [cache[i] if table is None else cache[table[i].long()].flatten(0, 1) for cache in caches]
            for seen, new, factor in zip(whole, (k, v), factors):
                assert torch.equal(seen[end - 1].float(), (new[i, 0].float() / factor[:, None]).to(e4m3).float())
            keys, values = ((w[:end].double() * f.double()[:, None]).transpose(0, 1)[None] for w, f in zip(whole, factors))
            close(out[i].transpose(0, 1)[None], attention(q[i].transpose(0, 1)[None], keys, values)[0])


def numbers_of_a_plan_in_another_stream():
    """A plan has numbers of its own, made in the stream that is planned in; a call in another stream may come first."""
    late, early = torch.cuda.Stream(), torch.cuda.Stream()
    cache = [randn(3, 72, 2, 64) for _ in range(2)]
    q, filled = randn(3, 2, 4, 64), torch.tensor([5, 72, 33], dtype=torch.int32, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(late):
        torch.cuda._sleep(100_000_000)
        ht.flash_attn_with_kvcache(q, *cache, cache_seqlens=filled)
    with torch.cuda.stream(early):
        out = ht.flash_attn_with_kvcache(q, *cache, cache_seqlens=filled)
    torch.cuda.synchronize()
    for i, end in enumerate(filled.tolist()):
        keys, values = (c[i, :end].transpose(0, 1)[None] for c in cache)
        close(out[i].transpose(0, 1)[None], attention(q[i].transpose(0, 1)[None], keys, values)[0])


def layers_of_experts():
    for tokens, experts, per, hidden, inner in [(1, 8, 2, 256, 512), (333, 8, 2, 512, 384), (2048, 64, 6, 256, 128)]:
        x, w1, w2 = randn(tokens, hidden), randn(experts, 2 * inner, hidden) / 16, randn(experts, hidden, inner) / 16
        weights, ids = torch.rand(tokens, experts, device="cuda").topk(per)
        want = torch.zeros(tokens, hidden, dtype=torch.float64, device="cuda")
        for expert in range(experts):
            token, place = (ids == expert).nonzero(as_tuple=True)
            gate, other = (x[token].double() @ w1[expert].double().t()).chunk(2, dim=1)
            part = (F.silu(gate) * other) @ w2[expert].double().t()
            want.index_add_(0, token, part * weights[token, place].double()[:, None])
        close(ht.fused_experts(x, w1, w2, weights, ids), want, 3e-2)


def products_of_many_shapes():
    for m, n, k in [(128, 256, 64), (1000, 1000, 1000), (1, 4096, 512), (333, 77, 1111), (4096, 1024, 2048)]:
        for dtype in (F16, BF16):
            a, b = randn(m, k, dtype=dtype), randn(n, k, dtype=dtype)
            exact = a.double() @ b.double().t()
            no_worse(ht.mm(a, b.t()), a @ b.t(), exact)
            no_worse(ht.mm(a, b.t().contiguous()), a @ b.t(), exact)
            bias = randn(n, dtype=dtype)
            want = F.silu(F.linear(a.double(), b.double(), bias.double()))
            no_worse(ht.linear(a, b, bias, activation="silu"), F.silu(F.linear(a, b, bias)), want)
            for c in (bias, randn(m, 1, dtype=dtype), randn(1, dtype=dtype), randn(m, n, dtype=dtype)):
                no_worse(ht.addmm(c, a, b.t(), beta=0.5), torch.addmm(c, a, b.t(), beta=0.5), exact + 0.5 * c.double())


def batches_and_eight_bit_floats():
    for batch, m, n, k in [(8, 128, 256, 64), (3, 1000, 77, 1111), (64, 1, 512, 128)]:
        a, b = randn(batch, m, k), randn(batch, n, k).transpose(1, 2)
        no_worse(ht.bmm(a, b), torch.bmm(a, b), a.double() @ b.double())
    for m, n, k in [(256, 512, 1024), (1000, 1024, 512), (16, 256, 4096)]:
        a, b = (torch.randn(r, k, device="cuda").to(torch.float8_e4m3fn) for r in (m, n))
        exact = a.double() @ b.double().t()
        one = torch.tensor(0.5, device="cuda")
        theirs = torch._scaled_mm(a, b.t(), one, one, out_dtype=BF16)
        no_worse(ht.scaled_mm(a, b.t(), one, one), theirs, exact * 0.25)
        rows, cols = torch.rand(m, 1, device="cuda"), torch.rand(1, n, device="cuda")
        close(ht.scaled_mm(a, b.t(), rows, cols), exact * rows.double() * cols.double())
        of_a, of_b = torch.rand(m, k // 128, device="cuda"), torch.rand(k // 128, n // 128, device="cuda")
        spread_a = a.double() * of_a.double().repeat_interleave(128, 1)
        spread_b = b.double().t() * of_b.double().repeat_interleave(128, 0).repeat_interleave(128, 1)
        close(ht.scaled_mm(a, b.t(), of_a, of_b), spread_a @ spread_b)


ENDS = torch.tensor([0, 120, 121, 300], dtype=torch.int32)


def in_groups(a, b):
    return ht.grouped_mm(a, b, offs=ENDS.cuda())


def gradients():
    for call, exact, inputs in [
        (ht.linear, F.linear, (randn(300, 256), randn(512, 256), randn(512))),
        (ht.mm, torch.mm, (randn(300, 256), randn(256, 128))),
        (ht.bmm, torch.bmm, (randn(4, 300, 256), randn(4, 256, 128))),
        (ht.addmm, torch.addmm, (randn(300, 128), randn(300, 256), randn(256, 128))),
        (in_groups, lambda a, b: grouped(a, b, ENDS), (randn(300, 256), randn(4, 256, 128))),
    ]:
        mine, right = [t.clone().requires_grad_() for t in inputs], [t.double().requires_grad_() for t in inputs]
        out = call(*mine)
        weights = torch.randn_like(out)
        out.backward(weights)
        exact(*right).backward(weights.double())
        for found, want in zip(mine, right):
            close(found.grad, want.grad)


def training(ours, theirs, exact, inputs):
    """Gradients of a sum with random weights, whose error is held against PyTorch's."""
    out = exact(*(right := [t.detach().double().requires_grad_() for t in inputs]))
    weights = torch.randn_like(out).to(inputs[0].dtype)
    out.backward(weights.double())
    found = []
    for call in (ours, theirs):
        mine = [t.detach().requires_grad_() for t in inputs]
        call(*mine).backward(weights)
        found.append([t.grad for t in mine])
    for our, their, want in zip(*found, right):
        no_worse(our, their, want.grad)
    return found[0]


def gradients_of_attention():
    """Beside PyTorch's: masks, shared heads, both layouts, heads for every kernel, lengths
    that fill no tile; the same bits where they are asked for; packed sequences."""
    for batch, heads, kv, queries, keys, dim, causal in [
        (2, 8, 8, 256, 256, 64, False), (1, 4, 4, 1000, 1000, 128, True), (2, 8, 2, 512, 512, 128, True),
        (1, 2, 1, 77, 77, 80, False), (1, 4, 2, 100, 333, 64, False), (1, 4, 4, 2048, 2048, 64, True),
        (1, 2, 2, 8, 8, 16, True), (3, 4, 4, 1, 300, 128, False),
    ]:  # fmt: skip
        for dtype in (F16, BF16):
            for rows in (False, True):
                make = lambda h, n: (  # noqa: E731
                    randn(batch, n, h, dim, dtype=dtype).transpose(1, 2) if rows else randn(batch, h, n, dim, dtype=dtype)
                )
                inputs = make(heads, queries), make(kv, keys), make(kv, keys)
                training(
                    lambda q, k, v: ht.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True),
                    lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=heads != kv),
                    lambda q, k, v: attention(q, k, v, causal=causal)[0], inputs,
                )  # fmt: skip
    inputs = [randn(2, 700, 4, 64) for _ in range(3)]
    for window in ((-1, -1), (100, 50), (64, 0)):
        ours = lambda q, k, v: ht.flash_attn_func(q, k, v, window_size=window, deterministic=True)  # noqa: E731
        exact = lambda *given: attention(*(t.transpose(1, 2) for t in given), window=window)[0].transpose(1, 2)  # noqa: E731
        bits = []
        for _ in range(3):
            mine = [t.clone().requires_grad_() for t in inputs]
            ours(*mine).backward(inputs[0])
            bits.append([t.grad for t in mine])
        assert all(torch.equal(a, b) for other in bits[1:] for a, b in zip(bits[0], other))
        right = [t.double().requires_grad_() for t in inputs]
        exact(*right).backward(inputs[0].double())
        for found, want in zip(bits[0], right):
            close(found, want.grad)
    lengths = [100, 1, 0, 513, 64]
    starts = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], dtype=torch.int32, device="cuda")
    inputs = randn(700, 8, 64), randn(700, 2, 64), randn(700, 2, 64)
    for deterministic in (False, True):
        mine, right = [t.clone().requires_grad_() for t in inputs], [t.double().requires_grad_() for t in inputs]
        out = ht.flash_attn_varlen_func(*mine, starts, starts, 513, 513, causal=True, deterministic=deterministic)
        out.backward(inputs[0])
        for begin, length in zip(starts.tolist(), lengths):
            if length:
                part = slice(begin, begin + length)
                want = attention(*(t[part].transpose(0, 1)[None] for t in right), causal=True)[0]
                want.backward(inputs[0][part].double().transpose(0, 1)[None])
        for found, want in zip(mine, right):
            close(found.grad, want.grad)
            assert not found.grad[678:].any()


def gradients_through_changed_scores():
    """A soft-cap, ALiBi, sinks: heads for every kernel, masks, packed sequences, many tiles and few, the same bits where they are asked for."""
    worst = 0.0
    for index, (batch, heads, kv, rows, dim) in enumerate([
        (1, 2, 2, 2048, 128), (2, 4, 2, 1000, 64), (1, 4, 1, 300, 96), (3, 8, 8, 77, 80), (1, 4, 4, 129, 48), (1, 8, 2, 1500, 64),
    ]):  # fmt: skip
        slopes, sinks = 2.0 ** -torch.linspace(1, 8, heads, device="cuda"), torch.randn(heads, device="cuda")
        # Each is assembled, so not all of them with every mask.
        for turn, (softcap, alibi, sink) in enumerate([(2.0, None, sinks), (0.0, slopes, None)]):
            causal, window = [(False, (-1, -1)), (True, (-1, -1)), (False, (100, 20))][(index + turn) % 3]
            dtype, deterministic = [BF16, F16][index % 2], causal
            inputs = [randn(batch, rows, h, dim, dtype=dtype) for h in (heads, kv, kv)]
            extra = [] if sink is None else [sink]
            mine, right = ([of(t).requires_grad_() for t in (*inputs, *extra)] for of in (torch.clone, torch.Tensor.double))
            how = {"causal": causal, "softcap": softcap}
            call = lambda given: ht.flash_attn_func(  # noqa: E731
                *given[:3], window_size=window, alibi_slopes=alibi, deterministic=deterministic, sinks=given[3] if extra else None, **how
            )
            weights = torch.randn_like(inputs[0])
            found = torch.autograd.grad(call(mine), mine, weights)
            want = attention(
                *(t.transpose(1, 2) for t in right[:3]), window=window, slopes=alibi, sinks=right[3] if extra else None, **how
            )[0].transpose(1, 2)
            for one, exact in zip(found, torch.autograd.grad(want, right, weights.double())):
                close(one, exact, 1.5e-2)
                worst = max(worst, ((one.double() - exact).norm() / exact.norm()).item())
            if deterministic:
                again = torch.autograd.grad(call(mine), mine, weights)
                assert all(torch.equal(a, b) for a, b in zip(found, again))
    starts = torch.tensor([0, 100, 101, 101, 614, 700], dtype=torch.int32, device="cuda")
    inputs = randn(700, 8, 128), randn(700, 2, 128), randn(700, 2, 128)
    for softcap, slopes in [(2.0, None), (0.0, 2.0 ** -torch.linspace(1, 8, 8, device="cuda"))]:
        mine, right = [t.clone().requires_grad_() for t in inputs], [t.double().requires_grad_() for t in inputs]
        ht.flash_attn_varlen_func(*mine, starts, starts, 513, 513, causal=True, softcap=softcap, alibi_slopes=slopes).backward(inputs[0])
        for part in (slice(a, b) for a, b in zip(starts.tolist(), starts.tolist()[1:]) if a < b):
            want = attention(*(t[part].transpose(0, 1)[None] for t in right), causal=True, softcap=softcap, slopes=slopes)[0]
            want.backward(inputs[0][part].double().transpose(0, 1)[None])
        for found, want in zip(mine, right):
            close(found.grad, want.grad)
    return f"at worst {worst:.1e} of f64"


def graphs_of_training():
    """A step with our backward, captured and replayed; and in two threads on streams of
    their own."""
    q, k, v = (randn(2, 8, 640, 64).requires_grad_() for _ in range(3))
    weights = randn(2, 8, 640, 64)

    def step():
        return torch.autograd.grad(ht.scaled_dot_product_attention(q, k, v, is_causal=True), (q, k, v), weights)

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = step()

    def right(q, k, v, weights):
        exact = [t.detach().double().requires_grad_() for t in (q, k, v)]
        return torch.autograd.grad(attention(*exact, causal=True)[0], exact, weights.double())

    for _ in range(3):
        with torch.no_grad():
            for tensor in (q, k, v, weights):
                tensor.normal_()
            for result in results:
                result.fill_(float("nan"))
        graph.replay()
        torch.cuda.synchronize()
        for found, want in zip(results, right(q, k, v, weights)):
            close(found, want)
    wrong = []

    def work(number):
        try:
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                mine = [randn(1, 4, 512, 64).requires_grad_() for _ in range(3)]
                weights = randn(1, 4, 512, 64)
                out = [
                    torch.autograd.grad(ht.scaled_dot_product_attention(*mine, is_causal=True), mine, weights) for _ in range(20)
                ]
            stream.synchronize()
            for found in out:
                for a, b in zip(found, right(*mine, weights)):
                    close(a, b)
        except Exception:
            wrong.append((number, traceback.format_exc()))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong[0][1]


def groups():
    for rows, count, n, k in [(1024, 8, 512, 256), (77, 5, 264, 96), (4096, 16, 1024, 512)]:
        a, b = randn(rows, k), randn(count, k, n)
        offs = torch.sort(torch.randint(0, rows, (count,), device="cuda"))[0].to(torch.int32)
        offs[-1] = rows
        close(ht.grouped_mm(a, b, offs=offs), grouped(a, b, offs))
        close(ht.grouped_mm(a, b.transpose(1, 2).contiguous().transpose(1, 2), offs=offs), grouped(a, b, offs))


def graphs():
    """Captured and replayed, with counters that every launch leaves at zero."""
    for policy in (None, "greedy", "max-steals(3)"):
        q, k, v = (randn(2, 8, 640, 64) for _ in range(3))
        x, w = randn(640, 512), randn(768, 512)
        b, offs = randn(4, 512, 256), torch.tensor([100, 100, 500, 640], dtype=torch.int32, device="cuda")

        def work(q=q, k=k, v=v, x=x, w=w, b=b, offs=offs, policy=policy):
            return (
                ht.scaled_dot_product_attention(q, k, v, is_causal=True, policy=policy),
                ht.linear(x, w, policy=policy),
                ht.grouped_mm(x, b, offs=offs, policy=policy),
            )

        work()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            results = work()
        for _ in range(3):
            for tensor in (q, k, v, x, w, b):
                tensor.normal_()
            for result in results:
                result.fill_(float("nan"))
            graph.replay()
            torch.cuda.synchronize()
            close(results[0], attention(q, k, v, causal=True)[0])
            close(results[1], x.double() @ w.double().t())
            close(results[2], grouped(x, b, offs))


def graphs_of_products_in_a_chain():
    """Each product reads what the launch before it wrote, and launches may overlap: the bits are those of calls one by one."""
    for rows, wide, narrow in [
        (1, 4096, 1024), (128, 256, 4096), (64, 8192, 256), (300, 776, 1304), (256, 32768, 256), (512, 4096, 512),
        (4096, 1024, 4096), (8192, 512, 5120),
    ]:  # fmt: skip
        x = randn(rows, wide)
        weights = [randn(*shape) * shape[0] ** -0.5 for shape in [(wide, narrow), (narrow, wide)] * 4]

        def chain(after, x=x, weights=weights):
            every = []
            for weight in weights:
                every.append(ht.mm(every[-1] if every else x, weight))
                after()
            return every

        apart = chain(torch.cuda.synchronize)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            together = chain(lambda: None)
        for _ in range(20):
            for result in together:
                result.fill_(float("nan"))
            graph.replay()
            assert all(map(torch.equal, together, apart)), f"{rows} rows, {wide} and {narrow} columns"


def graphs_of_decoding():
    """A token at a time: a captured step reads and moves the lengths on the device, and
    everything beside it stays as it was."""
    room, heads, kv, dim = 128, 16, 4, 128
    cache = [torch.zeros(2, room, kv, dim, dtype=BF16, device="cuda") for _ in range(2)]
    x, w = randn(2, 1, 2048), randn(8192, 2048)
    deep = randn(2048, 8192)
    q, k, v = randn(2, 1, heads, dim), randn(2, 1, kv, dim), randn(2, 1, kv, dim)
    lengths = torch.zeros(2, dtype=torch.int32, device="cuda")

    def step():
        at = lengths.long()
        out = ht.flash_attn_with_kvcache(q, *cache, k, v, cache_seqlens=lengths)
        hidden = ht.linear(x, w, activation="relu")
        last = ht.linear(hidden, deep)
        after = at.clone()
        lengths.add_(1)
        return out, hidden, last, at, after

    step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out, hidden, last, at, after = step()
    lengths.copy_(torch.tensor([40, 3], dtype=torch.int32))
    for tensor in cache:
        tensor.normal_()
    for number in range(5):
        for tensor in (q, k, v, x):
            tensor.normal_()
        graph.replay()
        torch.cuda.synchronize()
        ends = [40 + number, 3 + number]
        assert at.tolist() == after.tolist() == ends and lengths.tolist() == [end + 1 for end in ends]
        for i, end in enumerate(ends):
            assert torch.equal(cache[0][i, end], k[i, 0]) and torch.equal(cache[1][i, end], v[i, 0])
            keys, values = (c[i, : end + 1].transpose(0, 1)[None] for c in cache)
            close(out[i].transpose(0, 1)[None], attention(q[i].transpose(0, 1)[None], keys, values)[0])
        close(hidden, (x.double() @ w.double().t()).relu())
        close(last, hidden.double() @ deep.double().t())


def graphs_beside_each_other():
    """Two graphs of the same plan, and the same call without one, at the same time."""
    made = []
    for _ in range(2):
        a, b = randn(2048, 256), randn(256, 2048)
        ht.mm(a, b, policy="greedy")
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = ht.mm(a, b, policy="greedy")
        made.append((graph, a, b, out, torch.cuda.Stream()))
    a, b = randn(2048, 256), randn(256, 2048)
    for _ in range(50):
        for graph, *_, stream in made:
            with torch.cuda.stream(stream):
                graph.replay()
        eager = ht.mm(a, b, policy="greedy")
    torch.cuda.synchronize()
    for _, x, y, out, _ in made:
        close(out, x.double() @ y.double())
    close(eager, a.double() @ b.double())


def side_streams_and_threads():
    """Four threads, each on a stream of its own, all with the same plan."""
    wrong = []

    def work(number):
        try:
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                a, b = randn(1024, 256), randn(256, 1024)
                outs = [ht.mm(a, b, policy=p) for _ in range(100) for p in ("greedy", None)]
                q = randn(1, 4, 512, 64)
                attended = [ht.scaled_dot_product_attention(q, q, q, policy="greedy") for _ in range(20)]
            stream.synchronize()
            want = a.double() @ b.double()
            for out in outs:
                close(out, want)
            for out in attended:
                close(out, attention(q, q, q)[0])
        except Exception:
            wrong.append((number, traceback.format_exc()))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong[0][1]


def compiled():
    def block(x, w):
        return ht.linear(x, w, activation="gelu") * 2

    x, w = randn(256, 128), randn(512, 128)
    close(torch.compile(block, fullgraph=True)(x, w), block(x, w).double())

    def loss(x, w, q, k, v):
        attended = ht.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        return (ht.linear(attended + x, w, activation="silu") ** 2).float().mean()

    inputs = randn(2, 256, 256), randn(512, 256), *(randn(2, 4, 256, 64) for _ in range(3))
    eager, traced = ([t.clone().requires_grad_() for t in inputs] for _ in range(2))
    loss(*eager).backward()
    torch.compile(loss, fullgraph=True)(*traced).backward()
    for a, b in zip(eager, traced):
        close(b.grad, a.grad.double())


def the_hook():
    """PyTorch's own call, with our forward and our backward."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q, k, v = (randn(2, 8, 512, 64).requires_grad_() for _ in range(3))
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        theirs = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        theirs.sum().backward()
        gradients = [t.grad.clone() for t in (q, k, v)]
        for t in (q, k, v):
            t.grad = None
        ht.use()
        try:
            plain = heist.torch._device.ops_of(0)
            before = len(plain)
            ours = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            ours.sum().backward()
            # What the kernels do not do stays PyTorch's.
            odd = randn(1, 2, 64, 24).requires_grad_()
            F.scaled_dot_product_attention(odd, odd, odd).sum().backward()
            wide = randn(1, 2, 64, 256).requires_grad_()
            F.scaled_dot_product_attention(wide, wide, wide).sum().backward()
        finally:
            ht.restore()
        # Attention twice, of which the wide one has no backward of ours, and one backward.
        assert len(plain) == before + 3, (before, len(plain))
        exact = attention(q, k, v, causal=True)[0]
        no_worse(ours.detach(), theirs.detach(), exact.detach())
        for t, want in zip((q, k, v), gradients):
            close(t.grad, want.double())
        again = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        assert torch.equal(again, theirs)


def refusals():
    one = torch.tensor([1 << 19], dtype=torch.int32, device="cuda")
    tiny, factor = torch.zeros(1 << 19, 16, device="cuda").to(torch.float8_e4m3fn), torch.ones((), device="cuda")
    calls = [
        (lambda: ht.mm(randn(8, 16), torch.zeros(16, 8, dtype=BF16)), (ValueError, RuntimeError)),
        (lambda: ht.grouped_mm(randn(8, 16), randn(129)[1:].view(1, 16, 8), offs=one), ValueError),
        (lambda: ht.scaled_dot_product_attention(*(randn(1, 1, 8, 272),) * 3), heist.UnsupportedError),
        (lambda: ht.mm(randn(1 << 19, 16), randn(16, 1 << 19)), torch.OutOfMemoryError),
        (lambda: ht.linear(randn(1 << 19, 16), randn(1 << 19, 16)), torch.OutOfMemoryError),
        (lambda: ht.addmm(randn(1), randn(1 << 19, 16), randn(16, 1 << 19)), torch.OutOfMemoryError),
        (lambda: ht.bmm(randn(1, 1 << 19, 16), randn(1, 16, 1 << 19)), torch.OutOfMemoryError),
        (lambda: ht.scaled_mm(tiny, tiny.t(), factor, factor), torch.OutOfMemoryError),
        (lambda: torch.ops.heist.attention_backward(*(randn(1, 1, 8, 16),) * 5, torch.zeros(1, 1, 8)), (ValueError, RuntimeError)),
        (lambda: ht.scaled_dot_product_attention(*(randn(1, 1, 8, 256).requires_grad_(),) * 3), heist.UnsupportedError),
        (lambda: ht.grouped_mm(randn(1 << 19, 16), randn(1, 16, 1 << 19), offs=one), torch.OutOfMemoryError),
    ]
    for number, (call, error) in enumerate(calls):
        try:
            call()
        except error:
            continue
        raise AssertionError(f"call {number}, which can't be done, was done")
    a, b = randn(64, 64), randn(64, 64)
    close(ht.mm(a, b), a.double() @ b.double())


def kernels_over_arrays_of_the_gpu():
    """PTX and a kernel written in Rust, over tensors and DLPack arrays where they lie."""
    import subprocess

    x = torch.arange(100, dtype=torch.float32, device="cuda")
    heist.run(ADD, x, 60, 0.5, grid=1, block=128)
    want = torch.arange(100, dtype=torch.float32, device="cuda")
    want[:60] += 0.5
    assert torch.equal(x, want)

    class Foreign:
        def __dlpack__(self, stream=None):
            return x.__dlpack__(stream=stream)

        def __dlpack_device__(self):
            return x.__dlpack_device__()

    kernel = heist.Kernel(ADD)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        kernel(Foreign(), 100, 1.0, grid=1, block=128)
        kernel(x, 100, 1.0, grid=1, block=128)
    stream.synchronize()
    assert torch.equal(x, want + 2)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel(x, 100, 1.0, grid=1, block=128)
    graph.replay()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(x, want + 4)
    for call in (
        lambda: heist.run(ADD, x.cpu(), 1, 1.0, grid=1, block=1, buffers={"other": x}),
        lambda: kernel(x.cpu(), 1, 1.0, grid=1, block=1),
        lambda: kernel("out:f32:4", 1, 1.0, grid=1, block=1),
        lambda: kernel(x[::2], 1, 1.0, grid=1, block=1),
        lambda: kernel(x, "u64:1", 1.0, grid=1, block=1),
    ):
        try:
            call()
        except ValueError:
            continue
        raise AssertionError("a launch that can't be done was done")
    command = [sys.executable, "-m", "heist", "emit", "gemm", "m=300", "n=200", "k=512", "--json"]
    emitted = heist.Emitted(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    a, b, d = randn(300, 512), randn(200, 512), torch.full((300, 200), float("nan"), dtype=BF16, device="cuda")
    emitted.run(a=a, b=b, d=d)
    no_worse(d, a @ b.t(), a.double() @ b.double().t())


def two_devices():
    """On the second device while the first is current, and the current one stays."""
    if torch.cuda.device_count() < 2:
        return "one device is there: not run"
    a, b = (torch.randn(64, 64, dtype=BF16, device="cuda:1") for _ in range(2))
    out = ht.mm(a, b)
    assert out.device.index == 1 and torch.cuda.current_device() == 0
    close(out, a.double() @ b.double())
    return None


def more_than_2_31_elements():
    """In a matrix, in the other one, in the result: the last rows are right."""
    big = torch.zeros(1 << 17, (1 << 14) + 64, dtype=BF16, device="cuda")
    big[-1] = 1
    b = randn(16, big.shape[1])
    out = ht.mm(big, b.t())
    close(out[-1:], b.double().sum(1)[None])
    assert not out[:-1].any()
    close(ht.linear(b, big)[:, -1:], b.double().sum(1)[:, None])
    ends = torch.tensor([7, big.shape[0]], dtype=torch.int32, device="cuda")
    two = randn(2, big.shape[1], 64)
    close(ht.grouped_mm(big, two, offs=ends)[-1:], two[1].double().sum(0)[None])
    del big, out
    a, b = randn(1 << 17, 16), randn(16, (1 << 14) + 64)
    out = ht.mm(a, b)
    assert out.numel() > 2**31
    close(out[-64:], a[-64:].double() @ b.double())
    del out
    out = ht.grouped_mm(a, torch.stack((b, -b)), offs=ends)
    close(out[-64:], -(a[-64:].double() @ b.double()))
    close(out[:7], a[:7].double() @ b.double())
    del out
    more_than_2_31_elements_of_attention()


def more_than_2_31_elements_of_attention():
    q = randn(2100, 16, 512, 128)
    assert q.numel() > 2**31
    out = ht.scaled_dot_product_attention(q, q, q, is_causal=True)
    close(out[-1:], attention(q[-1:], q[-1:], q[-1:], causal=True)[0])
    rows = q.view(2100 * 512, 16, 128)
    starts = torch.arange(2101, dtype=torch.int32, device="cuda") * 512
    out = ht.flash_attn_varlen_func(rows, rows, rows, starts, starts, 512, 512)
    last = rows[-512:].transpose(0, 1)[None]
    close(out[-512:].transpose(0, 1)[None], attention(last, last, last)[0])
    del out
    inputs = [q.detach().requires_grad_(), *(torch.randn_like(q).requires_grad_() for _ in range(2))]
    ht.scaled_dot_product_attention(*inputs, is_causal=True).backward(q)
    exact = [t[-1:].detach().double().requires_grad_() for t in inputs]
    attention(*exact, causal=True)[0].backward(q[-1:].double())
    for found, want in zip(inputs, exact):
        close(found.grad[-1:], want.grad)
    del inputs
    table = torch.tensor([[2099, 5]], dtype=torch.int32, device="cuda")
    pages = q.view(2100, 512, 16, 128)
    lengths = torch.tensor([700], dtype=torch.int32, device="cuda")
    query = randn(1, 1, 16, 128)
    out = ht.flash_attn_with_kvcache(query, pages, pages, cache_seqlens=lengths, block_table=table)
    keys = torch.cat((pages[2099], pages[5]))[:700].transpose(0, 1)[None]
    close(out.transpose(1, 2), attention(query.transpose(1, 2), keys, keys)[0])


def launches_that_come_again():
    """Calls again and again, with results at other addresses, in two streams and two threads, beside a capture."""
    x, w = randn(256, 128), randn(64, 128)
    want = (x.double() @ w.double().t())

    def calls():
        with torch.cuda.stream(torch.cuda.Stream()):
            kept = [ht.linear(x, w) for _ in range(100)]
            torch.cuda.current_stream().synchronize()
        found.extend(kept[::7])

    found = []
    torch.cuda.synchronize()
    threads = [threading.Thread(target=calls) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for _ in range(60):
        ht.linear(x, w)
    graph, other = torch.cuda.CUDAGraph(), threading.Thread(target=calls)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        out = ht.linear(x, w)
        other.start()
        other.join()
    x.neg_()
    graph.replay()
    torch.cuda.synchronize()
    close(out, -want)
    assert len(found) == 45
    for one in found:
        close(one, want)


def kernels_of_a_graph():
    """A captured call is its kernels and nothing besides: what a replay does not need is not made zero."""
    if not hasattr(torch.cuda.CUDAGraph, "raw_cuda_graph"):
        return "this PyTorch does not show its graphs: not run"
    import ctypes

    driver = ctypes.CDLL("libcuda.so.1")
    q, k, v = (randn(1, 8, 512, 64) for _ in range(3))
    a, b = randn(512, 256), randn(256, 512)
    for call in (lambda: ht.scaled_dot_product_attention(q, k, v), lambda: ht.mm(a, b)):
        call()
        graph = torch.cuda.CUDAGraph(keep_graph=True)
        with torch.cuda.graph(graph):
            call()
        count = ctypes.c_size_t()
        assert driver.cuGraphGetNodes(ctypes.c_void_p(graph.raw_cuda_graph()), None, ctypes.byref(count)) == 0
        assert count.value == 1, f"{count.value} nodes"
    return None


def forms_of_calls():
    """Heads of other sizes, autocast, rotary embeddings."""
    q, k, v = (randn(2, 4, 300, 40).requires_grad_() for _ in range(3))
    exact = [t.detach().double().requires_grad_() for t in (q, k, v)]
    out, want = ht.scaled_dot_product_attention(q, k, v, is_causal=True), attention(*exact, causal=True)[0]
    close(out.detach(), want.detach())
    out.backward(torch.ones_like(out))
    want.backward(torch.ones_like(want))
    for one, other in zip((q, k, v), exact):
        close(one.grad, other.grad)
    layer, x = torch.nn.Linear(256, 128, device="cuda"), torch.randn(3, 70, 256, device="cuda")
    with torch.autocast("cuda", dtype=BF16):
        out = ht.linear(x, layer.weight, layer.bias)
    assert out.dtype == BF16
    close(out.detach(), F.linear(x.double(), layer.weight.double(), layer.bias.double()).detach())
    angles = torch.rand(64, 32, device="cuda") * 6
    cos, sin = angles.cos(), angles.sin()
    query, key, value = randn(2, 1, 8, 64), randn(2, 1, 2, 64), randn(2, 1, 2, 64)
    caches = [randn(2, 64, 2, 64) for _ in range(2)]
    filled = torch.tensor([7, 40], dtype=torch.int32, device="cuda")
    turn = lambda t: torch.cat(  # noqa: E731
        [(p[..., :32] * c - p[..., 32:] * s, p[..., :32] * s + p[..., 32:] * c)[i] for p, c, s in
         [(t.float(), cos[filled.long()][:, None, None], sin[filled.long()][:, None, None])] for i in (0, 1)], -1).to(BF16)  # fmt: skip
    plain = ht.flash_attn_with_kvcache(turn(query), *(c.clone() for c in caches), turn(key), value, cache_seqlens=filled, causal=True)
    ours = ht.flash_attn_with_kvcache(
        query, *caches, key, value, rotary_cos=cos, rotary_sin=sin, rotary_interleaved=False, cache_seqlens=filled, causal=True
    )
    close(ours, plain.double(), 1e-2)


CHECKS = [
    *MASKS,
    launches_that_come_again, kernels_of_a_graph, forms_of_calls,
    attention_of_many_shapes, packed_and_cached_attention, a_cache_of_eight_bits, numbers_of_a_plan_in_another_stream, layers_of_experts, products_of_many_shapes,
    batches_and_eight_bit_floats, gradients,
    gradients_of_attention, gradients_through_changed_scores, graphs_of_training, groups, graphs, graphs_of_products_in_a_chain, graphs_of_decoding,
    graphs_beside_each_other, side_streams_and_threads, compiled, the_hook, refusals, kernels_over_arrays_of_the_gpu, two_devices, more_than_2_31_elements,
]  # fmt: skip


if __name__ == "__main__":
    failed, only = 0, sys.argv[1:]
    if unknown := set(only) - {check.__name__ for check in CHECKS}:
        sys.exit(f"no check is called {', '.join(sorted(unknown))}; there are {', '.join(check.__name__ for check in CHECKS)}")
    for check in CHECKS:
        if only and check.__name__ not in only:
            continue
        torch.manual_seed(7)
        try:
            said = check()
            torch.cuda.synchronize()
            print(f"ok      {check.__name__}{f' ({said})' if said else ''}", flush=True)
        except Exception:
            failed += 1
            print(f"FAILED  {check.__name__}\n{traceback.format_exc()}", flush=True)
    sys.exit(failed > 0)
