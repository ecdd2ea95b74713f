// The twin of crates/builder/examples/01_saxpy.rs.
extern "C" __global__ void __launch_bounds__(256) saxpy(const float *x, float *y, float a, unsigned n)
{
    unsigned i = threadIdx.x + blockIdx.x * 256;
    if (i < n)
        y[i] = fmaf(x[i], a, y[i]);
}
