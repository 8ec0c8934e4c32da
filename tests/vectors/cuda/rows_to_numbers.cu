// kernel_0<<<floordiv(n + 7, 8), 32 * 8>>> (5 blocks now): f32[n, m] -> f32[n], i64[n]

template <class T, int N> struct alignas(sizeof(T) * N) lw_pack { T at[N]; };

#ifndef LW_EMULATED
__device__ __forceinline__ float lw_max(float x, float y) {
    float found;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(found) : "f"(x), "f"(y));
    return found;
}
#endif

extern "C" __global__ void __launch_bounds__(256) kernel_0(
        const float* __restrict__ x0,
        float* y0,
        long long* y1,
        long long size_n,
        long long size_m,
        long long* error) {
    const int n0 = (int)(size_n);
    const int n7 = (int)(size_m);
    const int at1 = (int)blockIdx.x * 8 + (int)threadIdx.y;
    const bool v2 = at1 < n0;
    const int at3 = v2 ? at1 : n0 - 1;
    float acc4[4] = {__uint_as_float(0xff800000u), __uint_as_float(0xff800000u), __uint_as_float(0xff800000u), __uint_as_float(0xff800000u)};
    long long acc5[4] = {0x7fffffffffffffffll, 0x7fffffffffffffffll, 0x7fffffffffffffffll, 0x7fffffffffffffffll};
    float acc6[4] = {__uint_as_float(0xff800000u), __uint_as_float(0xff800000u), __uint_as_float(0xff800000u), __uint_as_float(0xff800000u)};
    const int n8 = n7 % 4 == 0 ? n7 - n7 % 4 : 0;
    #pragma unroll 4
    for (int at9 = (int)threadIdx.x * 4; at9 < n8; at9 += 32 * 4) {
        lw_pack<float, 4> pack10;
        pack10 = *(const lw_pack<float, 4>*)&x0[at9 + at3 * n7];
        #pragma unroll
        for (int e11 = 0; e11 < 4; ++e11) {
            const float v12 = pack10.at[e11];
            const bool take13 = (!(v12 <= acc4[e11]) & (acc4[e11] == acc4[e11])) | (acc5[e11] == 0x7fffffffffffffffll);
            acc4[e11] = take13 ? v12 : acc4[e11];
            acc5[e11] = take13 ? (long long)(at9 + e11) : acc5[e11];
            acc6[e11] = lw_max(acc6[e11], v12);
        }
    }
    for (int at14 = n8 + (int)threadIdx.x; at14 < n7; at14 += 32) {
        const float v15 = x0[at14 + at3 * n7];
        const bool take16 = (!(v15 <= acc4[0]) & (acc4[0] == acc4[0])) | (acc5[0] == 0x7fffffffffffffffll);
        acc4[0] = take16 ? v15 : acc4[0];
        acc5[0] = take16 ? (long long)at14 : acc5[0];
        acc6[0] = lw_max(acc6[0], v15);
    }
    float all17 = acc4[0];
    long long all18 = acc5[0];
    if (all17 == all17 ? acc4[1] > all17 || acc4[1] != acc4[1] || (acc4[1] == all17 && acc5[1] < all18) : acc4[1] != acc4[1] && acc5[1] < all18) {
        all17 = acc4[1];
        all18 = acc5[1];
    }
    if (all17 == all17 ? acc4[2] > all17 || acc4[2] != acc4[2] || (acc4[2] == all17 && acc5[2] < all18) : acc4[2] != acc4[2] && acc5[2] < all18) {
        all17 = acc4[2];
        all18 = acc5[2];
    }
    if (all17 == all17 ? acc4[3] > all17 || acc4[3] != acc4[3] || (acc4[3] == all17 && acc5[3] < all18) : acc4[3] != acc4[3] && acc5[3] < all18) {
        all17 = acc4[3];
        all18 = acc5[3];
    }
    float all19 = acc6[0];
    all19 = lw_max(all19, acc6[1]);
    all19 = lw_max(all19, acc6[2]);
    all19 = lw_max(all19, acc6[3]);
    #pragma unroll
    for (int d20 = 16; d20 > 0; d20 /= 2) {
        float v21 = __shfl_xor_sync(0xffffffffu, all17, d20);
        long long v22 = __shfl_xor_sync(0xffffffffu, all18, d20);
        if (all17 == all17 ? v21 > all17 || v21 != v21 || (v21 == all17 && v22 < all18) : v21 != v21 && v22 < all18) {
            all17 = v21;
            all18 = v22;
        }
    }
    #pragma unroll
    for (int d23 = 16; d23 > 0; d23 /= 2) {
        float v24 = __shfl_xor_sync(0xffffffffu, all19, d23);
        all19 = lw_max(all19, v24);
    }
    const float v25 = all19;
    if (v2 && threadIdx.x == 0) {
        y0[at3] = v25;
    }
    if (v2 && threadIdx.x == 0) {
        y1[at3] = all18;
    }
}
