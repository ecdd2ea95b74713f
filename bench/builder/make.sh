#!/usr/bin/env bash
# Compiles the CUDA twins of the builder's examples to PTX with nvcc -O3.
# Usage: bench/builder/make.sh [path of nvcc]
set -eu
cd "$(dirname "$0")"
nvcc=${1:-nvcc}
for twin in saxpy reduction tiled_gemm mma_gemm; do
    "$nvcc" -std=c++17 -O3 -arch=sm_90 -ptx "$twin.cu" -o "nvcc/$twin.ptx"
done
