// kernel_0<<<floordiv(m + 31, 32)*floordiv(n + 31, 32), 32 * 8>>> (12 blocks now): f32[n, m] -> f32[m, n]

__device__ __forceinline__ long long lw_size_divide(long long a, long long b) {
    return b == 0 ? 0 : a / b - (a % b != 0 && (a % b ^ b) < 0);
}

template <class T, int N> struct alignas(sizeof(T) * N) lw_pack { T at[N]; };

extern "C" __global__ void __launch_bounds__(256) kernel_0(
        const float* __restrict__ x0,
        float* y0,
        long long size_n,
        long long size_m,
        long long* error) {
    const long long n0 = size_n + 31ll;
    const long long n1 = lw_size_divide(n0, 32ll) * 8ll;
    const int n2 = (int)(n1);
    const long long n4 = lw_size_divide(n0, 32ll);
    const int n5 = (int)(n4);
    const long long n7 = size_m + 31ll;
    const long long n8 = lw_size_divide(n7, 32ll);
    const int n9 = (int)(n8);
    const int n20 = (int)(size_n);
    const int n21 = (int)(size_m);
    const int at3 = (unsigned int)(int)blockIdx.x / (unsigned int)n2 * 8;
    const int at6 = (int)blockIdx.x - at3 * n5;
    const int n10 = n9 - at3 < 8 ? n9 - at3 : 8;
    const int at11 = (at3 + (int)((unsigned int)at6 % (unsigned int)n10)) * 32;
    const int at12 = (int)((unsigned int)at6 / (unsigned int)n10) * 32;
    __shared__ float tile13[32][33];
    lw_pack<float, 1> pack14[4] = {};
    #pragma unroll
    for (int u15 = 0; u15 < 4; ++u15) {
        const int k16 = u15 * 8 + (int)threadIdx.y;
        const int k17 = (int)threadIdx.x;
        const int i18 = at12 + k16;
        const int i19 = at11 + k17;
        if (i18 < n20 && i19 < n21) {
            pack14[u15] = *(const lw_pack<float, 1>*)&x0[i19 + i18 * n21];
        }
    }
    #pragma unroll
    for (int u22 = 0; u22 < 4; ++u22) {
        const int k23 = u22 * 8 + (int)threadIdx.y;
        const int k24 = (int)threadIdx.x;
        tile13[k23][k24] = pack14[u22].at[0];
    }
    __syncthreads();
    #pragma unroll
    for (int u25 = 0; u25 < 4; ++u25) {
        const int k26 = u25 * 8 + (int)threadIdx.y;
        const int k27 = (int)threadIdx.x;
        const int i28 = at11 + k26;
        const int i29 = at12 + k27;
        if (i28 < n21 && i29 < n20) {
            const float v30 = tile13[k27][k26];
            const float v31 = v30 * 2.0f;
            y0[i29 + i28 * n20] = v31;
        }
    }
}
