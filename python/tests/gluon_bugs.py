"""Gluon kernels with one mistake each, in the line that says so, and launches that show it."""

import torch
from gluon_kernels import descriptor, halves
from gluon_names import clc
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.blackwell import TensorMemoryLayout, allocate_tensor_memory, tcgen05_commit, tcgen05_mma
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma, warpgroup_mma, warpgroup_mma_wait

BUGS = {}


def bug(device, code):
    """A function that launches a kernel, where, and the rule that it breaks."""

    def add(launch):
        BUGS[launch.__name__] = (launch, device, code)
        return launch

    return add


def floats(*shape):
    return torch.arange(1, 1 + torch.Size(shape).numel(), dtype=torch.float32).reshape(shape)


# Ampere.


@gluon.jit
def copied(x, out, BLOCK: gl.constexpr, PENDING: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([4], [32], [4], [0])
    stage = gl.allocate_shared_memory(gl.float32, [BLOCK], gl.SwizzledSharedLayout(1, 1, 1, order=[0]))
    at = gl.arange(0, BLOCK, layout)
    async_copy.async_load(stage, x + at)
    async_copy.commit_group()
    async_copy.wait_group(PENDING)
    gl.store(out + at, stage.load(layout))  # BUG: with one group pending nothing was waited for
    async_copy.wait_group(0)


@bug("a100", "A001")
def wait_that_leaves_one_group_pending():
    copied[(1,)](floats(512), floats(512), BLOCK=512, PENDING=1)


@gluon.jit
def one_buffer(x, out, BLOCK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([4], [32], [4], [0])
    stage = gl.allocate_shared_memory(gl.float32, [BLOCK], gl.SwizzledSharedLayout(1, 1, 1, order=[0]))
    at = gl.arange(0, BLOCK, layout)
    async_copy.async_load(stage, x + at)
    async_copy.commit_group()
    async_copy.async_load(stage, x + BLOCK + at)  # BUG: the buffer of the first copy
    async_copy.commit_group()
    async_copy.wait_group(1)
    gl.store(out + at, stage.load(layout))  # BUG: and what is read is on its way
    async_copy.wait_group(0)


@bug("a100", "A029")
def buffer_of_a_copy_that_is_under_way():
    one_buffer[(1,)](floats(1024), floats(512), BLOCK=512)


# Hopper.


@gluon.jit
def fetched(x_desc, out_desc, tiles, WAIT: gl.constexpr, FLIP: gl.constexpr, BYTES: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
    SIZE: gl.constexpr = x_desc.block_type.shape[1]
    inbox = gl.allocate_shared_memory(x_desc.dtype, x_desc.block_type.shape, x_desc.layout)
    outbox = gl.allocate_shared_memory(out_desc.dtype, out_desc.block_type.shape, out_desc.layout)
    full = mbarrier.allocate_mbarrier()
    mbarrier.init(full, count=1)
    for tile in range(tiles):
        mbarrier.expect(full, x_desc.block_type.nbytes - BYTES)
        tma.async_load(x_desc, [0, tile * SIZE], full, inbox)  # BUG: more bytes than are expected
        if WAIT:
            mbarrier.wait(full, tile & 1 if FLIP else 0)  # BUG: with fewer bytes it waits forever
        values = inbox.load(layout) + 1.0  # BUG: without a wait, or after one for an old phase
        tma.store_wait(0)
        outbox.store(values)
        fence_async_shared()
        tma.async_store(out_desc, [0, tile * SIZE], outbox)
    tma.store_wait(0)


def fetch(tiles=1, WAIT=True, FLIP=True, BYTES=0):
    x, out = floats(16, 32 * tiles), floats(16, 32 * tiles)
    fetched[(1,)](descriptor(x, [16, 32]), descriptor(out, [16, 32]), tiles, WAIT, FLIP, BYTES)


@bug("h200", "A007")
def missing_wait_for_the_copy_engine():
    fetch(WAIT=False)


@bug("h200", "A007")
def phase_that_is_never_flipped():
    fetch(tiles=3, FLIP=False)


@bug("h200", "A030")
def fewer_bytes_expected_than_come():
    fetch(BYTES=128)


@gluon.jit
def overwritten(out_desc):
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
    SIZE: gl.constexpr = out_desc.block_type.shape[1]
    outbox = gl.allocate_shared_memory(out_desc.dtype, out_desc.block_type.shape, out_desc.layout)
    for tile in range(2):
        outbox.store(gl.full(out_desc.block_type.shape, 1.0, gl.float32, layout))  # BUG: the copy engine may still read it
        fence_async_shared()
        tma.async_store(out_desc, [0, tile * SIZE], outbox)
    tma.store_wait(0)


@bug("h200", "A008")
def buffer_written_while_it_is_stored():
    overwritten[(1,)](descriptor(floats(16, 64), [16, 32]))


@gluon.jit
def consumer(c_desc, steps, a, b, full, empty, STAGES: gl.constexpr, HASTY: gl.constexpr):
    out: gl.constexpr = gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, 64, 16])
    acc = gl.zeros(c_desc.block_type.shape, gl.float32, out)
    for step in range(steps):
        stage = step % STAGES
        mbarrier.wait(full.index(stage), step // STAGES & 1)
        acc = warpgroup_mma(a.index(stage), b.index(stage), acc, is_async=True)  # BUG: reads what was given back
        if HASTY:
            mbarrier.arrive(empty.index(stage), count=1)
        acc = warpgroup_mma_wait(0, deps=[acc])
        if not HASTY:
            mbarrier.arrive(empty.index(stage), count=1)
    c = gl.allocate_shared_memory(c_desc.dtype, c_desc.block_type.shape, c_desc.layout)
    c.store(acc.to(c_desc.dtype))
    fence_async_shared()
    tma.async_store(c_desc, [0, 0], c)
    tma.store_wait(0)


@gluon.jit
def producer(a_desc, b_desc, steps, a, b, full, empty, STAGES: gl.constexpr, EAGER: gl.constexpr):
    BLOCK_K: gl.constexpr = a_desc.block_type.shape[1]
    for step in range(steps):
        stage = step % STAGES
        if not EAGER:
            mbarrier.wait(empty.index(stage), step // STAGES & 1 ^ 1)
        mbarrier.expect(full.index(stage), a_desc.block_type.nbytes + b_desc.block_type.nbytes)  # BUG: the phase is not over
        tma.async_load(a_desc, [0, step * BLOCK_K], full.index(stage), a.index(stage))  # BUG: it may still be read
        tma.async_load(b_desc, [step * BLOCK_K, 0], full.index(stage), b.index(stage))


@gluon.jit
def pair(a_desc, b_desc, c_desc, steps, EAGER: gl.constexpr, HASTY: gl.constexpr):
    STAGES: gl.constexpr = 2
    a = gl.allocate_shared_memory(a_desc.dtype, [STAGES] + a_desc.block_type.shape, a_desc.layout)
    b = gl.allocate_shared_memory(b_desc.dtype, [STAGES] + b_desc.block_type.shape, b_desc.layout)
    full, empty = mbarrier.allocate_mbarrier(batch=STAGES), mbarrier.allocate_mbarrier(batch=STAGES)
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=1)
    gl.warp_specialize(
        [
            (consumer, (c_desc, steps, a, b, full, empty, STAGES, HASTY)),
            (producer, (a_desc, b_desc, steps, a, b, full, empty, STAGES, EAGER)),
        ],
        [1],
        [40],
    )


def pairs(eager=False, hasty=False):
    a, b, c = halves(64, 256), halves(256, 64), halves(64, 64)
    pair[(1,)](descriptor(a, [64, 32]), descriptor(b, [32, 64]), descriptor(c, [64, 64]), 8, eager, hasty)


@bug("h200", "T008")
def stage_given_back_before_the_product_is_done():
    pairs(hasty=True)


@bug("h200", "A029")
def stage_filled_before_it_is_empty():
    pairs(eager=True)


@gluon.jit
def writer(box, ready, FENCE: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [4, 8], [4, 1], [1, 0])
    box.store(gl.full(box.shape, 1.0, gl.float32, layout))
    if FENCE:
        fence_async_shared()
    mbarrier.arrive(ready, count=1)


@gluon.jit
def storer(out_desc, box, ready):
    mbarrier.wait(ready, 0)
    tma.async_store(out_desc, [0, 0], box)  # BUG: without the writer's fence
    tma.store_wait(0)


@gluon.jit
def handed_over(out_desc, FENCE: gl.constexpr):
    box = gl.allocate_shared_memory(out_desc.dtype, out_desc.block_type.shape, out_desc.layout)
    ready = mbarrier.allocate_mbarrier()
    mbarrier.init(ready, count=1)
    gl.warp_specialize([(writer, (box, ready, FENCE)), (storer, (out_desc, box, ready))], [1], [40])


@bug("h200", "A005")
def missing_fence_before_a_store():
    handed_over[(1,)](descriptor(floats(16, 32), [16, 32]), False)


# Blackwell.


@gluon.jit
def multiplied(a_desc, b_desc, c_ptr, N: gl.constexpr, WAIT: gl.constexpr):
    a = gl.allocate_shared_memory(a_desc.dtype, a_desc.block_type.shape, a_desc.layout)
    b = gl.allocate_shared_memory(b_desc.dtype, b_desc.block_type.shape, b_desc.layout)
    acc = allocate_tensor_memory(gl.float32, [128, N], TensorMemoryLayout([128, N], col_stride=1))
    full, done = mbarrier.allocate_mbarrier(), mbarrier.allocate_mbarrier()
    mbarrier.init(full, count=1)
    mbarrier.init(done, count=1)
    mbarrier.expect(full, a_desc.block_type.nbytes + b_desc.block_type.nbytes)
    tma.async_load(a_desc, [0, 0], full, a)
    tma.async_load(b_desc, [0, 0], full, b)
    if WAIT != "full":
        mbarrier.wait(full, 0)
    tcgen05_mma(a, b, acc, use_acc=False)  # BUG: without the wait for its operands
    tcgen05_commit(done)
    if WAIT != "done":
        mbarrier.wait(done, 0)
    value = acc.load()  # BUG: without the wait for the product
    layout: gl.constexpr = value.type.layout
    rows, columns = gl.arange(0, 128, gl.SliceLayout(1, layout)), gl.arange(0, N, gl.SliceLayout(0, layout))
    gl.store(c_ptr + rows[:, None] * N + columns[None, :], value)


def multiply(without):
    a, b = halves(128, 32), halves(32, 64)
    multiplied[(1,)](descriptor(a, [128, 32]), descriptor(b, [32, 64]), floats(128, 64), 64, without)


@bug("b200", "T102")
def product_read_before_it_is_done():
    multiply("done")


@bug("b200", "A007")
def product_of_operands_that_are_on_their_way():
    multiply("full")


@gluon.jit
def taken(x_ptr, out_ptr, BLOCK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([2], [32], [4], [0])
    answer = gl.allocate_shared_memory(gl.int64, [2], gl.SwizzledSharedLayout(1, 1, 1, order=[0]))
    ready = mbarrier.allocate_mbarrier()
    mbarrier.init(ready, count=1)
    tile = gl.program_id(0)
    phase = 0
    again = True
    while again:
        mbarrier.expect(ready, 16)
        clc.try_cancel(answer, ready)
        at = tile * BLOCK + gl.arange(0, BLOCK, layout)
        gl.store(out_ptr + at, gl.load(x_ptr + at))
        got = clc.load_result(answer)  # BUG: nobody has waited for it
        again = got.is_canceled()
        if again:
            tile = got.program_id(0)
        mbarrier.wait(ready, phase)
        phase ^= 1


@bug("b200", "L002")
def answer_of_launch_control_read_too_early():
    taken[(8,)](floats(1024), floats(1024), BLOCK=128)
