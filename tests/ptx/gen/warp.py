"""Operations across a warp: shfl, vote, match, redux."""

from .file import File, listing, signed

M32 = 0xFFFFFFFF


def shuffle(mode, lane, b, c):
    """The lane read from, and whether it is in range."""
    b, cval, seg = b & 31, c & 31, (c >> 8) & 31
    top = (lane & seg) | (cval & ~seg & 31)
    bottom = lane & seg
    if mode == "up":
        j, ok = lane - b, lane - b >= top
    elif mode == "down":
        j, ok = lane + b, lane + b <= top
    elif mode == "bfly":
        j, ok = lane ^ b, lane ^ b <= top
    else:
        j = bottom | (b & ~seg & 31)
        ok = j <= top
    return (j if ok else lane), int(ok)


def shuffles():
    f = File("warp/shfl", "shfl.sync: four modes, clamps and segments of every width, an index of its own per lane.")
    data = [100 + 7 * i for i in range(32)]
    for mode in ("up", "down", "bfly", "idx"):
        f.entry(f"""
.visible .entry {mode}(.param .u64 p_a, .param .u64 p_b, .param .u32 p_c, .param .u64 p_d, .param .u64 p_p)
{{
    .reg .u32 i, a, b, c, d, r;
    .reg .u64 pa, pb, pd, pp;
    .reg .pred p;
    ld.param.u64 pa, [p_a];
    ld.param.u64 pb, [p_b];
    ld.param.u32 c, [p_c];
    ld.param.u64 pd, [p_d];
    ld.param.u64 pp, [p_p];
    mov.u32 i, %laneid;
    mad.wide.u32 pa, i, 4, pa;
    mad.wide.u32 pb, i, 4, pb;
    mad.wide.u32 pd, i, 4, pd;
    mad.wide.u32 pp, i, 4, pp;
    ld.global.u32 a, [pa];
    ld.global.u32 b, [pb];
    shfl.sync.{mode}.b32 d|p, a, b, c, 0xffffffff;
    selp.u32 r, 1, 0, p;
    st.global.u32 [pd], d;
    st.global.u32 [pp], r;
    ret;
}}""")
        full = 0 if mode == "up" else 31
        runs = [("by-1", [1] * 32, full), ("by-16", [16] * 32, full), ("by-31", [31] * 32, full), ("by-0", [0] * 32, full),
                ("wraps-at-32", [33] * 32, full), ("width-8", [3] * 32, full | (32 - 8) << 8), ("width-2", [1] * 32, full | 30 << 8),
                ("width-16", [9] * 32, full | 16 << 8), ("clamp-20", [2] * 32, 20)]
        if mode == "idx":
            runs += [("per-lane", [(5 * i + 3) % 32 for i in range(32)], 31), ("reverse", [31 - i for i in range(32)], 31)]
        if mode == "bfly":
            runs += [("reverse", [31] * 32, 31)]
        for name, b, c in runs:
            got = [shuffle(mode, lane, b[lane], c) for lane in range(32)]
            f.run(name, mode, [f"in:{listing('u32', data)}", f"in:{listing('u32', b)}", f"u32:0x{c:x}", "out:u32:32", "out:u32:32"],
                  [f"3 {listing('u32', [data[j] for j, _ in got])}", f"4 {listing('u32', [p for _, p in got])}"])
    f.entry("""
// Only the named lanes take part; the others are elsewhere.
.visible .entry partial(.param .u64 p_d)
{
    .reg .u32 i, d;
    .reg .u64 pd;
    .reg .pred odd;
    ld.param.u64 pd, [p_d];
    mov.u32 i, %laneid;
    mad.wide.u32 pd, i, 4, pd;
    and.b32 d, i, 1;
    setp.eq.u32 odd, d, 1;
    @odd bra odds;
    shfl.sync.bfly.b32 d, i, 2, 31, 0x55555555;
    bra join;
odds:
    shfl.sync.idx.b32 d, i, 31, 31, 0xaaaaaaaa;
join:
    st.global.u32 [pd], d;
    ret;
}""")
    f.run("halves", "partial", ["out:u32:32"], [f"0 {listing('u32', [31 if i & 1 else i ^ 2 for i in range(32)])}"])
    yield f


def votes():
    f = File("warp/vote", "vote.sync all, any, uni and ballot; activemask in a whole warp; and votes inside a branch.")
    f.entry("""
.visible .entry vote(.param .u64 p_a, .param .u64 p_ballot, .param .u64 p_bits)
{
    .reg .u32 i, a, m, r, t;
    .reg .u64 pa, pm, pr;
    .reg .pred p, q;
    ld.param.u64 pa, [p_a];
    ld.param.u64 pm, [p_ballot];
    ld.param.u64 pr, [p_bits];
    mov.u32 i, %laneid;
    mad.wide.u32 pa, i, 4, pa;
    mad.wide.u32 pm, i, 4, pm;
    mad.wide.u32 pr, i, 4, pr;
    ld.global.u32 a, [pa];
    setp.ne.u32 p, a, 0;
    vote.sync.ballot.b32 m, p, 0xffffffff;
    vote.sync.all.pred q, p, 0xffffffff;
    selp.u32 r, 1, 0, q;
    vote.sync.any.pred q, p, 0xffffffff;
    selp.u32 t, 2, 0, q;
    or.b32 r, r, t;
    vote.sync.uni.pred q, p, 0xffffffff;
    selp.u32 t, 4, 0, q;
    or.b32 r, r, t;
    vote.sync.all.pred q, !p, 0xffffffff;
    selp.u32 t, 8, 0, q;
    or.b32 r, r, t;
    st.global.u32 [pm], m;
    st.global.u32 [pr], r;
    ret;
}""")
    for name, bits in (("none", 0), ("all", M32), ("one", 1 << 17), ("all-but-one", M32 ^ 1), ("mixed", 0xDEADBEEF)):
        lanes = [bits >> i & 1 for i in range(32)]
        r = int(bits == M32) | int(bits != 0) << 1 | int(bits in (0, M32)) << 2 | int(bits == 0) << 3
        f.run(name, "vote", [f"in:{listing('u32', lanes)}", "out:u32:32", "out:u32:32"],
              [f"1 {listing('u32', [bits] * 32)}", f"2 {listing('u32', [r] * 32)}"])
    f.entry("""
.visible .entry branches(.param .u64 p_d)
{
    .reg .u32 i, d, m;
    .reg .u64 pd;
    .reg .pred low, third;
    ld.param.u64 pd, [p_d];
    mov.u32 i, %laneid;
    mad.wide.u32 pd, i, 4, pd;
    rem.u32 m, i, 3;
    setp.eq.u32 third, m, 0;
    setp.lt.u32 low, i, 16;
    @low bra lows;
    vote.sync.ballot.b32 d, third, 0xffff0000;
    bra join;
lows:
    vote.sync.ballot.b32 d, !third, 0x0000ffff;
join:
    bar.warp.sync 0xffffffff;
    st.global.u32 [pd], d;
    ret;
}""")
    high = sum(1 << i for i in range(16, 32) if i % 3 == 0)
    low = sum(1 << i for i in range(16) if i % 3)
    f.run("halves", "branches", ["out:u32:32"], [f"0 {listing('u32', [low] * 16 + [high] * 16)}"])
    f.entry("""
.visible .entry active(.param .u64 p_d)
{
    .reg .u32 i, d;
    .reg .u64 pd;
    ld.param.u64 pd, [p_d];
    mov.u32 i, %tid.x;
    mad.wide.u32 pd, i, 4, pd;
    activemask.b32 d;
    st.global.u32 [pd], d;
    ret;
}""")
    f.run("whole-warp", "active", ["out:u32:32"], [f"0 {listing('u32', [M32] * 32)}"])
    f.run("short-warp", "active", ["out:u32:40"], [f"0 {listing('u32', [M32] * 32 + [0xFF] * 8)}"], block=40)
    f.entry("""
// Exactly one lane is elected, and everybody is told the same one.
.visible .entry elect(.param .u64 p_count, .param .u64 p_agree)
{
    .reg .u32 i, leader, first, one, m, me;
    .reg .u64 pc, pa;
    .reg .pred chosen, same;
    ld.param.u64 pc, [p_count];
    ld.param.u64 pa, [p_agree];
    mov.u32 i, %laneid;
    elect.sync leader|chosen, 0xffffffff;
    vote.sync.ballot.b32 m, chosen, 0xffffffff;
    popc.b32 one, m;
    mad.wide.u32 pc, i, 4, pc;
    mad.wide.u32 pa, i, 4, pa;
    st.global.u32 [pc], one;
    bfind.u32 first, m;
    setp.eq.u32 same, first, leader;
    selp.u32 me, 1, 0, same;
    st.global.u32 [pa], me;
    ret;
}""")
    f.run("one", "elect", ["out:u32:32", "out:u32:32"], ["0 u32:[1*32]", "1 u32:[1*32]"])
    yield f


def matches():
    f = File("warp/match", "match.any and match.all on 32- and 64-bit values.")
    for w in (32, 64):
        f.entry(f"""
.visible .entry match_b{w}(.param .u64 p_a, .param .u64 p_any, .param .u64 p_all, .param .u64 p_p)
{{
    .reg .u32 i, m, n, r;
    .reg .b{w} a;
    .reg .u64 pa, pm, pn, pp;
    .reg .pred p;
    ld.param.u64 pa, [p_a];
    ld.param.u64 pm, [p_any];
    ld.param.u64 pn, [p_all];
    ld.param.u64 pp, [p_p];
    mov.u32 i, %laneid;
    mad.wide.u32 pa, i, {w // 8}, pa;
    mad.wide.u32 pm, i, 4, pm;
    mad.wide.u32 pn, i, 4, pn;
    mad.wide.u32 pp, i, 4, pp;
    ld.global.b{w} a, [pa];
    match.any.sync.b{w} m, a, 0xffffffff;
    match.all.sync.b{w} n|p, a, 0xffffffff;
    selp.u32 r, 1, 0, p;
    st.global.u32 [pm], m;
    st.global.u32 [pn], n;
    st.global.u32 [pp], r;
    ret;
}}""")
        high = 1 << (w - 1)
        for name, values in (("same", [high | 5] * 32), ("distinct", list(range(32))), ("groups", [high | (i % 5) for i in range(32)]),
                             ("one-differs", [7] * 31 + [high | 7])):
            any_ = [sum(1 << j for j in range(32) if values[j] == values[i]) for i in range(32)]
            same = len(set(values)) == 1
            f.run(name, f"match_b{w}", [f"in:{listing(f'b{w}', values)}", "out:u32:32", "out:u32:32", "out:u32:32"],
                  [f"1 {listing('u32', any_)}", f"2 {listing('u32', [M32 if same else 0] * 32)}", f"3 {listing('u32', [int(same)] * 32)}"])
    yield f


def reductions():
    f = File("warp/redux", "redux.sync: every operation over the whole warp and over part of it.")
    ops = {"add.u32": sum, "add.s32": sum, "min.u32": min, "max.u32": max, "min.s32": min, "max.s32": max}
    def fold(op, xs):
        if op in ops:
            return ops[op](signed(x, 32) if op.endswith("s32") else x for x in xs) & M32
        r = xs[0]
        for x in xs[1:]:
            r = r & x if op == "and.b32" else r | x if op == "or.b32" else r ^ x
        return r
    values = {"ordinary": [(i * 2654435761) & M32 for i in range(32)], "signs": [(i - 16) & M32 for i in range(32)],
              "bits": [(M32 ^ (1 << i)) for i in range(32)]}
    for op in (*ops, "and.b32", "or.b32", "xor.b32"):
        name = op.replace(".", "_")
        f.entry(f"""
.visible .entry {name}(.param .u64 p_a, .param .u64 p_d, .param .u64 p_e)
{{
    .reg .u32 i, a, d, e;
    .reg .u64 pa, pd, pe;
    .reg .pred low;
    ld.param.u64 pa, [p_a];
    ld.param.u64 pd, [p_d];
    ld.param.u64 pe, [p_e];
    mov.u32 i, %laneid;
    mad.wide.u32 pa, i, 4, pa;
    mad.wide.u32 pd, i, 4, pd;
    mad.wide.u32 pe, i, 4, pe;
    ld.global.u32 a, [pa];
    redux.sync.{op} d, a, 0xffffffff;
    setp.lt.u32 low, i, 5;
    mov.u32 e, 0;
    @low redux.sync.{op} e, a, 0x1f;
    st.global.u32 [pd], d;
    st.global.u32 [pe], e;
    ret;
}}""")
        for theme, xs in values.items():
            f.run(theme, name, [f"in:{listing('u32', xs)}", "out:u32:32", "out:u32:32"],
                  [f"1 {listing('u32', [fold(op, xs)] * 32)}", f"2 {listing('u32', [fold(op, xs[:5])] * 5 + [0] * 27)}"])
    yield f


def files():
    yield from shuffles()
    yield from votes()
    yield from matches()
    yield from reductions()
