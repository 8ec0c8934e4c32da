// kernel_0<<<floordiv(n + 31, 32)*floordiv(p + 31, 32), 32 * 8>>> (4 blocks now): f16[n, m], f16[m, p] -> f16[n, p]

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

// c += a b of a warp: 16 rows by 16 terms, by 8 columns; the words hold two terms each
__device__ __forceinline__ void lw_mma_f16(float& c0, float& c1, float& c2, float& c3, const unsigned* a, const unsigned* b) {
#ifndef LW_EMULATED
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c0), "+f"(c1), "+f"(c2), "+f"(c3) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    const int lane = (int)threadIdx.x % 32;
    for (int k = 0; k < 8; ++k) {
        const unsigned upper = __shfl_sync(0xffffffffu, k < 4 ? a[0] : a[2], lane / 4 * 4 + k % 4);
        const unsigned lower = __shfl_sync(0xffffffffu, k < 4 ? a[1] : a[3], lane / 4 * 4 + k % 4);
        const unsigned left = __shfl_sync(0xffffffffu, k < 4 ? b[0] : b[1], lane % 4 * 8 + k % 4);
        const unsigned right = __shfl_sync(0xffffffffu, k < 4 ? b[0] : b[1], lane % 4 * 8 + 4 + k % 4);
        for (int h = 0; h < 32; h += 16) {
            c0 += lw_from_f16(upper >> h) * lw_from_f16(left >> h);
            c1 += lw_from_f16(upper >> h) * lw_from_f16(right >> h);
            c2 += lw_from_f16(lower >> h) * lw_from_f16(left >> h);
            c3 += lw_from_f16(lower >> h) * lw_from_f16(right >> h);
        }
    }
#endif
}

// squares of 8 by 8: lane l has the elements 2 (l % 4) and the next of row l / 4 of each
__device__ __forceinline__ void lw_words4(unsigned* to, const unsigned short* row) {
#ifndef LW_EMULATED
    const unsigned at = (unsigned)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(at) : "memory");
#else
    const int lane = (int)threadIdx.x % 32, one = lane % 4 * 2, other = lane / 4;
    for (int q = 0; q < 4; ++q) {
        const unsigned short* const x = __shfl_sync(0xffffffffu, row, q * 8 + (false ? one : other));
        const unsigned short* const y = __shfl_sync(0xffffffffu, row, q * 8 + (false ? one + 1 : other));
        to[q] = false ? x[other] | (unsigned)y[other] << 16 : x[one] | (unsigned)y[one + 1] << 16;
    }
#endif
}

// squares of 8 by 8: lane l has the elements 2 (l % 4) and the next of row l / 4 of each
__device__ __forceinline__ void lw_words2_across(unsigned* to, const unsigned short* row) {
#ifndef LW_EMULATED
    const unsigned at = (unsigned)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];" : "=r"(to[0]), "=r"(to[1]) : "r"(at) : "memory");
#else
    const int lane = (int)threadIdx.x % 32, one = lane % 4 * 2, other = lane / 4;
    for (int q = 0; q < 2; ++q) {
        const unsigned short* const x = __shfl_sync(0xffffffffu, row, q * 8 + (true ? one : other));
        const unsigned short* const y = __shfl_sync(0xffffffffu, row, q * 8 + (true ? one + 1 : other));
        to[q] = true ? x[other] | (unsigned)y[other] << 16 : x[one] | (unsigned)y[one + 1] << 16;
    }
#endif
}

extern "C" __global__ void __launch_bounds__(256, 1) kernel_0(
        const unsigned short* __restrict__ x0,
        const unsigned short* __restrict__ x1,
        unsigned short* y0,
        long long size_n,
        long long size_m,
        long long size_p,
        long long* error) {
    const long long n0 = size_p + 31ll;
    const long long n1 = lw_size_divide(n0, 32ll);
    const int n2 = (int)(n1);
    const int n7 = (int)(size_m);
    const int n18 = (int)(size_n);
    const int n30 = (int)(size_p);
    const int i3 = (int)((unsigned int)(int)blockIdx.x % (unsigned int)n2);
    const int i4 = (int)((unsigned int)(int)blockIdx.x / (unsigned int)n2);
    const int at5 = i4 * 32;
    const int at6 = i3 * 32;
    float s0_sums[4];
    const unsigned short* const x0_bits = x0;
    const unsigned short* const x1_bits = x1;
    __shared__ __align__(16) unsigned short left[2][32][40];
    unsigned short left_next[4];
    __shared__ __align__(16) unsigned short right[2][32][40];
    unsigned short right_next[4];
    #pragma unroll
    for (int k8 = 0; k8 < 4; ++k8) {
        s0_sums[k8] = 0.0f;
    }
    int stage9 = 0;
    for (int first10 = -32; first10 < n7; first10 += 32) {
        const bool more11 = first10 + 32 < n7;
        if (more11) {
            #pragma unroll
            for (int u12 = 0; u12 < 1; ++u12) {
                const int at13 = u12 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                const int at14 = at13 % 8 * 4;
                const int at15 = at13 / 8;
                const int i16 = at5 + at15;
                const int k17 = first10 + 32 + at14;
                if (n7 % 4 == 0 && i16 < n18 && k17 + 4 <= n7) {
                    lw_pack<unsigned short, 4> pack19;
                    pack19 = *(const lw_pack<unsigned short, 4>*)&x0_bits[k17 + i16 * n7];
                    #pragma unroll
                    for (int e20 = 0; e20 < 4; ++e20) {
                        const unsigned short v21 = pack19.at[e20];
                        left_next[u12 * 4 + e20] = v21;
                    }
                } else {
                    #pragma unroll
                    for (int e22 = 0; e22 < 4; ++e22) {
                        left_next[u12 * 4 + e22] = 0;
                        if (i16 < n18 && (k17 + e22) < n7) {
                            const unsigned short v23 = x0_bits[(k17 + e22) + i16 * n7];
                            left_next[u12 * 4 + e22] = v23;
                        }
                    }
                }
            }
            #pragma unroll
            for (int u24 = 0; u24 < 1; ++u24) {
                const int at25 = u24 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                const int at26 = at25 % 8 * 4;
                const int at27 = at25 / 8;
                const int i28 = at6 + at26;
                const int k29 = first10 + 32 + at27;
                if (n30 % 4 == 0 && i28 + 4 <= n30 && k29 < n7) {
                    lw_pack<unsigned short, 4> pack31;
                    pack31 = *(const lw_pack<unsigned short, 4>*)&x1_bits[i28 + k29 * n30];
                    #pragma unroll
                    for (int e32 = 0; e32 < 4; ++e32) {
                        const unsigned short v33 = pack31.at[e32];
                        right_next[u24 * 4 + e32] = v33;
                    }
                } else {
                    #pragma unroll
                    for (int e34 = 0; e34 < 4; ++e34) {
                        right_next[u24 * 4 + e34] = 0;
                        if ((i28 + e34) < n30 && k29 < n7) {
                            const unsigned short v35 = x1_bits[(i28 + e34) + k29 * n30];
                            right_next[u24 * 4 + e34] = v35;
                        }
                    }
                }
            }
        }
        if (first10 >= 0) {
            #pragma unroll
            for (int k36 = 0; k36 < 32; k36 += 16) {
                unsigned left_now[1][4];
                #pragma unroll
                for (int g37 = 0; g37 < 1; ++g37) {
                    lw_words4(left_now[g37], &left[stage9][(int)threadIdx.y % 2 * 16 + g37 * 16 + (int)threadIdx.x / 8 % 2 * 8 + (int)threadIdx.x % 8][k36 + (int)threadIdx.x / 16 * 8]);
                }
                unsigned right_now[1][2];
                #pragma unroll
                for (int g38 = 0; g38 < 1; ++g38) {
                    lw_words2_across(right_now[g38], &right[stage9][k36 + (int)threadIdx.x / 8 % 2 * 8 + (int)threadIdx.x % 8][(int)threadIdx.y / 2 * 8 + g38 * 8 + 0]);
                }
                #pragma unroll
                for (int r39 = 0; r39 < 1; ++r39) {
                    #pragma unroll
                    for (int c40 = 0; c40 < 1; ++c40) {
                        lw_mma_f16(s0_sums[(r39 * 2 + 0) * 2 + c40 * 2 + 0], s0_sums[(r39 * 2 + 0) * 2 + c40 * 2 + 1], s0_sums[(r39 * 2 + 1) * 2 + c40 * 2 + 0], s0_sums[(r39 * 2 + 1) * 2 + c40 * 2 + 1], left_now[r39], right_now[c40]);
                    }
                }
            }
        }
        stage9 = 1 - stage9;
        if (more11) {
            #pragma unroll
            for (int u41 = 0; u41 < 1; ++u41) {
                const int at43 = u41 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                const int at44 = at43 % 8 * 4;
                const int at45 = at43 / 8;
                lw_pack<unsigned short, 4> whole;
                #pragma unroll
                for (int e42 = 0; e42 < 4; ++e42) {
                    whole.at[e42] = left_next[u41 * 4 + e42];
                }
                *(lw_pack<unsigned short, 4>*)&left[stage9][at45][at44] = whole;
            }
            #pragma unroll
            for (int u46 = 0; u46 < 1; ++u46) {
                const int at48 = u46 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                const int at49 = at48 % 8 * 4;
                const int at50 = at48 / 8;
                lw_pack<unsigned short, 4> whole;
                #pragma unroll
                for (int e47 = 0; e47 < 4; ++e47) {
                    whole.at[e47] = right_next[u46 * 4 + e47];
                }
                *(lw_pack<unsigned short, 4>*)&right[stage9][at50][at49] = whole;
            }
        }
        __syncthreads();
    }
    #pragma unroll
    for (int r51 = 0; r51 < 2; ++r51) {
        const int i53 = at5 + r51 / 1 * 8 + (int)threadIdx.y % 2 * 16 + (int)threadIdx.x / 4 + r51 % 1;
        #pragma unroll
        for (int g52 = 0; g52 < 1; ++g52) {
            const int i54 = at6 + g52 * 8 + (int)threadIdx.y / 2 * 8 + (int)threadIdx.x % 4 * 2;
            if (n30 % 2 == 0 && i53 < n18 && i54 + 2 <= n30) {
                lw_pack<unsigned short, 2> pack55;
                #pragma unroll
                for (int e56 = 0; e56 < 2; ++e56) {
                    const float v57 = s0_sums[r51 * 2 + g52 * 2 + e56];
                    const float v58 = lw_from_f16(lw_to_f16((float)v57));
                    const float v59 = v58 <= 9.0f || v58 != v58 ? v58 : 9.0f;
                    pack55.at[e56] = lw_to_f16(v59);
                }
                *(lw_pack<unsigned short, 2>*)&y0[i54 + i53 * n30] = pack55;
            } else {
                #pragma unroll
                for (int e60 = 0; e60 < 2; ++e60) {
                    if (i53 < n18 && i54 + e60 < n30) {
                        const float v61 = s0_sums[r51 * 2 + g52 * 2 + e60];
                        const float v62 = lw_from_f16(lw_to_f16((float)v61));
                        const float v63 = v62 <= 9.0f || v62 != v62 ? v62 : 9.0f;
                        y0[(i54 + e60) + i53 * n30] = lw_to_f16(v63);
                    }
                }
            }
        }
    }
}
