// Programmatic dependent launch: griddepcontrol, alone in a launch of its own.
// build: -arch=sm_90

extern "C" __global__ void first(const int *in, int *out) {
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    out[threadIdx.x] = in[threadIdx.x] + 1;
}

extern "C" __global__ void second(const int *in, int *out) {
    int own = threadIdx.x * 2;
    cudaGridDependencySynchronize();
    out[threadIdx.x] = in[threadIdx.x] * own;
    cudaTriggerProgrammaticLaunchCompletion();
}
