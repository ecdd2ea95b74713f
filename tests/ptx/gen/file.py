"""A test file: kernels, and the runs that exercise them.

`File.map` writes the commonest kernel, one instruction applied elementwise by one block with a
thread per element; `File.entry` takes a whole kernel. Runs are written next to the kernel they launch.
"""

from fractions import Fraction

from . import floats
from .floats import BF16, F16, F32, F64, NAN


class Type:
    """How a value travels: register type, memory type, bytes, and what the directives call an element."""

    def __init__(self, reg, mem, size, element, lanes=1, fmt=None):
        self.reg, self.mem, self.size, self.element, self.lanes, self.fmt = reg, mem, size, element, lanes, fmt


TYPES = {
    **{t + str(w): Type(t + str(w), t + str(w), w // 8, t + str(w)) for t in "usb" for w in (16, 32, 64)},
    "u8": Type("u16", "u8", 1, "u8"),
    "s8": Type("s16", "s8", 1, "s8"),
    "f32": Type("f32", "f32", 4, "f32", fmt=F32),
    "f64": Type("f64", "f64", 8, "f64", fmt=F64),
    "f16": Type("b16", "b16", 2, "f16", fmt=F16),
    "bf16": Type("b16", "b16", 2, "bf16", fmt=BF16),
    "f16x2": Type("b32", "b32", 4, "f16", 2, fmt=F16),
    "bf16x2": Type("b32", "b32", 4, "bf16", 2, fmt=BF16),
    "u16x2": Type("b32", "b32", 4, "u16", 2),
    "s16x2": Type("b32", "b32", 4, "s16", 2),
    "b8x2": Type("b16", "b16", 2, "u8", 2),
    "b8x4": Type("b32", "b32", 4, "u8", 4),
    "s8x4": Type("b32", "b32", 4, "s8", 4),
    "s16x2d": Type("b32", "b32", 4, "s16", 2),
}
FORMATS = {"f32": F32, "f64": F64, "f16": F16, "bf16": BF16}
LETTERS = "abce"


def signed(x, width):
    x &= (1 << width) - 1
    return x - (1 << width) if x >> (width - 1) else x


def number(element, x):
    """One element of a list: an int for integers, a bit pattern (or NAN) for floats."""
    if x == NAN:
        return "nan"
    if element in FORMATS:
        f = FORMATS[element]
        if f.is_inf(x):
            return "-inf" if f.negative(x) else "inf"
        if f.is_zero(x):
            return "-0.0" if f.negative(x) else "0"
        if f.is_finite(x):
            v = f.value(x)
            if v.denominator in (1, 2, 4, 8, 16) and abs(v) < 100000:
                text = str(float(v))
                return text[:-2] if text.endswith(".0") else text
        return f"0x{x:0{f.width // 4}x}"
    width = int(element[1:])
    if element[0] == "s":
        return str(signed(x, width))
    x &= (1 << width) - 1
    return str(x) if x < 4096 else f"0x{x:0{width // 4}x}"


def listing(element, values):
    """`u32:[1,2,0*4,7..20]` from values."""
    texts = [number(element, v) for v in values]
    out, i = [], 0
    while i < len(texts):
        j = i
        while j < len(texts) and texts[j] == texts[i]:
            j += 1
        if j - i >= 4:
            out.append(f"{texts[i]}*{j - i}")
            i = j
            continue
        j = i + 1
        while j < len(texts) and all(t.isdigit() for t in texts[i : j + 1]) and int(texts[j]) == int(texts[j - 1]) + 1:
            j += 1
        if j - i >= 6:
            out.append(f"{texts[i]}..{int(texts[j - 1]) + 1}")
            i = j
            continue
        out.append(texts[i])
        i += 1
    return f"{element}:[{','.join(out)}]"


class File:
    """One `.ptx` test file under construction."""

    def __init__(self, path, about, target="sm_90", version="8.0"):
        self.path, self.about, self.target, self.version = path, about, target, version
        self.blocks = []
        self.maps = {}
        self.names = set()
        self.cases = 0

    # -- kernels ------------------------------------------------------------------------------
    def entry(self, text):
        """Appends PTX as it stands."""
        self.blocks.append(text.strip("\n"))

    def map(self, name, ins, outs, body, regs=()):
        """A kernel that loads a, b, c, e; runs `body`; stores d (or d, d1, ...)."""
        ins = [TYPES[t] for t in ins]
        outs = [TYPES[t] for t in outs]
        dst = ["d"] + [f"d{i}" for i in range(1, len(outs))]
        params = [f"p_{LETTERS[i]}" for i in range(len(ins))] + [f"p_{d}" for d in dst]
        lines = [f".visible .entry {name}({', '.join('.param .u64 ' + p for p in params)})", "{"]
        lines.append("    .reg .u32 i;")
        lines.append("    .reg .u64 at, offset;")
        for i, t in enumerate(ins):
            lines.append(f"    .reg .{t.reg} {LETTERS[i]};")
        for d, t in zip(dst, outs):
            lines.append(f"    .reg .{t.reg} {d};")
        lines += [f"    .reg {r};" for r in regs]
        lines.append("    mov.u32 i, %tid.x;")
        for i, t in enumerate(ins):
            lines.append(f"    mul.wide.u32 offset, i, {t.size};")
            lines.append(f"    ld.param.u64 at, [p_{LETTERS[i]}];")
            lines.append("    add.u64 at, at, offset;")
            lines.append(f"    ld.global.{t.mem} {LETTERS[i]}, [at];")
        lines += ["    " + line.strip() for line in body.strip().split("\n")]
        for d, t in zip(dst, outs):
            lines.append(f"    mul.wide.u32 offset, i, {t.size};")
            lines.append(f"    ld.param.u64 at, [p_{d}];")
            lines.append("    add.u64 at, at, offset;")
            lines.append(f"    st.global.{t.mem} [at], {d};")
        lines += ["    ret;", "}"]
        self.blocks.append("\n".join(lines))
        self.maps[name] = (ins, outs)
        return name

    # -- runs ---------------------------------------------------------------------------------
    def case(self, entry, name, ins, outs, tolerance=""):
        """A run of a `map` kernel; `ins` and `outs` are lists of element lists."""
        in_types, out_types = self.maps[entry]
        threads = len(ins[0]) // in_types[0].lanes
        args = [f"in:{listing(t.element, v)}" for t, v in zip(in_types, ins)]
        expects = []
        for i, (t, v) in enumerate(zip(out_types, outs)):
            assert len(v) == threads * t.lanes, (self.path, entry, name, len(v), threads)
            args.append(f"out:{t.element}:{len(v)}")
            expects.append(f"{len(ins) + i} {listing(t.element, v)}{' ' + tolerance if tolerance else ''}")
        self.run(name, entry, args, expects, block=threads)

    def run(self, name, entry, args, expects, block=32, grid=1, **more):
        """A run of any kernel, with directives spelled out."""
        assert (entry, name) not in self.names, (self.path, entry, name)
        self.names.add((entry, name))
        why = more.pop("gpu", None)
        finds = more.pop("finds", ())
        flags = more.pop("flags", "")
        buffers = more.pop("buffers", ())
        extra = "".join(f" {k}={triple(v) if k in ('cluster',) else v}" for k, v in more.items())
        label = f"{entry}-{name}" if not name.startswith(entry) else name
        lines = [f"// heist: run {label} entry={entry} grid={triple(grid)} block={triple(block)}{extra}{flags}"]
        if why:
            lines[0] += f' gpu=no "{why}"'
        lines += [f"// heist: buffer {b}" for b in buffers]
        lines += [f"// heist: arg {a}" for a in args]
        lines += [f"// heist: expect {e}" for e in expects]
        lines += [f"// heist: finds {c}" for c in finds]
        self.blocks.append("\n".join(lines))
        self.cases += 1

    def text(self):
        head = "\n".join("// " + line for line in self.about.strip().split("\n"))
        return (
            f"{head}\n// Generated by tests/ptx/make.py.\n"
            f".version {self.version}\n.target {self.target}\n.address_size 64\n\n" + "\n\n".join(self.blocks) + "\n"
        )


def triple(v):
    v = (v,) if isinstance(v, int) else tuple(v)
    return ",".join(str(x) for x in (v + (1, 1, 1))[:3])


def pairs(xs, ys):
    """Every x with every y, as two lists."""
    return [x for x in xs for _ in ys], [y for _ in xs for y in ys]


__all__ = ["File", "TYPES", "FORMATS", "Fraction", "floats", "listing", "number", "pairs", "signed", "triple"]
