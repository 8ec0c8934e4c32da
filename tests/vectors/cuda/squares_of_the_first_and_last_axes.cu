// kernel_0<<<floordiv(k + 63, 64)*floordiv(n + 63, 64)*m, 32 * 16>>> (168000 blocks now): f32[n, m, k] -> f32[k, m, n]

__device__ __forceinline__ long long lw_size_divide(long long a, long long b) {
    return b == 0 ? 0 : a / b - (a % b != 0 && (a % b ^ b) < 0);
}

template <class T, int N> struct alignas(sizeof(T) * N) lw_pack { T at[N]; };

extern "C" __global__ void __launch_bounds__(512) kernel_0(
        const float* __restrict__ x0,
        float* y0,
        long long size_n,
        long long size_m,
        long long size_k,
        long long* error) {
    const long long n0 = size_n + 63ll;
    const long long n1 = lw_size_divide(n0, 64ll);
    const int n2 = (int)(n1);
    const long long n5 = size_k + 63ll;
    const long long n6 = lw_size_divide(n5, 64ll);
    const int n7 = (int)(n6);
    const int n19 = (int)(size_n);
    const int n20 = (int)(size_k);
    const long long n21 = size_k * size_m;
    const int n22 = (int)(n21);
    const long long n33 = size_m * size_n;
    const int n34 = (int)(n33);
    const int i3 = (int)((unsigned int)(int)blockIdx.x % (unsigned int)n2);
    const int i4 = (int)((unsigned int)(int)blockIdx.x / (unsigned int)n2);
    const int i8 = (int)((unsigned int)i4 % (unsigned int)n7);
    const int i9 = (int)((unsigned int)i4 / (unsigned int)n7);
    const int at10 = i8 * 64;
    const int at11 = i3 * 64;
    __shared__ float tile12[64][65];
    lw_pack<float, 1> pack13[8] = {};
    #pragma unroll
    for (int u14 = 0; u14 < 8; ++u14) {
        const int k15 = u14 / 2 * 16 + (int)threadIdx.y;
        const int k16 = u14 % 2 * 32 + (int)threadIdx.x;
        const int i17 = at11 + k15;
        const int i18 = at10 + k16;
        if (i17 < n19 && i18 < n20) {
            pack13[u14] = *(const lw_pack<float, 1>*)&x0[i18 + i9 * n20 + i17 * n22];
        }
    }
    #pragma unroll
    for (int u23 = 0; u23 < 8; ++u23) {
        const int k24 = u23 / 2 * 16 + (int)threadIdx.y;
        const int k25 = u23 % 2 * 32 + (int)threadIdx.x;
        tile12[k24][k25] = pack13[u23].at[0];
    }
    __syncthreads();
    #pragma unroll
    for (int u26 = 0; u26 < 8; ++u26) {
        const int k27 = u26 / 2 * 16 + (int)threadIdx.y;
        const int k28 = u26 % 2 * 32 + (int)threadIdx.x;
        const int i29 = at10 + k27;
        const int i30 = at11 + k28;
        if (i29 < n20 && i30 < n19) {
            const float v31 = tile12[k28][k27];
            const float v32 = v31 * 2.0f;
            y0[i30 + i9 * n19 + i29 * n34] = v32;
        }
    }
}
