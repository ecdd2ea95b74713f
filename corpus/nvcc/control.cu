// Control flow: a dense switch, nested loops with break and continue, divergence, dynamically indexed local arrays, early exit.
// build: -arch=sm_80
// build: -arch=sm_80 -O1 -Xcicc -O0 => O0

extern "C" __global__ void dense_switch(const int *op, const int *a, int *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    int v = a[i], r;
    switch (op[i]) {
    case 0: r = v + 1; break;
    case 1: r = v * v; break;
    case 2: r = v ^ 0x55; break;
    case 3: r = __popc(v) * 7; break;
    case 4: r = -v; break;
    case 5: r = v << 3; break;
    case 6: r = v / 3; break;
    case 7: r = v % 5; // falls into 8
    case 8: r = v | 1; break;
    case 9: r = ~v; break;
    default: r = -1;
    }
    out[i] = r;
}

extern "C" __global__ void local_array(const int *in, int *out, int n) {
    int window[16];
    int t = threadIdx.x;
    for (int i = 0; i < 16; i++) window[i] = in[(t + i) % n];
    for (int i = 0; i < n; i++) {                         // insertion by value, indices known only at run time
        int at = (in[i] + t) & 15;
        window[at] = window[(at + 5) & 15] + i;
    }
    int sum = 0;
    for (int i = 0; i < 16; i++) sum = sum * 3 + window[(i * t) & 15];
    out[t] = sum;
}

extern "C" __global__ void loops(const int *limit, int *out) {
    int t = threadIdx.x, found = 0;
    for (int i = 2; i < limit[t]; i++) {
        bool prime = true;
        for (int d = 2; d * d <= i; d++) {
            if (i % d == 0) {
                prime = false;
                break;
            }
        }
        if (!prime) continue;
        found++;
        if (found > 20) return;
    }
    out[t] = found;
}
