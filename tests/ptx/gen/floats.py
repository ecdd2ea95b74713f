"""Binary floating point, exactly.

Every format PTX knows is a `Format`; values are bit patterns (ints). Arithmetic is done on
`fractions.Fraction` and rounded once, so that the expectations in the test files owe nothing to the
floating point of the machine that made them.
"""

from fractions import Fraction
from math import isqrt

NAN = "nan"  # what an expectation says where any NaN will do


class Format:
    """A binary format: width, exponent bits, fraction bits."""

    def __init__(self, name, width, ebits, mbits, finite_only=False):
        self.name, self.width, self.ebits, self.mbits = name, width, ebits, mbits
        self.bias = (1 << (ebits - 1)) - 1
        self.emax = (1 << ebits) - 1
        self.finite_only = finite_only  # e4m3: no infinities, one NaN per sign
        self.sign_bit = 1 << (ebits + mbits)

    # -- classes of patterns ------------------------------------------------------------------
    def parts(self, bits):
        sign = (bits >> (self.ebits + self.mbits)) & 1
        exponent = (bits >> self.mbits) & self.emax
        return sign, exponent, bits & ((1 << self.mbits) - 1)

    def is_nan(self, bits):
        _, e, m = self.parts(bits)
        if self.finite_only:
            return e == self.emax and m == (1 << self.mbits) - 1
        return e == self.emax and m != 0

    def is_inf(self, bits):
        _, e, m = self.parts(bits)
        return not self.finite_only and e == self.emax and m == 0

    def is_finite(self, bits):
        return not self.is_nan(bits) and not self.is_inf(bits)

    def is_subnormal(self, bits):
        _, e, m = self.parts(bits)
        return e == 0 and m != 0

    def is_zero(self, bits):
        return bits & (self.sign_bit - 1) == 0

    def negative(self, bits):
        return bool(bits & self.sign_bit)

    def value(self, bits):
        """The exact value of a finite pattern."""
        s, e, m = self.parts(bits)
        exponent = (e if e else 1) - self.bias - self.mbits
        magnitude = (m + ((1 << self.mbits) if e else 0)) * Fraction(2) ** exponent
        return -magnitude if s else magnitude

    # -- special patterns ---------------------------------------------------------------------
    def inf(self, negative=False):
        assert not self.finite_only
        return (self.sign_bit if negative else 0) | (self.emax << self.mbits)

    def zero(self, negative=False):
        return self.sign_bit if negative else 0

    def nan(self):
        if self.finite_only:
            return self.sign_bit - 1
        return (self.emax << self.mbits) | (1 << (self.mbits - 1))

    def largest(self, negative=False):
        top = self.nan() - 1 if self.finite_only else self.inf() - 1
        return top | (self.sign_bit if negative else 0)

    def smallest_normal(self):
        return 1 << self.mbits

    # -- rounding -----------------------------------------------------------------------------
    def round(self, x, mode="rn", negative_zero=False):
        """Rounds the exact `x`. `negative_zero` is the sign of an exact zero."""
        x = Fraction(x)
        if x == 0:
            return self.zero(negative_zero)
        negative = x < 0
        q = abs(x)
        # exponent of the leading bit
        e = q.numerator.bit_length() - q.denominator.bit_length()
        if Fraction(2) ** e > q:
            e -= 1
        e = max(e, 1 - self.bias)
        scaled = q / Fraction(2) ** (e - self.mbits)
        whole, rest = divmod(scaled.numerator, scaled.denominator)
        rest = Fraction(rest, scaled.denominator)
        if mode == "rn":
            up = rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole & 1)
        elif mode == "rna":
            up = rest >= Fraction(1, 2)
        elif mode == "rz":
            up = False
        elif mode == "rm":
            up = negative and rest > 0
        elif mode == "rp":
            up = not negative and rest > 0
        else:
            raise ValueError(mode)
        whole += up
        if whole >> (self.mbits + 1):
            whole >>= 1
            e += 1
        overflow = self.value(self.largest())
        if whole * Fraction(2) ** (e - self.mbits) > overflow:
            to_inf = mode in ("rn", "rna") or (mode == "rm" and negative) or (mode == "rp" and not negative)
            if to_inf and not self.finite_only:
                return self.inf(negative)
            return self.largest(negative)
        if whole >> self.mbits == 0:
            bits = whole
        else:
            bits = ((e + self.bias) << self.mbits) | (whole & ((1 << self.mbits) - 1))
        return bits | (self.sign_bit if negative else 0)

    def of(self, x):
        """The pattern of a Python number, rounded to nearest; strings name specials."""
        if isinstance(x, str):
            return {
                "nan": self.nan(),
                "snan": (self.emax << self.mbits) | 1,
                "-nan": self.nan() | self.sign_bit,
                "inf": self.emax << self.mbits,
                "-inf": self.sign_bit | (self.emax << self.mbits),
                "0": 0,
                "-0": self.sign_bit,
                "min": 1,
                "-min": self.sign_bit | 1,
                "sub": (1 << self.mbits) - 1,
                "-sub": self.sign_bit | ((1 << self.mbits) - 1),
                "norm": 1 << self.mbits,
                "-norm": self.sign_bit | (1 << self.mbits),
                "max": self.largest(),
                "-max": self.largest(True),
            }[x]
        return self.round(Fraction(x))

    def flush(self, bits):
        return self.zero(self.negative(bits)) if self.is_subnormal(bits) else bits


F16 = Format("f16", 16, 5, 10)
BF16 = Format("bf16", 16, 8, 7)
TF32 = Format("tf32", 19, 8, 10)
F32 = Format("f32", 32, 8, 23)
F64 = Format("f64", 64, 11, 52)
E4M3 = Format("e4m3", 8, 4, 3, finite_only=True)
E5M2 = Format("e5m2", 8, 5, 2)


def fma(f, a, b, c, mode="rn"):
    """a * b + c with one rounding; a pattern, or NAN."""
    if f.is_nan(a) or f.is_nan(b) or f.is_nan(c):
        return NAN
    product_negative = f.negative(a) != f.negative(b)
    if f.is_inf(a) or f.is_inf(b):
        if f.is_zero(a) or f.is_zero(b):
            return NAN
        if f.is_inf(c) and f.negative(c) != product_negative:
            return NAN
        return f.inf(product_negative)
    if f.is_inf(c):
        return c
    exact = f.value(a) * f.value(b) + f.value(c)
    if exact == 0:
        exact_zero_product = f.is_zero(a) or f.is_zero(b)
        if exact_zero_product and f.is_zero(c) and product_negative == f.negative(c):
            return f.zero(product_negative)
        return f.zero(mode == "rm")
    return f.round(exact, mode)


def add(f, a, b, mode="rn"):
    return fma(f, a, f.of(1), b, mode)


def sub(f, a, b, mode="rn"):
    return NAN if f.is_nan(b) else add(f, a, b ^ f.sign_bit, mode)


def mul(f, a, b, mode="rn"):
    if f.is_nan(a) or f.is_nan(b):
        return NAN
    negative = f.negative(a) != f.negative(b)
    if f.is_inf(a) or f.is_inf(b):
        return NAN if f.is_zero(a) or f.is_zero(b) else f.inf(negative)
    return f.round(f.value(a) * f.value(b), mode, negative)


def div(f, a, b, mode="rn"):
    if f.is_nan(a) or f.is_nan(b):
        return NAN
    negative = f.negative(a) != f.negative(b)
    if f.is_inf(a):
        return NAN if f.is_inf(b) else f.inf(negative)
    if f.is_inf(b):
        return f.zero(negative)
    if f.is_zero(b):
        return NAN if f.is_zero(a) else f.inf(negative)
    return f.round(f.value(a) / f.value(b), mode, negative)


def rcp(f, a, mode="rn"):
    return div(f, f.of(1), a, mode)


def sqrt(f, a, mode="rn"):
    if f.is_nan(a):
        return NAN
    if f.is_zero(a):
        return a
    if f.negative(a):
        return NAN
    if f.is_inf(a):
        return a
    return round_sqrt(f, f.value(a), mode)


def round_sqrt(f, x, mode="rn"):
    """The correctly rounded root of an exact positive `x`: a truncated root with many guard bits, made odd when inexact."""
    shift = 700
    scaled = x * Fraction(4) ** shift
    root = isqrt(scaled.numerator // scaled.denominator)
    inexact = root * root != scaled
    return f.round(Fraction(root * 2 + (1 if inexact else 0), 2) / Fraction(2) ** shift, mode)


def saturate(f, bits):
    """`.sat`: clamps to [0, 1]; NaN becomes +0."""
    if bits == NAN or f.is_nan(bits) or f.negative(bits) or f.is_zero(bits):
        return 0
    one = f.of(1)
    return one if f.is_inf(bits) or f.value(bits) > 1 else bits


def relu(f, bits):
    """`.relu`: negative becomes +0, NaN stays NaN."""
    if bits == NAN or f.is_nan(bits):
        return NAN
    return 0 if f.negative(bits) else bits


def smaller(f, a, b):
    """Whether a orders before b in min and max, where -0 is less than +0. No NaNs."""
    def key(x):
        magnitude = x & (f.sign_bit - 1)
        return -magnitude - 1 if f.negative(x) else magnitude
    return key(a) < key(b)


def minimum(f, a, b, pick_max=False, nan=False, xorsign=False):
    if nan and (f.is_nan(a) or f.is_nan(b)):
        return NAN
    if xorsign:
        sign = (a ^ b) & f.sign_bit
        a, b = a & (f.sign_bit - 1), b & (f.sign_bit - 1)
    if f.is_nan(a) and f.is_nan(b):
        return NAN
    if f.is_nan(a) or f.is_nan(b):
        r = b if f.is_nan(a) else a
    else:
        r = (b if smaller(f, a, b) else a) if pick_max else (a if smaller(f, a, b) else b)
    return r | sign if xorsign else r


def compare(f, op, a, b):
    """A PTX float comparison: the ordered six, their unordered twins, num and nan."""
    unordered = f.is_nan(a) or f.is_nan(b)
    if op == "num":
        return not unordered
    if op == "nan":
        return unordered
    if op in ("equ", "neu", "ltu", "leu", "gtu", "geu"):
        if unordered:
            return True
        op = op[:2]
    if unordered:
        return False
    def key(x):
        if f.is_inf(x):
            return Fraction(10) ** 400 * (-1 if f.negative(x) else 1)
        return f.value(x)
    x, y = key(a), key(b)
    return {"eq": x == y, "ne": x != y, "lt": x < y, "le": x <= y, "gt": x > y, "ge": x >= y}[op]


def convert(src, dst, bits, mode="rn"):
    """Float to float."""
    if src.is_nan(bits):
        return NAN
    if src.is_inf(bits):
        return dst.inf(src.negative(bits))
    return dst.round(src.value(bits), mode, src.negative(bits))


def integral(x, mode):
    """Rounds an exact number to an integer the way .rni/.rzi/.rmi/.rpi do."""
    x = Fraction(x)
    floor = x.numerator // x.denominator
    rest = x - floor
    if mode == "rmi" or rest == 0:
        return floor
    if mode == "rpi":
        return floor + 1
    if mode == "rzi":
        return floor if x > 0 else floor + 1
    if rest == Fraction(1, 2):
        return floor if floor % 2 == 0 else floor + 1
    return floor if rest < Fraction(1, 2) else floor + 1
