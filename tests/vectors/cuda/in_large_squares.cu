// kernel_0<<<floordiv(m + 63, 64)*floordiv(n + 63, 64), 32 * 16>>> (1750 blocks now): f32[n, m] -> f32[m, n]

__device__ __forceinline__ long long lw_size_divide(long long a, long long b) {
    return b == 0 ? 0 : a / b - (a % b != 0 && (a % b ^ b) < 0);
}

template <class T, int N> struct alignas(sizeof(T) * N) lw_pack { T at[N]; };

extern "C" __global__ void __launch_bounds__(512) kernel_0(
        const float* __restrict__ x0,
        float* y0,
        long long size_n,
        long long size_m,
        long long* error) {
    const long long n0 = size_n + 63ll;
    const long long n1 = lw_size_divide(n0, 64ll);
    const int n2 = (int)(n1);
    const int n14 = (int)(size_n);
    const int n15 = (int)(size_m);
    const int i3 = (int)((unsigned int)(int)blockIdx.x % (unsigned int)n2);
    const int i4 = (int)((unsigned int)(int)blockIdx.x / (unsigned int)n2);
    const int at5 = i4 * 64;
    const int at6 = i3 * 64;
    __shared__ float tile7[64][65];
    lw_pack<float, 1> pack8[8] = {};
    #pragma unroll
    for (int u9 = 0; u9 < 8; ++u9) {
        const int k10 = u9 / 2 * 16 + (int)threadIdx.y;
        const int k11 = u9 % 2 * 32 + (int)threadIdx.x;
        const int i12 = at6 + k10;
        const int i13 = at5 + k11;
        if (i12 < n14 && i13 < n15) {
            pack8[u9] = *(const lw_pack<float, 1>*)&x0[i13 + i12 * n15];
        }
    }
    #pragma unroll
    for (int u16 = 0; u16 < 8; ++u16) {
        const int k17 = u16 / 2 * 16 + (int)threadIdx.y;
        const int k18 = u16 % 2 * 32 + (int)threadIdx.x;
        tile7[k17][k18] = pack8[u16].at[0];
    }
    __syncthreads();
    #pragma unroll
    for (int u19 = 0; u19 < 8; ++u19) {
        const int k20 = u19 / 2 * 16 + (int)threadIdx.y;
        const int k21 = u19 % 2 * 32 + (int)threadIdx.x;
        const int i22 = at5 + k20;
        const int i23 = at6 + k21;
        if (i22 < n15 && i23 < n14) {
            const float v24 = tile7[k21][k20];
            const float v25 = v24 * 2.0f;
            y0[i23 + i22 * n14] = v25;
        }
    }
}
