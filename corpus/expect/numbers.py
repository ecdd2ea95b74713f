"""Number formats: rounding a real number to them in every mode, and writing a value so that it reads back the same."""

import math
from fractions import Fraction

# type: (bits of precision, smallest exponent of a normal number, largest exponent)
FORMATS = {
    "f64": (53, -1022, 1023),
    "f32": (24, -126, 127),
    "f16": (11, -14, 15),
    "bf16": (8, -126, 127),
    "tf32": (11, -126, 127),
    "e5m2": (3, -14, 15),
}


def rounded(value, ty="f32", mode="rn"):
    """`value`, a float or a fraction, in the format `ty`; modes are rn, rz, ru and rd. Overflow gives infinity in rn."""
    if isinstance(value, float) and not math.isfinite(value):
        return value
    exact = Fraction(value)
    if exact == 0:
        return value if isinstance(value, float) else 0.0
    precision, low, high = FORMATS[ty]
    exponent = max(math.floor(math.log2(abs(exact))) - 1, low)
    while abs(exact) >= Fraction(2) ** (exponent + 1):
        exponent += 1
    exponent = max(exponent, low)
    step = Fraction(2) ** (exponent - precision + 1)
    down = math.floor(exact / step)
    rest = exact / step - down
    if mode == "rd":
        up = False
    elif mode == "ru":
        up = rest > 0
    elif mode == "rz":
        up = rest > 0 and exact < 0
    else:
        up = rest > Fraction(1, 2) or (rest == Fraction(1, 2) and down % 2 == 1)
    result = (down + up) * step
    if abs(result) >= Fraction(2) ** (high + 1):
        return math.copysign(math.inf, exact)
    return math.copysign(float(result), exact) if result == 0 else float(result)


def fma(a, b, c, ty="f32"):
    return rounded(Fraction(a) * Fraction(b) + Fraction(c), ty)


def to_e4m3(value):
    """The byte of the nearest e4m3 value, saturated to 448."""
    sign = 0x80 if math.copysign(1, value) < 0 else 0
    if math.isnan(value):
        return 0x7F | sign
    magnitude = abs(Fraction(value)) if math.isfinite(value) else Fraction(448)
    if magnitude >= 448:
        return sign | 0x7E
    exponent = -6
    while magnitude >= Fraction(2) ** (exponent + 1):
        exponent += 1
    units = magnitude / (Fraction(2) ** (exponent - 3))
    whole = math.floor(units)
    rest = units - whole
    whole += rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2 == 1)
    if whole == 16:
        exponent, whole = exponent + 1, 8
    if whole < 8:
        return sign | whole  # subnormal
    return sign | (exponent + 7) << 3 | (whole - 8)


def from_e4m3(byte):
    sign = -1.0 if byte & 0x80 else 1.0
    exponent, mantissa = byte >> 3 & 15, byte & 7
    if exponent == 15 and mantissa == 7:
        return math.nan
    return sign * (mantissa * 2.0**-9 if exponent == 0 else (8 + mantissa) * 2.0 ** (exponent - 10))


def to_e5m2(value):
    """The byte of the nearest e5m2 value, saturated to 57344."""
    sign = 0x80 if math.copysign(1, value) < 0 else 0
    if math.isnan(value):
        return 0x7F | sign
    near = abs(rounded(float(value), "e5m2"))
    if near >= 57344:
        return sign | 0x7B
    if near < 2.0**-14:
        return sign | int(near * 2**16)
    exponent = math.floor(math.log2(near))
    return sign | (exponent + 15) << 2 | int(near / 2.0 ** (exponent - 2)) - 4


def signed(value, bits=32):
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def unsigned(value, bits=32):
    return value & ((1 << bits) - 1)


DIGITS = {"f64": 17, "f32": 9, "f16": 5, "bf16": 4}


def spelled(value, ty):
    if not ty.startswith(("f", "bf")):
        return str(int(value))
    if isinstance(value, int):
        return str(value)
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if value == 0:
        return "-0.0" if math.copysign(1, value) < 0 else "0"
    if value == int(value) and abs(value) < 10**6:
        return str(int(value))
    for digits in range(1, DIGITS[ty] + 1):
        text = f"{value:.{digits}g}"
        if float(text) == value:
            return text
    return f"{value:.{DIGITS[ty]}g}"


def listed(values, ty):
    """A list as the directives write it: equal neighbours as `x*n`, counting integers as `a..b`."""
    parts, i = [], 0
    texts = [spelled(v, ty) for v in values]
    while i < len(values):
        same = i
        while same < len(values) and texts[same] == texts[i]:
            same += 1
        count = i + 1
        while count < len(values) and texts[i].lstrip("-").isdigit() and texts[count] == str(int(texts[i]) + count - i):
            count += 1
        if same - i >= 4:
            parts.append(f"{texts[i]}*{same - i}")
            i = same
        elif count - i >= 5:
            parts.append(f"{texts[i]}..{int(texts[i]) + count - i}")
            i = count
        else:
            parts.append(texts[i])
            i += 1
    return f"[{','.join(parts)}]"
