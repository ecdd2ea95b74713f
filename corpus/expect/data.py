"""Input data and the sums that many kernels share."""


def spread(count, low, high, step=7, start=0):
    """Integers from low to high that look scattered: a walk around the interval with a step of its own."""
    width = high - low + 1
    while width % step == 0:
        step += 2
    return [low + (start + i * step + i // width) % width for i in range(count)]


def product(a, b, m, n, k, c=0):
    """C[m][n] = A[m][k] * B[n][k]^T + c, all flat and row-major."""
    return [c + sum(a[i * k + l] * b[j * k + l] for l in range(k)) for i in range(m) for j in range(n)]


def transposed(values, rows, columns):
    return [values[i * columns + j] for j in range(columns) for i in range(rows)]
