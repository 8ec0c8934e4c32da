// kernel_0<<<floordiv(m + 31, 32)*floordiv(n + 31, 32), 32 * 8>>> (12 blocks now): f32[n, m] -> f32[m, n]

__device__ __forceinline__ long long lw_size_divide(long long a, long long b) {
    return b == 0 ? 0 : a / b - (a % b != 0 && (a % b ^ b) < 0);
}

extern "C" __global__ void __launch_bounds__(256) kernel_0(
        const float* __restrict__ x0,
        float* y0,
        long long size_n,
        long long size_m,
        long long* error) {
    const long long n0 = size_n + 31ll;
    const long long n1 = lw_size_divide(n0, 32ll);
    const int n2 = (int)(n1);
    const int n11 = (int)(size_n);
    const int n12 = (int)(size_m);
    const int i3 = (int)((unsigned int)(int)blockIdx.x % (unsigned int)n2);
    const int i4 = (int)((unsigned int)(int)blockIdx.x / (unsigned int)n2);
    const int at5 = i4 * 32;
    const int at6 = i3 * 32;
    __shared__ float tile7[32][33];
    #pragma unroll
    for (int k8 = (int)threadIdx.y; k8 < 32; k8 += 8) {
        const int i9 = at6 + k8;
        const int i10 = at5 + (int)threadIdx.x;
        if (i9 < n11 && i10 < n12) {
            tile7[k8][threadIdx.x] = x0[i10 + i9 * n12];
        }
    }
    __syncthreads();
    #pragma unroll
    for (int k13 = (int)threadIdx.y; k13 < 32; k13 += 8) {
        const int i14 = at5 + k13;
        const int i15 = at6 + (int)threadIdx.x;
        if (i14 < n12 && i15 < n11) {
            const float v16 = tile7[threadIdx.x][k13];
            const float v17 = v16 * 2.0f;
            y0[i15 + i14 * n11] = v17;
        }
    }
}
