// Texture and surface objects: 1D to 3D, arrays, mip levels, gradients, gather, cube maps, typed surface loads and stores.
// build: -arch=sm_80
extern "C" __global__ void sample(cudaTextureObject_t texture, cudaTextureObject_t layers, float4 *out, int width) {
    int x = threadIdx.x, y = blockIdx.x;
    float u = (x + 0.5f) / width, v = y * 0.25f;
    float4 a = tex2D<float4>(texture, u, v);
    float4 b = tex2DLod<float4>(texture, u, v, 1.0f);
    float4 c = tex2DGrad<float4>(texture, u, v, make_float2(0.1f, 0.0f), make_float2(0.0f, 0.1f));
    float4 d = tex2Dgather<float4>(texture, u, v, 2);
    float4 e = tex2DLayered<float4>(layers, u, v, 3);
    out[y * width + x] = make_float4(a.x + b.x, c.y, d.z, e.w);
}

extern "C" __global__ void sample_others(cudaTextureObject_t line, cudaTextureObject_t volume, cudaTextureObject_t cube, float *out) {
    int t = threadIdx.x;
    out[t] = tex1Dfetch<float>(line, t) + tex1D<float>(line, t * 0.5f) + tex3D<float>(volume, t, 1.0f, 2.0f) +
             texCubemap<float>(cube, 1.0f, 0.5f, t * 0.1f) + (float)tex1Dfetch<unsigned char>(line, t) + (float)tex1Dfetch<int>(line, t);
}

extern "C" __global__ void surfaces(cudaSurfaceObject_t from, cudaSurfaceObject_t to, cudaSurfaceObject_t volume) {
    int x = threadIdx.x, y = blockIdx.x;
    uchar4 v;
    surf2Dread(&v, from, x * 4, y, cudaBoundaryModeClamp);
    v.x ^= 0xff;
    surf2Dwrite(v, to, x * 4, y, cudaBoundaryModeZero);
    surf3Dwrite((float)v.y, volume, x * 4, y, 0, cudaBoundaryModeTrap);
    float2 w;
    surf1Dread(&w, from, x * 8);
    surf2DLayeredwrite(w, to, x * 8, y, 2);
}
