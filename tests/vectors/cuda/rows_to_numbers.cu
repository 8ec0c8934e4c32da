// kernel_0<<<floordiv(n + 7, 8), 32 * 8>>> (5 blocks now): f32[n, m] -> i64[n]
// kernel_1<<<floordiv(n + 7, 8), 32 * 8>>> (5 blocks now): f32[n, m] -> f32[n]

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
        long long* y0,
        long long size_n,
        long long size_m,
        long long* error) {
    const int n0 = (int)(size_n);
    const int n6 = (int)(size_m);
    const int at1 = (int)blockIdx.x * 8 + (int)threadIdx.y;
    const bool v2 = at1 < n0;
    const int at3 = v2 ? at1 : n0 - 1;
    float acc4[4] = {__uint_as_float(0xff800000u), __uint_as_float(0xff800000u), __uint_as_float(0xff800000u), __uint_as_float(0xff800000u)};
    long long acc5[4] = {0x7fffffffffffffffll, 0x7fffffffffffffffll, 0x7fffffffffffffffll, 0x7fffffffffffffffll};
    const int n7 = n6 % 4 == 0 ? n6 - n6 % 4 : 0;
    #pragma unroll 4
    for (int at8 = (int)threadIdx.x * 4; at8 < n7; at8 += 32 * 4) {
        lw_pack<float, 4> pack9;
        pack9 = *(const lw_pack<float, 4>*)&x0[at8 + at3 * n6];
        #pragma unroll
        for (int e10 = 0; e10 < 4; ++e10) {
            const float v11 = pack9.at[e10];
            const bool take12 = (!(v11 <= acc4[e10]) & (acc4[e10] == acc4[e10])) | (acc5[e10] == 0x7fffffffffffffffll);
            acc4[e10] = take12 ? v11 : acc4[e10];
            acc5[e10] = take12 ? (long long)(at8 + e10) : acc5[e10];
        }
    }
    for (int at13 = n7 + (int)threadIdx.x; at13 < n6; at13 += 32) {
        const float v14 = x0[at13 + at3 * n6];
        const bool take15 = (!(v14 <= acc4[0]) & (acc4[0] == acc4[0])) | (acc5[0] == 0x7fffffffffffffffll);
        acc4[0] = take15 ? v14 : acc4[0];
        acc5[0] = take15 ? (long long)at13 : acc5[0];
    }
    float all16 = acc4[0];
    long long all17 = acc5[0];
    if (all16 == all16 ? acc4[1] > all16 || acc4[1] != acc4[1] || (acc4[1] == all16 && acc5[1] < all17) : acc4[1] != acc4[1] && acc5[1] < all17) {
        all16 = acc4[1];
        all17 = acc5[1];
    }
    if (all16 == all16 ? acc4[2] > all16 || acc4[2] != acc4[2] || (acc4[2] == all16 && acc5[2] < all17) : acc4[2] != acc4[2] && acc5[2] < all17) {
        all16 = acc4[2];
        all17 = acc5[2];
    }
    if (all16 == all16 ? acc4[3] > all16 || acc4[3] != acc4[3] || (acc4[3] == all16 && acc5[3] < all17) : acc4[3] != acc4[3] && acc5[3] < all17) {
        all16 = acc4[3];
        all17 = acc5[3];
    }
    #pragma unroll
    for (int d18 = 16; d18 > 0; d18 /= 2) {
        float v19 = __shfl_xor_sync(0xffffffffu, all16, d18);
        long long v20 = __shfl_xor_sync(0xffffffffu, all17, d18);
        if (all16 == all16 ? v19 > all16 || v19 != v19 || (v19 == all16 && v20 < all17) : v19 != v19 && v20 < all17) {
            all16 = v19;
            all17 = v20;
        }
    }
    if (v2 && threadIdx.x == 0) {
        y0[at3] = all17;
    }
}

extern "C" __global__ void __launch_bounds__(256) kernel_1(
        const float* __restrict__ x0,
        float* y0,
        long long size_n,
        long long size_m,
        long long* error) {
    const int n0 = (int)(size_n);
    const int n5 = (int)(size_m);
    const int at1 = (int)blockIdx.x * 8 + (int)threadIdx.y;
    const bool v2 = at1 < n0;
    const int at3 = v2 ? at1 : n0 - 1;
    float acc4[4] = {__uint_as_float(0xff800000u), __uint_as_float(0xff800000u), __uint_as_float(0xff800000u), __uint_as_float(0xff800000u)};
    const int n6 = n5 % 4 == 0 ? n5 - n5 % 4 : 0;
    #pragma unroll 4
    for (int at7 = (int)threadIdx.x * 4; at7 < n6; at7 += 32 * 4) {
        lw_pack<float, 4> pack8;
        pack8 = *(const lw_pack<float, 4>*)&x0[at7 + at3 * n5];
        #pragma unroll
        for (int e9 = 0; e9 < 4; ++e9) {
            const float v10 = pack8.at[e9];
            acc4[e9] = lw_max(acc4[e9], v10);
        }
    }
    for (int at11 = n6 + (int)threadIdx.x; at11 < n5; at11 += 32) {
        const float v12 = x0[at11 + at3 * n5];
        acc4[0] = lw_max(acc4[0], v12);
    }
    float all13 = acc4[0];
    all13 = lw_max(all13, acc4[1]);
    all13 = lw_max(all13, acc4[2]);
    all13 = lw_max(all13, acc4[3]);
    #pragma unroll
    for (int d14 = 16; d14 > 0; d14 /= 2) {
        float v15 = __shfl_xor_sync(0xffffffffu, all13, d14);
        all13 = lw_max(all13, v15);
    }
    const float v16 = all13;
    if (v2 && threadIdx.x == 0) {
        y0[at3] = v16;
    }
}
