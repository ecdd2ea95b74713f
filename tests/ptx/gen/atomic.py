"""atom and red: every operation and type, on global and shared memory, and in every scope and order."""

from . import floats
from .file import FORMATS, File, listing, signed
from .floats import BF16, F16, F32, F64
from .integer import corners


def wrap(width):
    return lambda x: x & ((1 << width) - 1)


def spread(i, width):
    """Numbers that differ in all their bits."""
    return ((0x9E3779B97F4A7C15 * (i + 1)) & ((1 << 64) - 1)) >> (64 - width)


def integer_ops():
    """(ptx op, ptx type, element, old and operand -> new)"""
    for t in ("u32", "s32", "u64"):
        w = int(t[1:])
        yield "add", t, t, lambda o, v, w=w: wrap(w)(o + v)
    for t in ("u32", "s32", "u64", "s64"):
        w = int(t[1:])
        see = (lambda x, w=w: signed(x, w)) if t[0] == "s" else (lambda x: x)
        yield "min", t, t, lambda o, v, see=see: o if see(o) <= see(v) else v
        yield "max", t, t, lambda o, v, see=see: o if see(o) >= see(v) else v
    for t in ("b32", "b64"):
        yield "and", t, t, lambda o, v: o & v
        yield "or", t, t, lambda o, v: o | v
        yield "xor", t, t, lambda o, v: o ^ v
        yield "exch", t, t, lambda o, v: v
    yield "inc", "u32", "u32", lambda o, v: 0 if o >= v else o + 1
    yield "dec", "u32", "u32", lambda o, v: v if o == 0 or o > v else o - 1


def size(element):
    return FORMATS[element].width // 8 if element in FORMATS else int(element[1:]) // 8


REG = {"f16": "b16", "bf16": "b16", "f16x2": "b32", "bf16x2": "b32"}


def own_slots(f, name, instruction, reg, bytes_, space="global"):
    """Each thread updates its own slot and returns what was there."""
    if space == "shared":
        f.entry(f"""
.visible .entry {name}(.param .u64 p_slots, .param .u64 p_operand, .param .u64 p_old)
{{
    .reg .u32 i, s;
    .reg .u64 slots, operand, old;
    .reg .{reg} v, d;
    .shared .align 16 .b8 box[1024];
    ld.param.u64 slots, [p_slots];
    ld.param.u64 operand, [p_operand];
    ld.param.u64 old, [p_old];
    mov.u32 i, %tid.x;
    mad.wide.u32 slots, i, {bytes_}, slots;
    mad.wide.u32 operand, i, {bytes_}, operand;
    mad.wide.u32 old, i, {bytes_}, old;
    mov.u32 s, box;
    mad.lo.u32 s, i, {bytes_}, s;
    ld.global.{reg} v, [slots];
    st.shared.{reg} [s], v;
    ld.global.{reg} v, [operand];
    {instruction} d, [s], v;
    st.global.{reg} [old], d;
    ld.shared.{reg} v, [s];
    st.global.{reg} [slots], v;
    ret;
}}""")
    else:
        f.entry(f"""
.visible .entry {name}(.param .u64 p_slots, .param .u64 p_operand, .param .u64 p_old)
{{
    .reg .u32 i;
    .reg .u64 slots, operand, old;
    .reg .{reg} v, d;
    ld.param.u64 slots, [p_slots];
    ld.param.u64 operand, [p_operand];
    ld.param.u64 old, [p_old];
    mov.u32 i, %tid.x;
    mad.wide.u32 slots, i, {bytes_}, slots;
    mad.wide.u32 operand, i, {bytes_}, operand;
    mad.wide.u32 old, i, {bytes_}, old;
    ld.global.{reg} v, [operand];
    {instruction} d, [slots], v;
    st.global.{reg} [old], d;
    ret;
}}""")


def contended(f, name, instruction, reg, bytes_, space="global"):
    """All threads of all blocks reduce into one slot (in shared memory: of the block)."""
    if space == "shared":
        f.entry(f"""
.visible .entry {name}(.param .u64 p_slot, .param .u64 p_values)
{{
    .reg .u32 i;
    .reg .u64 slot, values;
    .reg .{reg} v;
    .reg .pred leader;
    .shared .align 16 .b8 box[16];
    ld.param.u64 slot, [p_slot];
    ld.param.u64 values, [p_values];
    mov.u32 i, %tid.x;
    setp.eq.u32 leader, i, 0;
    mad.wide.u32 values, i, {bytes_}, values;
    @leader ld.global.{reg} v, [slot];
    @leader st.shared.{reg} [box], v;
    bar.sync 0;
    ld.global.{reg} v, [values];
    {instruction} [box], v;
    bar.sync 0;
    @leader ld.shared.{reg} v, [box];
    @leader st.global.{reg} [slot], v;
    ret;
}}""")
    else:
        f.entry(f"""
.visible .entry {name}(.param .u64 p_slot, .param .u64 p_values)
{{
    .reg .u32 i, n, b;
    .reg .u64 slot, values;
    .reg .{reg} v;
    ld.param.u64 slot, [p_slot];
    ld.param.u64 values, [p_values];
    mov.u32 i, %tid.x;
    mov.u32 n, %ntid.x;
    mov.u32 b, %ctaid.x;
    mad.lo.u32 i, b, n, i;
    mad.wide.u32 values, i, {bytes_}, values;
    ld.global.{reg} v, [values];
    {instruction} [slot], v;
    ret;
}}""")


def integers():
    own = File("atomic/own_slots", "atom on global memory: what is left behind and what is returned, for every operation, over corner values.")
    shared = File("atomic/shared", "atom and red on shared memory.")
    crowd = File("atomic/contended", "red on global memory from many threads of several blocks: the result does not depend on the order.")
    for op, t, element, fn in integer_ops():
        w = int(t[1:])
        olds = [x for x in corners(w) for _ in range(4)]
        operands = [corners(w)[(i * 3 + i // 7) % 7] for i in range(len(olds))]
        new = [fn(o, v) for o, v in zip(olds, operands)]
        for file, space in ((own, "global"), (shared, "shared")):
            if space == "shared" and op not in ("add", "exch", "inc", "max", "xor"):
                continue
            name = f"{op}_{t}"
            own_slots(file, name, f"atom.{space}.{op}.{t}", "b" + str(w), w // 8, space)
            file.run("corners", name, [f"inout:{listing(element, olds)}", f"in:{listing(element, operands)}", f"out:{element}:{len(olds)}"],
                     [f"0 {listing(element, new)}", f"2 {listing(element, olds)}"], block=len(olds))
        if op == "exch":
            continue
        start = {"and": (1 << w) - 1, "min": (1 << (w - 1)) - 1}.get(op, 5)
        if op in ("inc", "dec"):
            values = [20] * 128
        elif op == "and":
            values = [((1 << w) - 1) ^ (1 << (i % (w // 2))) for i in range(128)]
        elif op in ("or", "xor"):
            values = [spread(i, w) & (1 << (i % w) | 0xF0) for i in range(128)]
        else:
            values = [spread(i, w) for i in range(128)]
        total = start
        for v in values:
            total = fn(total, v)
        contended(crowd, f"{op}_{t}", f"red.global.{op}.{t}", "b" + str(w), w // 8)
        crowd.run("all", f"{op}_{t}", [f"inout:{listing(element, [start])}", f"in:{listing(element, values)}"],
                  [f"0 {listing(element, [total])}"], grid=4, block=32)
        contended(shared, f"red_{op}_{t}", f"red.shared.{op}.{t}", "b" + str(w), w // 8, "shared")
        shared.run("all", f"red_{op}_{t}", [f"inout:{listing(element, [start])}", f"in:{listing(element, values)}"],
                   [f"0 {listing(element, [total])}"], grid=1, block=128)
    yield own
    yield shared
    yield crowd


def floating():
    f = File("atomic/float", "Floating atomics: add of f16, bf16, their pairs, f32 and f64; the sums are exact so that order does not matter.", version="8.1")
    for t, fmt, lanes, mod in (("f32", F32, 1, ""), ("f64", F64, 1, ""), ("f16", F16, 1, ".noftz"), ("f16x2", F16, 2, ".noftz"),
                               ("bf16", BF16, 1, ".noftz"), ("bf16x2", BF16, 2, ".noftz")):
        element = fmt.name
        bytes_ = fmt.width // 8 * lanes
        bits = fmt.width * lanes
        olds = [fmt.of(x) for x in ("0", "-0", "-0", 1.5, "inf", "inf", "nan", "max", 1, 1 + 2.0**-fmt.mbits, 100, -3)]
        operands = [fmt.of(x) for x in ("-0", "-0", "0", -1.5, 1, "-inf", 1, "max", 2.0 ** -(fmt.mbits + 1), 2.0 ** -(fmt.mbits + 1), 0.5, 7)]
        new = [floats.add(fmt, o, v) for o, v in zip(olds, operands)]
        n = len(olds) // lanes
        for space in ("global", "shared"):
            name = f"add_{t}_{space}"
            own_slots(f, name, f"atom.{space}.add{mod}.{t}", f"b{bits}", bytes_, space)
            f.run("special", name, [f"inout:{listing(element, olds)}", f"in:{listing(element, operands)}", f"out:{element}:{len(olds)}"],
                  [f"0 {listing(element, new)}", f"2 {listing(element, [floats.NAN if fmt.is_nan(o) else o for o in olds])}"], block=n)
            contended(f, f"red_{t}_{space}", f"red.{space}.add{mod}.{t}", f"b{bits}", bytes_, space)
            values = [(i % 5) - 2 for i in range(60 * lanes)]
            sums = [sum(values[k::lanes]) + 3 for k in range(lanes)]
            f.run("exact-sum", f"red_{t}_{space}", [f"inout:{listing(element, [fmt.of(3)] * lanes)}", f"in:{listing(element, [fmt.of(v) for v in values])}"],
                  [f"0 {listing(element, [fmt.of(s) for s in sums])}"], grid=1, block=60)
    small = [F32.of(x) for x in ("min", "sub", "-min", "norm")]
    others = [F32.of(x) for x in ("min", "min", "-sub", "-min")]
    f.run("subnormals", "add_f32_shared", [f"inout:{listing('f32', small)}", f"in:{listing('f32', others)}", "out:f32:4"],
          [f"0 {listing('f32', [floats.add(F32, a, b) for a, b in zip(small, others)])}"], block=4)
    for vec, t, n in (("v2", "f32", 2), ("v4", "f32", 4)):
        regs = ", ".join(f"v{i}" for i in range(n))
        outs = ", ".join(f"d{i}" for i in range(n))
        f.entry(f"""
.visible .entry add_{vec}_{t}(.param .u64 p_slots, .param .u64 p_operand, .param .u64 p_old)
{{
    .reg .u32 i;
    .reg .u64 slots, operand, old;
    .reg .f32 {regs}, {outs};
    ld.param.u64 slots, [p_slots];
    ld.param.u64 operand, [p_operand];
    ld.param.u64 old, [p_old];
    mov.u32 i, %tid.x;
    mad.wide.u32 slots, i, {4 * n}, slots;
    mad.wide.u32 operand, i, {4 * n}, operand;
    mad.wide.u32 old, i, {4 * n}, old;
    ld.global.{vec}.f32 {{{regs}}}, [operand];
    atom.global.{vec}.f32.add {{{outs}}}, [slots], {{{regs}}};
    st.global.{vec}.f32 [old], {{{outs}}};
    red.global.{vec}.f32.add [slots], {{{regs}}};
    ret;
}}""")
        a = [F32.of(i + 0.5) for i in range(4 * n)]
        b = [F32.of(10 * i) for i in range(4 * n)]
        f.run("twice", f"add_{vec}_{t}", [f"inout:{listing('f32', a)}", f"in:{listing('f32', b)}", f"out:f32:{4 * n}"],
              [f"0 {listing('f32', [floats.add(F32, floats.add(F32, x, y), y) for x, y in zip(a, b)])}", f"2 {listing('f32', a)}"], block=4)
    yield f


def swaps():
    f = File("atomic/cas", "atom.cas of every width: it stores only where the old value is the expected one, and returns the old value.", version="8.3")
    for space in ("global", "shared"):
        for w in (16, 32, 64):
            t = f"b{w}"
            top = (1 << w) - 1
            old, want, new = [0, 1, 5, top, top], [0, 2, 5, top, 0], [9, 9, top, 0, 1]
            address = "slots" if space == "global" else "s"
            stage_in = "" if space == "global" else f"mov.u32 s, box;\n    mad.lo.u32 s, i, {w // 8}, s;\n    ld.global.{t} v, [slots];\n    st.shared.{t} [s], v;\n    "
            stage_out = "" if space == "global" else f"ld.shared.{t} v, [s];\n    st.global.{t} [slots], v;\n    "
            f.entry(f"""
.visible .entry cas_{t}_{space}(.param .u64 p_slots, .param .u64 p_want, .param .u64 p_new, .param .u64 p_old)
{{
    .reg .u32 i, s;
    .reg .u64 slots, want, new, old;
    .reg .{t} v, w, d;
    .shared .align 16 .b8 box[128];
    ld.param.u64 slots, [p_slots];
    ld.param.u64 want, [p_want];
    ld.param.u64 new, [p_new];
    ld.param.u64 old, [p_old];
    mov.u32 i, %tid.x;
    mad.wide.u32 slots, i, {w // 8}, slots;
    mad.wide.u32 want, i, {w // 8}, want;
    mad.wide.u32 new, i, {w // 8}, new;
    mad.wide.u32 old, i, {w // 8}, old;
    {stage_in}ld.global.{t} w, [want];
    ld.global.{t} v, [new];
    atom.{space}.cas.{t} d, [{address}], w, v;
    st.global.{t} [old], d;
    {stage_out}ret;
}}""")
            after = [n if o == x else o for o, x, n in zip(old, want, new)]
            f.run("hit-and-miss", f"cas_{t}_{space}",
                  [f"inout:{listing(t, old)}", f"in:{listing(t, want)}", f"in:{listing(t, new)}", f"out:{t}:5"],
                  [f"0 {listing(t, after)}", f"3 {listing(t, old)}"], block=5)
    f.entry("""
.visible .entry cas_b128(.param .u64 p_slots, .param .u64 p_old)
{
    .reg .u32 i;
    .reg .u64 slots, old, lo, hi, zero, one;
    .reg .b128 want, new, d;
    ld.param.u64 slots, [p_slots];
    ld.param.u64 old, [p_old];
    mov.u32 i, %tid.x;
    mad.wide.u32 slots, i, 16, slots;
    mad.wide.u32 old, i, 16, old;
    mov.u64 zero, 0;
    mov.u64 one, 1;
    mov.b128 want, {one, zero};
    mov.b128 new, {zero, one};
    atom.global.cas.b128 d, [slots], want, new;
    mov.b128 {lo, hi}, d;
    st.global.v2.u64 [old], {lo, hi};
    ret;
}""")
    f.run("hit-and-miss", "cas_b128", ["inout:u64:[1,0,1,1,2,0]", "out:u64:6"], ["0 u64:[0,1,1,1,2,0]", "1 u64:[1,0,1,1,2,0]"], block=3)
    f.entry("""
// A float maximum from compare-and-swap: the loop must end whatever the schedule.
.visible .entry cas_loop(.param .u64 p_slot, .param .u64 p_values)
{
    .reg .u32 i;
    .reg .u64 slot, values;
    .reg .b32 old, seen, v;
    .reg .f32 a, b, m;
    .reg .pred done;
    ld.param.u64 slot, [p_slot];
    ld.param.u64 values, [p_values];
    mov.u32 i, %tid.x;
    mad.wide.u32 values, i, 4, values;
    ld.global.f32 a, [values];
    ld.relaxed.gpu.global.b32 old, [slot];
again:
    mov.b32 b, old;
    max.f32 m, a, b;
    mov.b32 v, m;
    atom.relaxed.gpu.global.cas.b32 seen, [slot], old, v;
    setp.eq.b32 done, seen, old;
    mov.b32 old, seen;
    @!done bra again;
    ret;
}""")
    vals = [F32.of(((i * 37) % 64) - 20) for i in range(64)]
    f.run("max", "cas_loop", ["inout:f32:[-1000]", f"in:{listing('f32', vals)}"], ["0 f32:[43]"], block=64)
    yield f


def scopes():
    f = File("atomic/scope", "Every order and scope of an atomic is the same sum when nothing races; so is a ticket counter's permutation.", version="8.0")
    for order in ("relaxed", "acquire", "release", "acq_rel"):
        for scope in ("cta", "cluster", "gpu", "sys"):
            name = f"add_{order}_{scope}"
            f.entry(f"""
.visible .entry {name}(.param .u64 p_slot, .param .u64 p_seen)
{{
    .reg .u32 t, one;
    .reg .u64 slot, seen;
    ld.param.u64 slot, [p_slot];
    ld.param.u64 seen, [p_seen];
    mov.u32 one, 1;
    atom.{order}.{scope}.global.add.u32 t, [slot], one;
    mad.wide.u32 seen, t, 4, seen;
    st.global.u32 [seen], one;
    ret;
}}""")
            f.run("tickets", name, ["inout:u32:[0]", "out:u32:48"], ["0 u32:[48]", "1 u32:[1*48]"], block=48)
    f.entry("""
.visible .entry red_release(.param .u64 p_slot)
{
    .reg .u64 slot;
    ld.param.u64 slot, [p_slot];
    red.release.gpu.global.add.u32 [slot], 2;
    red.relaxed.sys.global.add.u32 [slot], 3;
    red.relaxed.gpu.global.max.u32 [slot], 1;
    ret;
}""")
    f.run("sum", "red_release", ["inout:u32:[0]"], ["0 u32:[320]"], grid=2, block=32)
    f.entry("""
.visible .entry generic_address(.param .u64 p_slot)
{
    .reg .u64 slot, g;
    .reg .u32 i, d;
    .reg .pred leader;
    .shared .u32 box;
    ld.param.u64 slot, [p_slot];
    mov.u32 i, %tid.x;
    setp.eq.u32 leader, i, 0;
    @leader st.shared.u32 [box], 0;
    bar.sync 0;
    cvta.shared.u64 g, box;
    atom.add.u32 d, [g], i;
    red.add.u32 [slot], 1;
    bar.sync 0;
    @leader ld.shared.u32 d, [box];
    @leader red.add.u32 [slot], d;
    ret;
}""")
    f.run("both-spaces", "generic_address", ["inout:u32:[0]"], ["0 u32:[528]"], block=32)
    yield f


def files():
    yield from integers()
    yield from floating()
    yield from swaps()
    yield from scopes()
