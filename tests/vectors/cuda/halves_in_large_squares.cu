// kernel_0<<<floordiv(m + 63, 64)*floordiv(n + 63, 64), 32 * 16>>> (1750 blocks now): f16[n, m], f16[m, n] -> f16[m, n]

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

extern "C" __global__ void __launch_bounds__(512) kernel_0(
        const unsigned short* __restrict__ x0,
        const unsigned short* __restrict__ x1,
        unsigned short* y0,
        long long size_n,
        long long size_m,
        long long* error) {
    const long long n0 = size_n + 63ll;
    const long long n1 = lw_size_divide(n0, 64ll);
    const int n2 = (int)(n1);
    const int n8 = (int)(size_m);
    const int n9 = (int)(size_n);
    const int i3 = (int)((unsigned int)(int)blockIdx.x % (unsigned int)n2);
    const int i4 = (int)((unsigned int)(int)blockIdx.x / (unsigned int)n2);
    const int at5 = i4 * 64;
    const int at6 = i3 * 64;
    __shared__ unsigned short tile7[64][65];
    if (n8 % 2 == 0 && n9 % 2 == 0) {
        lw_pack<unsigned short, 2> pack10[4] = {};
        lw_pack<unsigned short, 2> pack11[4];
        #pragma unroll
        for (int u12 = 0; u12 < 4; ++u12) {
            const int k13 = u12 * 16 + (int)threadIdx.y;
            const int k14 = ((int)threadIdx.x) * 2;
            const int i15 = at6 + k13;
            const int i16 = at5 + k14;
            if (i15 < n9 && i16 < n8) {
                pack10[u12] = *(const lw_pack<unsigned short, 2>*)&x0[i16 + i15 * n8];
            }
        }
        #pragma unroll
        for (int u17 = 0; u17 < 4; ++u17) {
            const int k18 = u17 * 16 + (int)threadIdx.y;
            const int k19 = ((int)threadIdx.x) * 2;
            const int i20 = at5 + k18;
            const int i21 = at6 + k19;
            if (i20 < n8 && i21 < n9) {
                pack11[u17] = *(const lw_pack<unsigned short, 2>*)&x1[i21 + i20 * n9];
            }
        }
        #pragma unroll
        for (int u22 = 0; u22 < 4; ++u22) {
            const int k23 = u22 * 16 + (int)threadIdx.y;
            const int k24 = ((int)threadIdx.x) * 2;
            tile7[k23][k24] = pack10[u22].at[0];
            tile7[k23][k24 + 1] = pack10[u22].at[1];
        }
        __syncthreads();
        #pragma unroll
        for (int u25 = 0; u25 < 4; ++u25) {
            const int k26 = u25 * 16 + (int)threadIdx.y;
            const int k27 = ((int)threadIdx.x) * 2;
            const int i28 = at5 + k26;
            const int i29 = at6 + k27;
            if (i28 < n8 && i29 < n9) {
                lw_pack<unsigned short, 2> pack30;
                #pragma unroll
                for (int e31 = 0; e31 < 2; ++e31) {
                    const float v32 = lw_from_f16(pack11[u25].at[e31]);
                    const float v33 = lw_from_f16(tile7[k27 + e31][k26]);
                    const float v34 = lw_from_f16(lw_to_f16(v33 * v32));
                    pack30.at[e31] = lw_to_f16(v34);
                }
                *(lw_pack<unsigned short, 2>*)&y0[i29 + i28 * n9] = pack30;
            }
        }
    } else {
        lw_pack<unsigned short, 1> pack35[8] = {};
        lw_pack<unsigned short, 1> pack36[8];
        #pragma unroll
        for (int u37 = 0; u37 < 8; ++u37) {
            const int k38 = u37 / 2 * 16 + (int)threadIdx.y;
            const int k39 = u37 % 2 * 32 + (int)threadIdx.x;
            const int i40 = at6 + k38;
            const int i41 = at5 + k39;
            if (i40 < n9 && i41 < n8) {
                pack35[u37] = *(const lw_pack<unsigned short, 1>*)&x0[i41 + i40 * n8];
            }
        }
        #pragma unroll
        for (int u42 = 0; u42 < 8; ++u42) {
            const int k43 = u42 / 2 * 16 + (int)threadIdx.y;
            const int k44 = u42 % 2 * 32 + (int)threadIdx.x;
            const int i45 = at5 + k43;
            const int i46 = at6 + k44;
            if (i45 < n8 && i46 < n9) {
                pack36[u42] = *(const lw_pack<unsigned short, 1>*)&x1[i46 + i45 * n9];
            }
        }
        #pragma unroll
        for (int u47 = 0; u47 < 8; ++u47) {
            const int k48 = u47 / 2 * 16 + (int)threadIdx.y;
            const int k49 = u47 % 2 * 32 + (int)threadIdx.x;
            tile7[k48][k49] = pack35[u47].at[0];
        }
        __syncthreads();
        #pragma unroll
        for (int u50 = 0; u50 < 8; ++u50) {
            const int k51 = u50 / 2 * 16 + (int)threadIdx.y;
            const int k52 = u50 % 2 * 32 + (int)threadIdx.x;
            const int i53 = at5 + k51;
            const int i54 = at6 + k52;
            if (i53 < n8 && i54 < n9) {
                const float v55 = lw_from_f16(pack36[u50].at[0]);
                const float v56 = lw_from_f16(tile7[k52][k51]);
                const float v57 = lw_from_f16(lw_to_f16(v56 * v55));
                y0[i54 + i53 * n9] = lw_to_f16(v57);
            }
        }
    }
}
