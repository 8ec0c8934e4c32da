// kernel_0<<<floordiv(m + 63, 64)*floordiv(n + 63, 64), 32 * 8>>> (1750 blocks now): f16[n, m], f16[m, n] -> f16[m, n]

__device__ __forceinline__ long long lw_size_divide(long long a, long long b) {
    return b == 0 ? 0 : a / b - (a % b != 0 && (a % b ^ b) < 0);
}

template <class T, int N> struct alignas(sizeof(T) * N) lw_pack { T at[N]; };

#ifndef LW_EMULATED
__device__ __forceinline__ float lw_from_f16(unsigned short bits) {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
}
__device__ __forceinline__ unsigned short lw_to_f16(float x) {
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return bits;
}
__device__ __forceinline__ unsigned short lw_to_f16(double x) {
    unsigned short bits;
    asm("cvt.rn.f16.f64 %0, %1;" : "=h"(bits) : "d"(x));
    return bits;
}
#endif

extern "C" __global__ void __launch_bounds__(256) kernel_0(
        const unsigned short* __restrict__ x0,
        const unsigned short* __restrict__ x1,
        unsigned short* y0,
        long long size_n,
        long long size_m,
        long long* error) {
    const long long n0 = size_n + 63ll;
    const long long n1 = lw_size_divide(n0, 64ll) * 8ll;
    const int n2 = (int)(n1);
    const long long n4 = lw_size_divide(n0, 64ll);
    const int n5 = (int)(n4);
    const long long n7 = size_m + 63ll;
    const long long n8 = lw_size_divide(n7, 64ll);
    const int n9 = (int)(n8);
    const int n14 = (int)(size_m);
    const int n15 = (int)(size_n);
    const int at3 = (unsigned int)(int)blockIdx.x / (unsigned int)n2 * 8;
    const int at6 = (int)blockIdx.x - at3 * n5;
    const int n10 = n9 - at3 < 8 ? n9 - at3 : 8;
    const int at11 = (at3 + (int)((unsigned int)at6 % (unsigned int)n10)) * 64;
    const int at12 = (int)((unsigned int)at6 / (unsigned int)n10) * 64;
    __shared__ unsigned short tile13[64][65];
    if (n14 % 2 == 0 && n15 % 2 == 0) {
        lw_pack<unsigned short, 2> pack16[8] = {};
        lw_pack<unsigned short, 2> pack17[8];
        #pragma unroll
        for (int u18 = 0; u18 < 8; ++u18) {
            const int k19 = u18 * 8 + (int)threadIdx.y;
            const int k20 = ((int)threadIdx.x) * 2;
            const int i21 = at12 + k19;
            const int i22 = at11 + k20;
            if (i21 < n15 && i22 < n14) {
                pack16[u18] = *(const lw_pack<unsigned short, 2>*)&x0[i22 + i21 * n14];
            }
        }
        #pragma unroll
        for (int u23 = 0; u23 < 8; ++u23) {
            const int k24 = u23 * 8 + (int)threadIdx.y;
            const int k25 = ((int)threadIdx.x) * 2;
            const int i26 = at11 + k24;
            const int i27 = at12 + k25;
            if (i26 < n14 && i27 < n15) {
                pack17[u23] = *(const lw_pack<unsigned short, 2>*)&x1[i27 + i26 * n15];
            }
        }
        #pragma unroll
        for (int u28 = 0; u28 < 8; ++u28) {
            const int k29 = u28 * 8 + (int)threadIdx.y;
            const int k30 = ((int)threadIdx.x) * 2;
            tile13[k29][k30] = pack16[u28].at[0];
            tile13[k29][k30 + 1] = pack16[u28].at[1];
        }
        __syncthreads();
        #pragma unroll
        for (int u31 = 0; u31 < 8; ++u31) {
            const int k32 = u31 * 8 + (int)threadIdx.y;
            const int k33 = ((int)threadIdx.x) * 2;
            const int i34 = at11 + k32;
            const int i35 = at12 + k33;
            if (i34 < n14 && i35 < n15) {
                lw_pack<unsigned short, 2> pack36;
                #pragma unroll
                for (int e37 = 0; e37 < 2; ++e37) {
                    const float v38 = lw_from_f16(pack17[u31].at[e37]);
                    const float v39 = lw_from_f16(tile13[k33 + e37][k32]);
                    const float v40 = lw_from_f16(lw_to_f16(v39 * v38));
                    pack36.at[e37] = lw_to_f16(v40);
                }
                *(lw_pack<unsigned short, 2>*)&y0[i35 + i34 * n15] = pack36;
            }
        }
    } else {
        lw_pack<unsigned short, 1> pack41[16] = {};
        lw_pack<unsigned short, 1> pack42[16];
        #pragma unroll
        for (int u43 = 0; u43 < 16; ++u43) {
            const int k44 = u43 / 2 * 8 + (int)threadIdx.y;
            const int k45 = u43 % 2 * 32 + (int)threadIdx.x;
            const int i46 = at12 + k44;
            const int i47 = at11 + k45;
            if (i46 < n15 && i47 < n14) {
                pack41[u43] = *(const lw_pack<unsigned short, 1>*)&x0[i47 + i46 * n14];
            }
        }
        #pragma unroll
        for (int u48 = 0; u48 < 16; ++u48) {
            const int k49 = u48 / 2 * 8 + (int)threadIdx.y;
            const int k50 = u48 % 2 * 32 + (int)threadIdx.x;
            const int i51 = at11 + k49;
            const int i52 = at12 + k50;
            if (i51 < n14 && i52 < n15) {
                pack42[u48] = *(const lw_pack<unsigned short, 1>*)&x1[i52 + i51 * n15];
            }
        }
        #pragma unroll
        for (int u53 = 0; u53 < 16; ++u53) {
            const int k54 = u53 / 2 * 8 + (int)threadIdx.y;
            const int k55 = u53 % 2 * 32 + (int)threadIdx.x;
            tile13[k54][k55] = pack41[u53].at[0];
        }
        __syncthreads();
        #pragma unroll
        for (int u56 = 0; u56 < 16; ++u56) {
            const int k57 = u56 / 2 * 8 + (int)threadIdx.y;
            const int k58 = u56 % 2 * 32 + (int)threadIdx.x;
            const int i59 = at11 + k57;
            const int i60 = at12 + k58;
            if (i59 < n14 && i60 < n15) {
                const float v61 = lw_from_f16(pack42[u56].at[0]);
                const float v62 = lw_from_f16(tile13[k58][k57]);
                const float v63 = lw_from_f16(lw_to_f16(v62 * v61));
                y0[i60 + i59 * n15] = lw_to_f16(v63);
            }
        }
    }
}
