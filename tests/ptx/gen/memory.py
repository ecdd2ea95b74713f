"""Loads and stores: widths, vectors, cache operators, sign extension; packing and unpacking with mov."""

from .file import File
from .integer import read


def copies():
    f = File("memory/load_store", """Loads and stores of every width and vector length, with every cache operator: what is copied is
what was there.""", version="8.3")
    def copy(name, load, store, element, count, lanes=1, regs=None, target="global"):
        """One thread copies `lanes` elements of `element`."""
        size = int(element[1:]) // 8
        reg = regs or ("b16" if size == 1 else element)
        names = [f"v{i}" for i in range(lanes)]
        operand = "{" + ", ".join(names) + "}" if lanes > 1 else names[0]
        f.entry(f"""
.visible .entry {name}(.param .u64 p_a, .param .u64 p_d)
{{
    .reg .u32 i;
    .reg .u64 a, d, offset;
    .reg .{reg} {', '.join(names)};
    ld.param.u64 a, [p_a];
    ld.param.u64 d, [p_d];
    mov.u32 i, %tid.x;
    mul.wide.u32 offset, i, {size * lanes};
    add.u64 a, a, offset;
    add.u64 d, d, offset;
    {load} {operand}, [a];
    {store} [d], {operand};
    ret;
}}""")
        width = size * 8
        fill = [(0x8967452301EFCDAB * (2 * k + 1)) & ((1 << width) - 1) for k in range(count)]
        kind = "u" + str(width)
        from .file import listing
        f.run("copies", name, [f"in:{listing(kind, fill)}", f"out:{kind}:{count}"], [f"1 {listing(kind, fill)}"], block=count // lanes)

    for w in (8, 16, 32, 64):
        copy(f"b{w}", f"ld.global.b{w}", f"st.global.b{w}", f"b{w}", 16)
        copy(f"b{w}_v2", f"ld.global.v2.b{w}", f"st.global.v2.b{w}", f"b{w}", 16, 2)
        if w < 64:
            copy(f"b{w}_v4", f"ld.global.v4.b{w}", f"st.global.v4.b{w}", f"b{w}", 16, 4)
    copy("f32_v4", "ld.global.v4.f32", "st.global.v4.f32", "b32", 8, 4, "f32")
    copy("f64_v2", "ld.global.v2.f64", "st.global.v2.f64", "b64", 8, 2, "f64")
    for op in ("ca", "cg", "cs", "lu", "cv"):
        copy(f"load_{op}", f"ld.global.{op}.u32", "st.global.u32", "u32", 8)
    for op in ("wb", "cg", "cs", "wt"):
        copy(f"store_{op}", "ld.global.u32", f"st.global.{op}.u32", "u32", 8)
    for name, load in (("nc", "ld.global.nc.u32"), ("nc_v4", "ld.global.nc.v4.u32"), ("volatile", "ld.volatile.global.u32"),
                       ("relaxed_gpu", "ld.relaxed.gpu.global.u32"), ("acquire_sys", "ld.acquire.sys.global.u32"),
                       ("acquire_cta", "ld.acquire.cta.global.u32"), ("weak", "ld.weak.global.u32"),
                       ("no_allocate", "ld.global.L1::no_allocate.u32"), ("evict_last", "ld.global.L1::evict_last.u32"),
                       ("l2_128", "ld.global.L2::128B.u32"), ("generic", "ld.u32")):
        copy(f"load_{name}", load, "st.global.v4.u32" if name.endswith("v4") else "st.global.u32", "u32", 8, 4 if name.endswith("v4") else 1)
    for name, store in (("volatile", "st.volatile.global.u32"), ("relaxed_cta", "st.relaxed.cta.global.u32"),
                        ("release_gpu", "st.release.gpu.global.u32"), ("weak", "st.weak.global.u32"),
                        ("evict_first", "st.global.L1::evict_first.u32"), ("generic", "st.u32")):
        copy(f"store_{name}", "ld.global.u32", store, "u32", 8)
    yield f

    f = File("memory/extension", "Narrow loads into wide registers extend by the sign or with zeros; narrow stores drop the top.")
    values = [0, 1, 0x7F, 0x80, 0xFF]
    for src in ("u8", "s8", "u16", "s16", "u32", "s32"):
        w = int(src[1:])
        xs = [v if w == 8 else v << (w - 8) | v for v in values]
        for dst in ("32", "64"):
            if w > int(dst) or w == int(dst):
                continue
            reg = src[0] + dst
            f.entry(f"""
.visible .entry load_{src}_in_{reg}(.param .u64 p_a, .param .u64 p_d)
{{
    .reg .u32 i;
    .reg .u64 a, d, offset;
    .reg .{reg} v;
    ld.param.u64 a, [p_a];
    ld.param.u64 d, [p_d];
    mov.u32 i, %tid.x;
    mad.wide.u32 a, i, {w // 8}, a;
    mad.wide.u32 d, i, {int(dst) // 8}, d;
    ld.global.{src} v, [a];
    st.global.{reg} [d], v;
    ret;
}}""")
            from .file import listing
            f.run("extends", f"load_{src}_in_{reg}", [f"in:{listing(src, xs)}", f"out:{reg}:5"],
                  [f"1 {listing(reg, [read(x, src) for x in xs])}"], block=5)
    for src, dst in (("u32", "u8"), ("u32", "u16"), ("u64", "u32"), ("u64", "u8")):
        xs = [0x123456789ABCDEF0 & ((1 << int(src[1:])) - 1), 0xFF, 0x100, 0]
        f.entry(f"""
.visible .entry store_{src}_as_{dst}(.param .u64 p_a, .param .u64 p_d)
{{
    .reg .u32 i;
    .reg .u64 a, d;
    .reg .{src} v;
    ld.param.u64 a, [p_a];
    ld.param.u64 d, [p_d];
    mov.u32 i, %tid.x;
    mad.wide.u32 a, i, {int(src[1:]) // 8}, a;
    mad.wide.u32 d, i, {int(dst[1:]) // 8}, d;
    ld.global.{src} v, [a];
    st.global.{dst} [d], v;
    ret;
}}""")
        f.run("truncates", f"store_{src}_as_{dst}", [f"in:{listing(src, xs)}", f"out:{dst}:4"], [f"1 {listing(dst, xs)}"], block=4)
    yield f


def moves():
    f = File("memory/mov", "mov packs and unpacks registers, low part first, and may drop a part.", version="8.3")
    k = f.map("unpack_b64", ["b64"], ["b32", "b32"], "mov.b64 {d, d1}, a;")
    xs = [0x1122334455667788, 0xFFFFFFFF00000000, 1]
    f.case(k, "halves", [xs], [[x & 0xFFFFFFFF for x in xs], [x >> 32 for x in xs]])
    k = f.map("pack_b64", ["b32", "b32"], ["b64"], "mov.b64 d, {a, b};")
    f.case(k, "halves", [[1, 0x55667788], [2, 0x11223344]], [[0x200000001, 0x1122334455667788]])
    k = f.map("unpack_b32", ["b32"], ["b16", "b16"], "mov.b32 {d, d1}, a;")
    f.case(k, "halves", [[0x11223344, 0xFFFF0000]], [[0x3344, 0], [0x1122, 0xFFFF]])
    k = f.map("pack_b32", ["b16", "b16"], ["b32"], "mov.b32 d, {a, b};")
    f.case(k, "halves", [[1, 0xFFFF], [2, 0x8000]], [[0x20001, 0x8000FFFF]])
    k = f.map("unpack_b64_quarters", ["b64"], ["b16", "b16", "b16", "b16"], "mov.b64 {d, d1, d2, d3}, a;")
    f.case(k, "quarters", [[0x1122334455667788]], [[0x7788], [0x5566], [0x3344], [0x1122]])
    k = f.map("pack_b64_quarters", ["b16", "b16", "b16", "b16"], ["b64"], "mov.b64 d, {a, b, c, e};")
    f.case(k, "quarters", [[1], [2], [3], [0xFFFF]], [[0xFFFF000300020001]])
    k = f.map("sink", ["b64"], ["b32"], "mov.b64 {_, d}, a;")
    f.case(k, "upper-half", [[0x1122334455667788]], [[0x11223344]])
    k = f.map("b128", ["b64", "b64"], ["b64", "b64"], "mov.b128 q, {a, b};\nmov.b128 {d1, d}, q;", [".b128 q"])
    f.case(k, "swap", [[1, 0xFFFFFFFFFFFFFFFF], [2, 5]], [[2, 5], [1, 0xFFFFFFFFFFFFFFFF]])
    k = f.map("reinterpret", ["f32"], ["b32", "f32"], "mov.b32 d, a;\nmov.b32 d1, 0xff800000;")
    f.case(k, "bits", [[0x3F800000, 0x80000000]], [[0x3F800000, 0x80000000], [0xFF800000, 0xFF800000]])
    k = f.map("literals", ["u32"], ["f32", "f64", "u32"],
              "mov.f32 d, 0f40490FDB;\nmov.f64 d1, 0d400921FB54442D18;\nmov.u32 d2, (0x10 << 2 | 3) + 5 * 2 - 1;")
    f.case(k, "constants", [[0]], [[0x40490FDB], [0x400921FB54442D18], [(0x10 << 2 | 3) + 5 * 2 - 1]])
    yield f


def files():
    yield from copies()
    yield from moves()
