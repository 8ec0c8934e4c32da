// kernel_0<<<floordiv(m + 63, 64)*floordiv(r + 31, 32)*n, 32 * 8>>> (64 blocks now): f16[n, m, r], f16[n, t, r], f16[n, m, k], f16[n, t, k] -> f16[n, m, r], f16[n, m], f16[n, m], f16[n, m], f16[n, m]
// kernel_1<<<floordiv(k + 63, 64)*floordiv(t + 63, 64)*n, 32 * 8>>> (64 blocks now): f16[n, m, r], f16[n, t, r], f16[n, m], f16[n, m], f16[n, m, k] -> f16[n, t, k]
// kernel_2<<<floordiv(r + 31, 32)*floordiv(t + 63, 64)*n, 32 * 8>>> (64 blocks now): f16[n, m, r], f16[n, t, r], f16[n, m], f16[n, m], f16[n, m, k], f16[n, t, k], f16[n, m], f16[n, m] -> f16[n, t, r]

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
__device__ __forceinline__ void lw_words2(unsigned* to, const unsigned short* row) {
#ifndef LW_EMULATED
    const unsigned at = (unsigned)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];" : "=r"(to[0]), "=r"(to[1]) : "r"(at) : "memory");
#else
    const int lane = (int)threadIdx.x % 32, one = lane % 4 * 2, other = lane / 4;
    for (int q = 0; q < 2; ++q) {
        const unsigned short* const x = __shfl_sync(0xffffffffu, row, q * 8 + (false ? one : other));
        const unsigned short* const y = __shfl_sync(0xffffffffu, row, q * 8 + (false ? one + 1 : other));
        to[q] = false ? x[other] | (unsigned)y[other] << 16 : x[one] | (unsigned)y[one + 1] << 16;
    }
#endif
}

__device__ __forceinline__ void lw_add(float& sum, float& lost, float x) {
    const float next = sum + x;
    const float part = next - sum;
    lost += (sum - (next - part)) + (x - part);
    sum = next;
}
__device__ __forceinline__ float lw_added(float sum, float lost) { return lost - lost == 0 && lost != 0 ? sum + lost : sum; }

__device__ __forceinline__ float lw_exp_f32(float x0) {
    const float v0 = fmaf(x0, 0x1.715476p+0f, 0x1.8p+23f);
    const float v1 = v0 - 0x1.8p+23f;
    const int v2 = __float_as_int(v0);
    const float v3 = fmaf(v1, (-0x1.62e4p-1f), x0);
    const float v4 = fmaf(v1, (-0x1.7f7d1cp-20f), v3);
    const float v5 = fmaf(0x1.6d113cp-10f, v4, 0x1.120ba2p-7f);
    const float v6 = fmaf(v5, v4, 0x1.55551ap-5f);
    const float v7 = fmaf(v6, v4, 0x1.5554dcp-3f);
    const float v8 = fmaf(v7, v4, 0.5f);
    const float v9 = v4 * v4;
    const float v10 = fmaf(v8, v9, v4);
    const bool v11 = !(x0 < (-105.0f));
    const float v12 = fabsf(x0);
    const bool v13 = v12 <= 87.0f;
    const bool v14 = !v13;
    const bool v15 = v11 && v14;
    const float v16 = v10 + 1.0f;
    const int v17 = __float_as_int(v16);
    const int v18 = (int)((unsigned int)v2 << (23));
    const int v19 = (int)((unsigned int)v17 + (unsigned int)v18);
    const float v20 = __int_as_float(v19);
    const float v21 = v11 ? v20 : 0.0f;
    float v22 = v21;
    if (v15) {
        const bool v23 = x0 > 89.0f;
        const float v24 = v10 + 1.0f;
        const bool v25 = v1 < (-126.0f);
        const float v26 = v1 + 63.0f;
        const float v27 = v25 ? v26 : v1;
        const int v28 = __float2int_rn(v27);
        const int v29 = v28 >> (1);
        const int v30 = (int)((unsigned int)v29 + (unsigned int)(127));
        const int v31 = (int)((unsigned int)v30 << (23));
        const float v32 = __int_as_float(v31);
        const int v33 = (int)((unsigned int)v28 - (unsigned int)v29);
        const int v34 = (int)((unsigned int)v33 + (unsigned int)(127));
        const int v35 = (int)((unsigned int)v34 << (23));
        const float v36 = __int_as_float(v35);
        const float v37 = v24 * v32;
        const float v38 = v37 * v36;
        const float v39 = v38 + 0x1p-63f;
        const int v40 = __float_as_int(v39);
        const int v41 = __float_as_int(0x1p-63f);
        const int v42 = (int)((unsigned int)v40 - (unsigned int)v41);
        const float v43 = __int_as_float(v42);
        const float v44 = v25 ? v43 : v38;
        const float v45 = v23 ? __uint_as_float(0x7f800000u) : v44;
        v22 = v45;
    }
    return v22;
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
        const unsigned short* __restrict__ x2,
        const unsigned short* __restrict__ x3,
        unsigned short* y0,
        unsigned short* y1,
        unsigned short* y2,
        unsigned short* y3,
        unsigned short* y4,
        long long size_n,
        long long size_m,
        long long size_r,
        long long size_t,
        long long size_k,
        long long* error) {
    const long long n0 = size_r + 31ll;
    const long long n1 = lw_size_divide(n0, 32ll);
    const int n2 = (int)(n1);
    const long long n5 = size_m + 63ll;
    const long long n6 = lw_size_divide(n5, 64ll);
    const int n7 = (int)(n6);
    const int n14 = (int)(size_t);
    const int n16 = (int)(size_r);
    const int n26 = (int)(size_m);
    const long long n27 = size_m * size_r;
    const int n28 = (int)(n27);
    const long long n40 = size_r * size_t;
    const int n41 = (int)(n40);
    const int n187 = (int)(size_k);
    const long long n197 = size_k * size_m;
    const int n198 = (int)(n197);
    const long long n210 = size_k * size_t;
    const int n211 = (int)(n210);
    const int i3 = (int)((unsigned int)(int)blockIdx.x % (unsigned int)n2);
    const int i4 = (int)((unsigned int)(int)blockIdx.x / (unsigned int)n2);
    const int i8 = (int)((unsigned int)i4 % (unsigned int)n7);
    const int i9 = (int)((unsigned int)i4 / (unsigned int)n7);
    const int at10 = i8 * 64;
    const int at11 = i3 * 32;
    float s31_sums[8];
    __shared__ __align__(16) unsigned char lw_near[20480];
    __shared__ __align__(16) unsigned short lw_kept[64][72];
    // pass 1: max
    float acc12[4] = {__uint_as_float(0xff800000u), __uint_as_float(0xff800000u), __uint_as_float(0xff800000u), __uint_as_float(0xff800000u)};
    const unsigned short* const x0_bits = x0;
    const unsigned short* const x1_bits = x1;
    for (int first13 = 0; first13 < n14; first13 += 64) {
        float p0[16];
        #pragma unroll
        for (int k15 = 0; k15 < 16; ++k15) {
            p0[k15] = 0.0f;
        }
         {
            unsigned short (*const left)[64][40] = (unsigned short (*)[64][40])(lw_near + 0);
            unsigned short left_next[8];
            unsigned short (*const right)[64][40] = (unsigned short (*)[64][40])(lw_near + 10240);
            unsigned short right_next[8];
            int stage17 = 0;
            for (int first18 = -32; first18 < n16; first18 += 32) {
                const bool more19 = first18 + 32 < n16;
                if (more19) {
                    #pragma unroll
                    for (int u20 = 0; u20 < 1; ++u20) {
                        const int at21 = u20 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at22 = at21 % 4 * 8;
                        const int at23 = at21 / 4;
                        const int i24 = at10 + at23;
                        const int k25 = first18 + 32 + at22;
                        if (n16 % 8 == 0 && n28 % 8 == 0 && i24 < n26 && k25 + 8 <= n16) {
                            lw_pack<unsigned short, 8> pack29;
                            pack29 = *(const lw_pack<unsigned short, 8>*)&x0_bits[k25 + i24 * n16 + i9 * n28];
                            #pragma unroll
                            for (int e30 = 0; e30 < 8; ++e30) {
                                const unsigned short v31 = pack29.at[e30];
                                left_next[u20 * 8 + e30] = v31;
                            }
                        } else {
                            #pragma unroll
                            for (int e32 = 0; e32 < 8; ++e32) {
                                left_next[u20 * 8 + e32] = 0;
                                if (i24 < n26 && (k25 + e32) < n16) {
                                    const unsigned short v33 = x0_bits[(k25 + e32) + i24 * n16 + i9 * n28];
                                    left_next[u20 * 8 + e32] = v33;
                                }
                            }
                        }
                    }
                    #pragma unroll
                    for (int u34 = 0; u34 < 1; ++u34) {
                        const int at35 = u34 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at36 = at35 % 4 * 8;
                        const int at37 = at35 / 4;
                        const int i38 = first13 + at37;
                        const int k39 = first18 + 32 + at36;
                        if (n16 % 8 == 0 && n41 % 8 == 0 && i38 < n14 && k39 + 8 <= n16) {
                            lw_pack<unsigned short, 8> pack42;
                            pack42 = *(const lw_pack<unsigned short, 8>*)&x1_bits[k39 + i38 * n16 + i9 * n41];
                            #pragma unroll
                            for (int e43 = 0; e43 < 8; ++e43) {
                                const unsigned short v44 = pack42.at[e43];
                                right_next[u34 * 8 + e43] = v44;
                            }
                        } else {
                            #pragma unroll
                            for (int e45 = 0; e45 < 8; ++e45) {
                                right_next[u34 * 8 + e45] = 0;
                                if (i38 < n14 && (k39 + e45) < n16) {
                                    const unsigned short v46 = x1_bits[(k39 + e45) + i38 * n16 + i9 * n41];
                                    right_next[u34 * 8 + e45] = v46;
                                }
                            }
                        }
                    }
                }
                if (first18 >= 0) {
                    #pragma unroll
                    for (int k47 = 0; k47 < 32; k47 += 16) {
                        unsigned left_now[2][4];
                        #pragma unroll
                        for (int g48 = 0; g48 < 2; ++g48) {
                            lw_words4(left_now[g48], &left[stage17][(int)threadIdx.y % 2 * 32 + g48 * 16 + (int)threadIdx.x / 8 % 2 * 8 + (int)threadIdx.x % 8][k47 + (int)threadIdx.x / 16 * 8]);
                        }
                        unsigned right_now[2][2];
                        #pragma unroll
                        for (int g49 = 0; g49 < 2; ++g49) {
                            lw_words2(right_now[g49], &right[stage17][(int)threadIdx.y / 2 * 16 + g49 * 8 + 0 + (int)threadIdx.x % 8][k47 + (int)threadIdx.x / 8 % 2 * 8]);
                        }
                        #pragma unroll
                        for (int r50 = 0; r50 < 2; ++r50) {
                            #pragma unroll
                            for (int c51 = 0; c51 < 2; ++c51) {
                                lw_mma_f16(p0[(r50 * 2 + 0) * 4 + c51 * 2 + 0], p0[(r50 * 2 + 0) * 4 + c51 * 2 + 1], p0[(r50 * 2 + 1) * 4 + c51 * 2 + 0], p0[(r50 * 2 + 1) * 4 + c51 * 2 + 1], left_now[r50], right_now[c51]);
                            }
                        }
                    }
                }
                stage17 = 1 - stage17;
                if (more19) {
                    #pragma unroll
                    for (int u52 = 0; u52 < 1; ++u52) {
                        const int at54 = u52 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at55 = at54 % 4 * 8;
                        const int at56 = at54 / 4;
                        lw_pack<unsigned short, 8> whole;
                        #pragma unroll
                        for (int e53 = 0; e53 < 8; ++e53) {
                            whole.at[e53] = left_next[u52 * 8 + e53];
                        }
                        *(lw_pack<unsigned short, 8>*)&left[stage17][at56][at55] = whole;
                    }
                    #pragma unroll
                    for (int u57 = 0; u57 < 1; ++u57) {
                        const int at59 = u57 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at60 = at59 % 4 * 8;
                        const int at61 = at59 / 4;
                        lw_pack<unsigned short, 8> whole;
                        #pragma unroll
                        for (int e58 = 0; e58 < 8; ++e58) {
                            whole.at[e58] = right_next[u57 * 8 + e58];
                        }
                        *(lw_pack<unsigned short, 8>*)&right[stage17][at61][at60] = whole;
                    }
                }
                __syncthreads();
            }
        }
        #pragma unroll
        for (int r62 = 0; r62 < 4; ++r62) {
            #pragma unroll
            for (int c63 = 0; c63 < 4; ++c63) {
                const int i64 = at10 + r62 * 8 + (int)threadIdx.y % 2 * 32 + (int)threadIdx.x / 4;
                const int i65 = first13 + c63 / 2 * 8 + (int)threadIdx.y / 2 * 16 + (int)threadIdx.x % 4 * 2 + c63 % 2;
                if (i64 < n26 && i65 < n14) {
                    const float v66 = lw_from_f16(lw_to_f16((float)p0[r62 * 4 + c63]));
                    const float v67 = lw_from_f16(lw_to_f16(v66 * 0x1.998p-3f));
                    acc12[r62] = acc12[r62] >= v67 || acc12[r62] != acc12[r62] ? acc12[r62] : v67;
                }
            }
        }
    }
    float s4_rows[4];
    float (*const table68)[17] = (float (*)[17])lw_near;
    #pragma unroll
    for (int r69 = 0; r69 < 4; ++r69) {
        float all70 = (acc12 + r69)[0];
        table68[r69 * 8 + (int)threadIdx.y % 2 * 32 + (int)threadIdx.x / 4][(int)threadIdx.y / 2 * 4 + (int)threadIdx.x % 4] = all70;
    }
    __syncthreads();
    #pragma unroll
    for (int r69 = 0; r69 < 4; ++r69) {
        float all71 = table68[r69 * 8 + (int)threadIdx.y % 2 * 32 + (int)threadIdx.x / 4][0];
        for (int k72 = 1; k72 < 16; ++k72) {
            all71 = all71 >= table68[r69 * 8 + (int)threadIdx.y % 2 * 32 + (int)threadIdx.x / 4][k72] || all71 != all71 ? all71 : table68[r69 * 8 + (int)threadIdx.y % 2 * 32 + (int)threadIdx.x / 4][k72];
        }
        const float v73 = lw_from_f16(lw_to_f16(all71));
        s4_rows[r69] = v73;
    }
    __syncthreads();
    // pass 2: sum, sum
    float acc74[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    float acc75[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    float acc76[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    float acc77[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int first78 = 0; first78 < n14; first78 += 64) {
        float p0[16];
        #pragma unroll
        for (int k79 = 0; k79 < 16; ++k79) {
            p0[k79] = 0.0f;
        }
         {
            unsigned short (*const left)[64][40] = (unsigned short (*)[64][40])(lw_near + 0);
            unsigned short left_next[8];
            unsigned short (*const right)[64][40] = (unsigned short (*)[64][40])(lw_near + 10240);
            unsigned short right_next[8];
            int stage80 = 0;
            for (int first81 = -32; first81 < n16; first81 += 32) {
                const bool more82 = first81 + 32 < n16;
                if (more82) {
                    #pragma unroll
                    for (int u83 = 0; u83 < 1; ++u83) {
                        const int at84 = u83 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at85 = at84 % 4 * 8;
                        const int at86 = at84 / 4;
                        const int i87 = at10 + at86;
                        const int k88 = first81 + 32 + at85;
                        if (n16 % 8 == 0 && n28 % 8 == 0 && i87 < n26 && k88 + 8 <= n16) {
                            lw_pack<unsigned short, 8> pack89;
                            pack89 = *(const lw_pack<unsigned short, 8>*)&x0_bits[k88 + i87 * n16 + i9 * n28];
                            #pragma unroll
                            for (int e90 = 0; e90 < 8; ++e90) {
                                const unsigned short v91 = pack89.at[e90];
                                left_next[u83 * 8 + e90] = v91;
                            }
                        } else {
                            #pragma unroll
                            for (int e92 = 0; e92 < 8; ++e92) {
                                left_next[u83 * 8 + e92] = 0;
                                if (i87 < n26 && (k88 + e92) < n16) {
                                    const unsigned short v93 = x0_bits[(k88 + e92) + i87 * n16 + i9 * n28];
                                    left_next[u83 * 8 + e92] = v93;
                                }
                            }
                        }
                    }
                    #pragma unroll
                    for (int u94 = 0; u94 < 1; ++u94) {
                        const int at95 = u94 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at96 = at95 % 4 * 8;
                        const int at97 = at95 / 4;
                        const int i98 = first78 + at97;
                        const int k99 = first81 + 32 + at96;
                        if (n16 % 8 == 0 && n41 % 8 == 0 && i98 < n14 && k99 + 8 <= n16) {
                            lw_pack<unsigned short, 8> pack100;
                            pack100 = *(const lw_pack<unsigned short, 8>*)&x1_bits[k99 + i98 * n16 + i9 * n41];
                            #pragma unroll
                            for (int e101 = 0; e101 < 8; ++e101) {
                                const unsigned short v102 = pack100.at[e101];
                                right_next[u94 * 8 + e101] = v102;
                            }
                        } else {
                            #pragma unroll
                            for (int e103 = 0; e103 < 8; ++e103) {
                                right_next[u94 * 8 + e103] = 0;
                                if (i98 < n14 && (k99 + e103) < n16) {
                                    const unsigned short v104 = x1_bits[(k99 + e103) + i98 * n16 + i9 * n41];
                                    right_next[u94 * 8 + e103] = v104;
                                }
                            }
                        }
                    }
                }
                if (first81 >= 0) {
                    #pragma unroll
                    for (int k105 = 0; k105 < 32; k105 += 16) {
                        unsigned left_now[2][4];
                        #pragma unroll
                        for (int g106 = 0; g106 < 2; ++g106) {
                            lw_words4(left_now[g106], &left[stage80][(int)threadIdx.y % 2 * 32 + g106 * 16 + (int)threadIdx.x / 8 % 2 * 8 + (int)threadIdx.x % 8][k105 + (int)threadIdx.x / 16 * 8]);
                        }
                        unsigned right_now[2][2];
                        #pragma unroll
                        for (int g107 = 0; g107 < 2; ++g107) {
                            lw_words2(right_now[g107], &right[stage80][(int)threadIdx.y / 2 * 16 + g107 * 8 + 0 + (int)threadIdx.x % 8][k105 + (int)threadIdx.x / 8 % 2 * 8]);
                        }
                        #pragma unroll
                        for (int r108 = 0; r108 < 2; ++r108) {
                            #pragma unroll
                            for (int c109 = 0; c109 < 2; ++c109) {
                                lw_mma_f16(p0[(r108 * 2 + 0) * 4 + c109 * 2 + 0], p0[(r108 * 2 + 0) * 4 + c109 * 2 + 1], p0[(r108 * 2 + 1) * 4 + c109 * 2 + 0], p0[(r108 * 2 + 1) * 4 + c109 * 2 + 1], left_now[r108], right_now[c109]);
                            }
                        }
                    }
                }
                stage80 = 1 - stage80;
                if (more82) {
                    #pragma unroll
                    for (int u110 = 0; u110 < 1; ++u110) {
                        const int at112 = u110 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at113 = at112 % 4 * 8;
                        const int at114 = at112 / 4;
                        lw_pack<unsigned short, 8> whole;
                        #pragma unroll
                        for (int e111 = 0; e111 < 8; ++e111) {
                            whole.at[e111] = left_next[u110 * 8 + e111];
                        }
                        *(lw_pack<unsigned short, 8>*)&left[stage80][at114][at113] = whole;
                    }
                    #pragma unroll
                    for (int u115 = 0; u115 < 1; ++u115) {
                        const int at117 = u115 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at118 = at117 % 4 * 8;
                        const int at119 = at117 / 4;
                        lw_pack<unsigned short, 8> whole;
                        #pragma unroll
                        for (int e116 = 0; e116 < 8; ++e116) {
                            whole.at[e116] = right_next[u115 * 8 + e116];
                        }
                        *(lw_pack<unsigned short, 8>*)&right[stage80][at119][at118] = whole;
                    }
                }
                __syncthreads();
            }
        }
        #pragma unroll
        for (int r120 = 0; r120 < 4; ++r120) {
            #pragma unroll
            for (int c121 = 0; c121 < 4; ++c121) {
                const int i122 = at10 + r120 * 8 + (int)threadIdx.y % 2 * 32 + (int)threadIdx.x / 4;
                const int i123 = first78 + c121 / 2 * 8 + (int)threadIdx.y / 2 * 16 + (int)threadIdx.x % 4 * 2 + c121 % 2;
                if (i122 < n26 && i123 < n14) {
                    const float v124 = lw_from_f16(lw_to_f16((float)p0[r120 * 4 + c121]));
                    const float v125 = lw_from_f16(lw_to_f16(v124 * 0x1.998p-3f));
                    const bool v126 = v125 == s4_rows[r120];
                    const float v127 = lw_from_f16(lw_to_f16((float)v126));
                    lw_add(acc74[r120], acc75[r120], v127);
                    const float v128 = lw_from_f16(lw_to_f16(v125 - s4_rows[r120]));
                    const float v129 = lw_from_f16(lw_to_f16(lw_exp_f32(v128)));
                    lw_add(acc76[r120], acc77[r120], v129);
                }
            }
        }
    }
    float s8_rows[4];
    float (*const table130)[17] = (float (*)[17])lw_near;
    #pragma unroll
    for (int r131 = 0; r131 < 4; ++r131) {
        float all132 = lw_added((acc74 + r131)[0], (acc75 + r131)[0]);
        table130[r131 * 8 + (int)threadIdx.y % 2 * 32 + (int)threadIdx.x / 4][(int)threadIdx.y / 2 * 4 + (int)threadIdx.x % 4] = all132;
    }
    __syncthreads();
    #pragma unroll
    for (int r131 = 0; r131 < 4; ++r131) {
        float all133 = table130[r131 * 8 + (int)threadIdx.y % 2 * 32 + (int)threadIdx.x / 4][0];
        for (int k134 = 1; k134 < 16; ++k134) {
            all133 = all133 + table130[r131 * 8 + (int)threadIdx.y % 2 * 32 + (int)threadIdx.x / 4][k134];
        }
        const float v135 = lw_from_f16(lw_to_f16(all133));
        s8_rows[r131] = v135;
    }
    __syncthreads();
    float s11_rows[4];
    float (*const table136)[17] = (float (*)[17])lw_near;
    #pragma unroll
    for (int r137 = 0; r137 < 4; ++r137) {
        float all138 = lw_added((acc76 + r137)[0], (acc77 + r137)[0]);
        table136[r137 * 8 + (int)threadIdx.y % 2 * 32 + (int)threadIdx.x / 4][(int)threadIdx.y / 2 * 4 + (int)threadIdx.x % 4] = all138;
    }
    __syncthreads();
    #pragma unroll
    for (int r137 = 0; r137 < 4; ++r137) {
        float all139 = table136[r137 * 8 + (int)threadIdx.y % 2 * 32 + (int)threadIdx.x / 4][0];
        for (int k140 = 1; k140 < 16; ++k140) {
            all139 = all139 + table136[r137 * 8 + (int)threadIdx.y % 2 * 32 + (int)threadIdx.x / 4][k140];
        }
        const float v141 = lw_from_f16(lw_to_f16(all139));
        s11_rows[r137] = v141;
    }
    __syncthreads();
    // pass 3: sum
    float acc142[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    float acc143[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    const unsigned short* const x2_bits = x2;
    const unsigned short* const x3_bits = x3;
    for (int first144 = 0; first144 < n14; first144 += 64) {
        float p0[16];
        #pragma unroll
        for (int k145 = 0; k145 < 16; ++k145) {
            p0[k145] = 0.0f;
        }
         {
            unsigned short (*const left)[64][40] = (unsigned short (*)[64][40])(lw_near + 0);
            unsigned short left_next[8];
            unsigned short (*const right)[64][40] = (unsigned short (*)[64][40])(lw_near + 10240);
            unsigned short right_next[8];
            int stage146 = 0;
            for (int first147 = -32; first147 < n16; first147 += 32) {
                const bool more148 = first147 + 32 < n16;
                if (more148) {
                    #pragma unroll
                    for (int u149 = 0; u149 < 1; ++u149) {
                        const int at150 = u149 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at151 = at150 % 4 * 8;
                        const int at152 = at150 / 4;
                        const int i153 = at10 + at152;
                        const int k154 = first147 + 32 + at151;
                        if (n16 % 8 == 0 && n28 % 8 == 0 && i153 < n26 && k154 + 8 <= n16) {
                            lw_pack<unsigned short, 8> pack155;
                            pack155 = *(const lw_pack<unsigned short, 8>*)&x0_bits[k154 + i153 * n16 + i9 * n28];
                            #pragma unroll
                            for (int e156 = 0; e156 < 8; ++e156) {
                                const unsigned short v157 = pack155.at[e156];
                                left_next[u149 * 8 + e156] = v157;
                            }
                        } else {
                            #pragma unroll
                            for (int e158 = 0; e158 < 8; ++e158) {
                                left_next[u149 * 8 + e158] = 0;
                                if (i153 < n26 && (k154 + e158) < n16) {
                                    const unsigned short v159 = x0_bits[(k154 + e158) + i153 * n16 + i9 * n28];
                                    left_next[u149 * 8 + e158] = v159;
                                }
                            }
                        }
                    }
                    #pragma unroll
                    for (int u160 = 0; u160 < 1; ++u160) {
                        const int at161 = u160 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at162 = at161 % 4 * 8;
                        const int at163 = at161 / 4;
                        const int i164 = first144 + at163;
                        const int k165 = first147 + 32 + at162;
                        if (n16 % 8 == 0 && n41 % 8 == 0 && i164 < n14 && k165 + 8 <= n16) {
                            lw_pack<unsigned short, 8> pack166;
                            pack166 = *(const lw_pack<unsigned short, 8>*)&x1_bits[k165 + i164 * n16 + i9 * n41];
                            #pragma unroll
                            for (int e167 = 0; e167 < 8; ++e167) {
                                const unsigned short v168 = pack166.at[e167];
                                right_next[u160 * 8 + e167] = v168;
                            }
                        } else {
                            #pragma unroll
                            for (int e169 = 0; e169 < 8; ++e169) {
                                right_next[u160 * 8 + e169] = 0;
                                if (i164 < n14 && (k165 + e169) < n16) {
                                    const unsigned short v170 = x1_bits[(k165 + e169) + i164 * n16 + i9 * n41];
                                    right_next[u160 * 8 + e169] = v170;
                                }
                            }
                        }
                    }
                }
                if (first147 >= 0) {
                    #pragma unroll
                    for (int k171 = 0; k171 < 32; k171 += 16) {
                        unsigned left_now[2][4];
                        #pragma unroll
                        for (int g172 = 0; g172 < 2; ++g172) {
                            lw_words4(left_now[g172], &left[stage146][(int)threadIdx.y % 2 * 32 + g172 * 16 + (int)threadIdx.x / 8 % 2 * 8 + (int)threadIdx.x % 8][k171 + (int)threadIdx.x / 16 * 8]);
                        }
                        unsigned right_now[2][2];
                        #pragma unroll
                        for (int g173 = 0; g173 < 2; ++g173) {
                            lw_words2(right_now[g173], &right[stage146][(int)threadIdx.y / 2 * 16 + g173 * 8 + 0 + (int)threadIdx.x % 8][k171 + (int)threadIdx.x / 8 % 2 * 8]);
                        }
                        #pragma unroll
                        for (int r174 = 0; r174 < 2; ++r174) {
                            #pragma unroll
                            for (int c175 = 0; c175 < 2; ++c175) {
                                lw_mma_f16(p0[(r174 * 2 + 0) * 4 + c175 * 2 + 0], p0[(r174 * 2 + 0) * 4 + c175 * 2 + 1], p0[(r174 * 2 + 1) * 4 + c175 * 2 + 0], p0[(r174 * 2 + 1) * 4 + c175 * 2 + 1], left_now[r174], right_now[c175]);
                            }
                        }
                    }
                }
                stage146 = 1 - stage146;
                if (more148) {
                    #pragma unroll
                    for (int u176 = 0; u176 < 1; ++u176) {
                        const int at178 = u176 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at179 = at178 % 4 * 8;
                        const int at180 = at178 / 4;
                        lw_pack<unsigned short, 8> whole;
                        #pragma unroll
                        for (int e177 = 0; e177 < 8; ++e177) {
                            whole.at[e177] = left_next[u176 * 8 + e177];
                        }
                        *(lw_pack<unsigned short, 8>*)&left[stage146][at180][at179] = whole;
                    }
                    #pragma unroll
                    for (int u181 = 0; u181 < 1; ++u181) {
                        const int at183 = u181 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at184 = at183 % 4 * 8;
                        const int at185 = at183 / 4;
                        lw_pack<unsigned short, 8> whole;
                        #pragma unroll
                        for (int e182 = 0; e182 < 8; ++e182) {
                            whole.at[e182] = right_next[u181 * 8 + e182];
                        }
                        *(lw_pack<unsigned short, 8>*)&right[stage146][at185][at184] = whole;
                    }
                }
                __syncthreads();
            }
        }
        float p1[16];
        #pragma unroll
        for (int k186 = 0; k186 < 16; ++k186) {
            p1[k186] = 0.0f;
        }
         {
            unsigned short (*const left)[64][40] = (unsigned short (*)[64][40])(lw_near + 0);
            unsigned short left_next[8];
            unsigned short (*const right)[64][40] = (unsigned short (*)[64][40])(lw_near + 10240);
            unsigned short right_next[8];
            int stage188 = 0;
            for (int first189 = -32; first189 < n187; first189 += 32) {
                const bool more190 = first189 + 32 < n187;
                if (more190) {
                    #pragma unroll
                    for (int u191 = 0; u191 < 1; ++u191) {
                        const int at192 = u191 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at193 = at192 % 4 * 8;
                        const int at194 = at192 / 4;
                        const int i195 = at10 + at194;
                        const int k196 = first189 + 32 + at193;
                        if (n187 % 8 == 0 && n198 % 8 == 0 && i195 < n26 && k196 + 8 <= n187) {
                            lw_pack<unsigned short, 8> pack199;
                            pack199 = *(const lw_pack<unsigned short, 8>*)&x2_bits[k196 + i195 * n187 + i9 * n198];
                            #pragma unroll
                            for (int e200 = 0; e200 < 8; ++e200) {
                                const unsigned short v201 = pack199.at[e200];
                                left_next[u191 * 8 + e200] = v201;
                            }
                        } else {
                            #pragma unroll
                            for (int e202 = 0; e202 < 8; ++e202) {
                                left_next[u191 * 8 + e202] = 0;
                                if (i195 < n26 && (k196 + e202) < n187) {
                                    const unsigned short v203 = x2_bits[(k196 + e202) + i195 * n187 + i9 * n198];
                                    left_next[u191 * 8 + e202] = v203;
                                }
                            }
                        }
                    }
                    #pragma unroll
                    for (int u204 = 0; u204 < 1; ++u204) {
                        const int at205 = u204 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at206 = at205 % 4 * 8;
                        const int at207 = at205 / 4;
                        const int i208 = first144 + at207;
                        const int k209 = first189 + 32 + at206;
                        if (n187 % 8 == 0 && n211 % 8 == 0 && i208 < n14 && k209 + 8 <= n187) {
                            lw_pack<unsigned short, 8> pack212;
                            pack212 = *(const lw_pack<unsigned short, 8>*)&x3_bits[k209 + i208 * n187 + i9 * n211];
                            #pragma unroll
                            for (int e213 = 0; e213 < 8; ++e213) {
                                const unsigned short v214 = pack212.at[e213];
                                right_next[u204 * 8 + e213] = v214;
                            }
                        } else {
                            #pragma unroll
                            for (int e215 = 0; e215 < 8; ++e215) {
                                right_next[u204 * 8 + e215] = 0;
                                if (i208 < n14 && (k209 + e215) < n187) {
                                    const unsigned short v216 = x3_bits[(k209 + e215) + i208 * n187 + i9 * n211];
                                    right_next[u204 * 8 + e215] = v216;
                                }
                            }
                        }
                    }
                }
                if (first189 >= 0) {
                    #pragma unroll
                    for (int k217 = 0; k217 < 32; k217 += 16) {
                        unsigned left_now[2][4];
                        #pragma unroll
                        for (int g218 = 0; g218 < 2; ++g218) {
                            lw_words4(left_now[g218], &left[stage188][(int)threadIdx.y % 2 * 32 + g218 * 16 + (int)threadIdx.x / 8 % 2 * 8 + (int)threadIdx.x % 8][k217 + (int)threadIdx.x / 16 * 8]);
                        }
                        unsigned right_now[2][2];
                        #pragma unroll
                        for (int g219 = 0; g219 < 2; ++g219) {
                            lw_words2(right_now[g219], &right[stage188][(int)threadIdx.y / 2 * 16 + g219 * 8 + 0 + (int)threadIdx.x % 8][k217 + (int)threadIdx.x / 8 % 2 * 8]);
                        }
                        #pragma unroll
                        for (int r220 = 0; r220 < 2; ++r220) {
                            #pragma unroll
                            for (int c221 = 0; c221 < 2; ++c221) {
                                lw_mma_f16(p1[(r220 * 2 + 0) * 4 + c221 * 2 + 0], p1[(r220 * 2 + 0) * 4 + c221 * 2 + 1], p1[(r220 * 2 + 1) * 4 + c221 * 2 + 0], p1[(r220 * 2 + 1) * 4 + c221 * 2 + 1], left_now[r220], right_now[c221]);
                            }
                        }
                    }
                }
                stage188 = 1 - stage188;
                if (more190) {
                    #pragma unroll
                    for (int u222 = 0; u222 < 1; ++u222) {
                        const int at224 = u222 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at225 = at224 % 4 * 8;
                        const int at226 = at224 / 4;
                        lw_pack<unsigned short, 8> whole;
                        #pragma unroll
                        for (int e223 = 0; e223 < 8; ++e223) {
                            whole.at[e223] = left_next[u222 * 8 + e223];
                        }
                        *(lw_pack<unsigned short, 8>*)&left[stage188][at226][at225] = whole;
                    }
                    #pragma unroll
                    for (int u227 = 0; u227 < 1; ++u227) {
                        const int at229 = u227 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at230 = at229 % 4 * 8;
                        const int at231 = at229 / 4;
                        lw_pack<unsigned short, 8> whole;
                        #pragma unroll
                        for (int e228 = 0; e228 < 8; ++e228) {
                            whole.at[e228] = right_next[u227 * 8 + e228];
                        }
                        *(lw_pack<unsigned short, 8>*)&right[stage188][at231][at230] = whole;
                    }
                }
                __syncthreads();
            }
        }
        #pragma unroll
        for (int r232 = 0; r232 < 4; ++r232) {
            #pragma unroll
            for (int c233 = 0; c233 < 4; ++c233) {
                const int i234 = at10 + r232 * 8 + (int)threadIdx.y % 2 * 32 + (int)threadIdx.x / 4;
                const int i235 = first144 + c233 / 2 * 8 + (int)threadIdx.y / 2 * 16 + (int)threadIdx.x % 4 * 2 + c233 % 2;
                if (i234 < n26 && i235 < n14) {
                    const float v236 = lw_from_f16(lw_to_f16((float)p1[r232 * 4 + c233]));
                    const float v237 = lw_from_f16(lw_to_f16(v236 / s11_rows[r232]));
                    const float v238 = -v237;
                    const float v239 = lw_from_f16(lw_to_f16((float)p0[r232 * 4 + c233]));
                    const float v240 = lw_from_f16(lw_to_f16(v239 * 0x1.998p-3f));
                    const float v241 = lw_from_f16(lw_to_f16(v240 - s4_rows[r232]));
                    const float v242 = lw_from_f16(lw_to_f16(lw_exp_f32(v241)));
                    const float v243 = lw_from_f16(lw_to_f16(v242 / s11_rows[r232]));
                    const float v244 = lw_from_f16(lw_to_f16(v238 * v243));
                    lw_add(acc142[r232], acc143[r232], v244);
                }
            }
        }
    }
    float s20_rows[4];
    float (*const table245)[17] = (float (*)[17])lw_near;
    #pragma unroll
    for (int r246 = 0; r246 < 4; ++r246) {
        float all247 = lw_added((acc142 + r246)[0], (acc143 + r246)[0]);
        table245[r246 * 8 + (int)threadIdx.y % 2 * 32 + (int)threadIdx.x / 4][(int)threadIdx.y / 2 * 4 + (int)threadIdx.x % 4] = all247;
    }
    __syncthreads();
    #pragma unroll
    for (int r246 = 0; r246 < 4; ++r246) {
        float all248 = table245[r246 * 8 + (int)threadIdx.y % 2 * 32 + (int)threadIdx.x / 4][0];
        for (int k249 = 1; k249 < 16; ++k249) {
            all248 = all248 + table245[r246 * 8 + (int)threadIdx.y % 2 * 32 + (int)threadIdx.x / 4][k249];
        }
        const float v250 = lw_from_f16(lw_to_f16(all248));
        s20_rows[r246] = v250;
    }
    __syncthreads();
    // pass 4: sum
    float acc251[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    float acc252[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int first253 = 0; first253 < n14; first253 += 64) {
        float p0[16];
        #pragma unroll
        for (int k254 = 0; k254 < 16; ++k254) {
            p0[k254] = 0.0f;
        }
         {
            unsigned short (*const left)[64][40] = (unsigned short (*)[64][40])(lw_near + 0);
            unsigned short left_next[8];
            unsigned short (*const right)[64][40] = (unsigned short (*)[64][40])(lw_near + 10240);
            unsigned short right_next[8];
            int stage255 = 0;
            for (int first256 = -32; first256 < n16; first256 += 32) {
                const bool more257 = first256 + 32 < n16;
                if (more257) {
                    #pragma unroll
                    for (int u258 = 0; u258 < 1; ++u258) {
                        const int at259 = u258 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at260 = at259 % 4 * 8;
                        const int at261 = at259 / 4;
                        const int i262 = at10 + at261;
                        const int k263 = first256 + 32 + at260;
                        if (n16 % 8 == 0 && n28 % 8 == 0 && i262 < n26 && k263 + 8 <= n16) {
                            lw_pack<unsigned short, 8> pack264;
                            pack264 = *(const lw_pack<unsigned short, 8>*)&x0_bits[k263 + i262 * n16 + i9 * n28];
                            #pragma unroll
                            for (int e265 = 0; e265 < 8; ++e265) {
                                const unsigned short v266 = pack264.at[e265];
                                left_next[u258 * 8 + e265] = v266;
                            }
                        } else {
                            #pragma unroll
                            for (int e267 = 0; e267 < 8; ++e267) {
                                left_next[u258 * 8 + e267] = 0;
                                if (i262 < n26 && (k263 + e267) < n16) {
                                    const unsigned short v268 = x0_bits[(k263 + e267) + i262 * n16 + i9 * n28];
                                    left_next[u258 * 8 + e267] = v268;
                                }
                            }
                        }
                    }
                    #pragma unroll
                    for (int u269 = 0; u269 < 1; ++u269) {
                        const int at270 = u269 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at271 = at270 % 4 * 8;
                        const int at272 = at270 / 4;
                        const int i273 = first253 + at272;
                        const int k274 = first256 + 32 + at271;
                        if (n16 % 8 == 0 && n41 % 8 == 0 && i273 < n14 && k274 + 8 <= n16) {
                            lw_pack<unsigned short, 8> pack275;
                            pack275 = *(const lw_pack<unsigned short, 8>*)&x1_bits[k274 + i273 * n16 + i9 * n41];
                            #pragma unroll
                            for (int e276 = 0; e276 < 8; ++e276) {
                                const unsigned short v277 = pack275.at[e276];
                                right_next[u269 * 8 + e276] = v277;
                            }
                        } else {
                            #pragma unroll
                            for (int e278 = 0; e278 < 8; ++e278) {
                                right_next[u269 * 8 + e278] = 0;
                                if (i273 < n14 && (k274 + e278) < n16) {
                                    const unsigned short v279 = x1_bits[(k274 + e278) + i273 * n16 + i9 * n41];
                                    right_next[u269 * 8 + e278] = v279;
                                }
                            }
                        }
                    }
                }
                if (first256 >= 0) {
                    #pragma unroll
                    for (int k280 = 0; k280 < 32; k280 += 16) {
                        unsigned left_now[2][4];
                        #pragma unroll
                        for (int g281 = 0; g281 < 2; ++g281) {
                            lw_words4(left_now[g281], &left[stage255][(int)threadIdx.y % 2 * 32 + g281 * 16 + (int)threadIdx.x / 8 % 2 * 8 + (int)threadIdx.x % 8][k280 + (int)threadIdx.x / 16 * 8]);
                        }
                        unsigned right_now[2][2];
                        #pragma unroll
                        for (int g282 = 0; g282 < 2; ++g282) {
                            lw_words2(right_now[g282], &right[stage255][(int)threadIdx.y / 2 * 16 + g282 * 8 + 0 + (int)threadIdx.x % 8][k280 + (int)threadIdx.x / 8 % 2 * 8]);
                        }
                        #pragma unroll
                        for (int r283 = 0; r283 < 2; ++r283) {
                            #pragma unroll
                            for (int c284 = 0; c284 < 2; ++c284) {
                                lw_mma_f16(p0[(r283 * 2 + 0) * 4 + c284 * 2 + 0], p0[(r283 * 2 + 0) * 4 + c284 * 2 + 1], p0[(r283 * 2 + 1) * 4 + c284 * 2 + 0], p0[(r283 * 2 + 1) * 4 + c284 * 2 + 1], left_now[r283], right_now[c284]);
                            }
                        }
                    }
                }
                stage255 = 1 - stage255;
                if (more257) {
                    #pragma unroll
                    for (int u285 = 0; u285 < 1; ++u285) {
                        const int at287 = u285 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at288 = at287 % 4 * 8;
                        const int at289 = at287 / 4;
                        lw_pack<unsigned short, 8> whole;
                        #pragma unroll
                        for (int e286 = 0; e286 < 8; ++e286) {
                            whole.at[e286] = left_next[u285 * 8 + e286];
                        }
                        *(lw_pack<unsigned short, 8>*)&left[stage255][at289][at288] = whole;
                    }
                    #pragma unroll
                    for (int u290 = 0; u290 < 1; ++u290) {
                        const int at292 = u290 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at293 = at292 % 4 * 8;
                        const int at294 = at292 / 4;
                        lw_pack<unsigned short, 8> whole;
                        #pragma unroll
                        for (int e291 = 0; e291 < 8; ++e291) {
                            whole.at[e291] = right_next[u290 * 8 + e291];
                        }
                        *(lw_pack<unsigned short, 8>*)&right[stage255][at294][at293] = whole;
                    }
                }
                __syncthreads();
            }
        }
        float p1[16];
        #pragma unroll
        for (int k295 = 0; k295 < 16; ++k295) {
            p1[k295] = 0.0f;
        }
         {
            unsigned short (*const left)[64][40] = (unsigned short (*)[64][40])(lw_near + 0);
            unsigned short left_next[8];
            unsigned short (*const right)[64][40] = (unsigned short (*)[64][40])(lw_near + 10240);
            unsigned short right_next[8];
            int stage296 = 0;
            for (int first297 = -32; first297 < n187; first297 += 32) {
                const bool more298 = first297 + 32 < n187;
                if (more298) {
                    #pragma unroll
                    for (int u299 = 0; u299 < 1; ++u299) {
                        const int at300 = u299 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at301 = at300 % 4 * 8;
                        const int at302 = at300 / 4;
                        const int i303 = at10 + at302;
                        const int k304 = first297 + 32 + at301;
                        if (n187 % 8 == 0 && n198 % 8 == 0 && i303 < n26 && k304 + 8 <= n187) {
                            lw_pack<unsigned short, 8> pack305;
                            pack305 = *(const lw_pack<unsigned short, 8>*)&x2_bits[k304 + i303 * n187 + i9 * n198];
                            #pragma unroll
                            for (int e306 = 0; e306 < 8; ++e306) {
                                const unsigned short v307 = pack305.at[e306];
                                left_next[u299 * 8 + e306] = v307;
                            }
                        } else {
                            #pragma unroll
                            for (int e308 = 0; e308 < 8; ++e308) {
                                left_next[u299 * 8 + e308] = 0;
                                if (i303 < n26 && (k304 + e308) < n187) {
                                    const unsigned short v309 = x2_bits[(k304 + e308) + i303 * n187 + i9 * n198];
                                    left_next[u299 * 8 + e308] = v309;
                                }
                            }
                        }
                    }
                    #pragma unroll
                    for (int u310 = 0; u310 < 1; ++u310) {
                        const int at311 = u310 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at312 = at311 % 4 * 8;
                        const int at313 = at311 / 4;
                        const int i314 = first253 + at313;
                        const int k315 = first297 + 32 + at312;
                        if (n187 % 8 == 0 && n211 % 8 == 0 && i314 < n14 && k315 + 8 <= n187) {
                            lw_pack<unsigned short, 8> pack316;
                            pack316 = *(const lw_pack<unsigned short, 8>*)&x3_bits[k315 + i314 * n187 + i9 * n211];
                            #pragma unroll
                            for (int e317 = 0; e317 < 8; ++e317) {
                                const unsigned short v318 = pack316.at[e317];
                                right_next[u310 * 8 + e317] = v318;
                            }
                        } else {
                            #pragma unroll
                            for (int e319 = 0; e319 < 8; ++e319) {
                                right_next[u310 * 8 + e319] = 0;
                                if (i314 < n14 && (k315 + e319) < n187) {
                                    const unsigned short v320 = x3_bits[(k315 + e319) + i314 * n187 + i9 * n211];
                                    right_next[u310 * 8 + e319] = v320;
                                }
                            }
                        }
                    }
                }
                if (first297 >= 0) {
                    #pragma unroll
                    for (int k321 = 0; k321 < 32; k321 += 16) {
                        unsigned left_now[2][4];
                        #pragma unroll
                        for (int g322 = 0; g322 < 2; ++g322) {
                            lw_words4(left_now[g322], &left[stage296][(int)threadIdx.y % 2 * 32 + g322 * 16 + (int)threadIdx.x / 8 % 2 * 8 + (int)threadIdx.x % 8][k321 + (int)threadIdx.x / 16 * 8]);
                        }
                        unsigned right_now[2][2];
                        #pragma unroll
                        for (int g323 = 0; g323 < 2; ++g323) {
                            lw_words2(right_now[g323], &right[stage296][(int)threadIdx.y / 2 * 16 + g323 * 8 + 0 + (int)threadIdx.x % 8][k321 + (int)threadIdx.x / 8 % 2 * 8]);
                        }
                        #pragma unroll
                        for (int r324 = 0; r324 < 2; ++r324) {
                            #pragma unroll
                            for (int c325 = 0; c325 < 2; ++c325) {
                                lw_mma_f16(p1[(r324 * 2 + 0) * 4 + c325 * 2 + 0], p1[(r324 * 2 + 0) * 4 + c325 * 2 + 1], p1[(r324 * 2 + 1) * 4 + c325 * 2 + 0], p1[(r324 * 2 + 1) * 4 + c325 * 2 + 1], left_now[r324], right_now[c325]);
                            }
                        }
                    }
                }
                stage296 = 1 - stage296;
                if (more298) {
                    #pragma unroll
                    for (int u326 = 0; u326 < 1; ++u326) {
                        const int at328 = u326 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at329 = at328 % 4 * 8;
                        const int at330 = at328 / 4;
                        lw_pack<unsigned short, 8> whole;
                        #pragma unroll
                        for (int e327 = 0; e327 < 8; ++e327) {
                            whole.at[e327] = left_next[u326 * 8 + e327];
                        }
                        *(lw_pack<unsigned short, 8>*)&left[stage296][at330][at329] = whole;
                    }
                    #pragma unroll
                    for (int u331 = 0; u331 < 1; ++u331) {
                        const int at333 = u331 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at334 = at333 % 4 * 8;
                        const int at335 = at333 / 4;
                        lw_pack<unsigned short, 8> whole;
                        #pragma unroll
                        for (int e332 = 0; e332 < 8; ++e332) {
                            whole.at[e332] = right_next[u331 * 8 + e332];
                        }
                        *(lw_pack<unsigned short, 8>*)&right[stage296][at335][at334] = whole;
                    }
                }
                __syncthreads();
            }
        }
        #pragma unroll
        for (int r336 = 0; r336 < 4; ++r336) {
            #pragma unroll
            for (int c337 = 0; c337 < 4; ++c337) {
                const int i338 = at10 + r336 * 8 + (int)threadIdx.y % 2 * 32 + (int)threadIdx.x / 4;
                const int i339 = first253 + c337 / 2 * 8 + (int)threadIdx.y / 2 * 16 + (int)threadIdx.x % 4 * 2 + c337 % 2;
                if (i338 < n26 && i339 < n14) {
                    const float v340 = lw_from_f16(lw_to_f16((float)p1[r336 * 4 + c337]));
                    const float v341 = lw_from_f16(lw_to_f16(v340 / s11_rows[r336]));
                    const float v342 = lw_from_f16(lw_to_f16(v341 + s20_rows[r336]));
                    const float v343 = lw_from_f16(lw_to_f16((float)p0[r336 * 4 + c337]));
                    const float v344 = lw_from_f16(lw_to_f16(v343 * 0x1.998p-3f));
                    const float v345 = lw_from_f16(lw_to_f16(v344 - s4_rows[r336]));
                    const float v346 = lw_from_f16(lw_to_f16(lw_exp_f32(v345)));
                    const float v347 = lw_from_f16(lw_to_f16(v342 * v346));
                    const float v348 = -v347;
                    lw_add(acc251[r336], acc252[r336], v348);
                }
            }
        }
    }
    float s25_rows[4];
    float (*const table349)[17] = (float (*)[17])lw_near;
    #pragma unroll
    for (int r350 = 0; r350 < 4; ++r350) {
        float all351 = lw_added((acc251 + r350)[0], (acc252 + r350)[0]);
        table349[r350 * 8 + (int)threadIdx.y % 2 * 32 + (int)threadIdx.x / 4][(int)threadIdx.y / 2 * 4 + (int)threadIdx.x % 4] = all351;
    }
    __syncthreads();
    #pragma unroll
    for (int r350 = 0; r350 < 4; ++r350) {
        float all352 = table349[r350 * 8 + (int)threadIdx.y % 2 * 32 + (int)threadIdx.x / 4][0];
        for (int k353 = 1; k353 < 16; ++k353) {
            all352 = all352 + table349[r350 * 8 + (int)threadIdx.y % 2 * 32 + (int)threadIdx.x / 4][k353];
        }
        const float v354 = lw_from_f16(lw_to_f16(all352));
        s25_rows[r350] = v354;
    }
    __syncthreads();
    // the last pass
    #pragma unroll
    for (int k355 = 0; k355 < 8; ++k355) {
        s31_sums[k355] = 0.0f;
    }
    for (int first356 = 0; first356 < n14; first356 += 64) {
        float p0[16];
        #pragma unroll
        for (int k357 = 0; k357 < 16; ++k357) {
            p0[k357] = 0.0f;
        }
         {
            unsigned short (*const left)[64][40] = (unsigned short (*)[64][40])(lw_near + 0);
            unsigned short left_next[8];
            unsigned short (*const right)[64][40] = (unsigned short (*)[64][40])(lw_near + 10240);
            unsigned short right_next[8];
            int stage358 = 0;
            for (int first359 = -32; first359 < n16; first359 += 32) {
                const bool more360 = first359 + 32 < n16;
                if (more360) {
                    #pragma unroll
                    for (int u361 = 0; u361 < 1; ++u361) {
                        const int at362 = u361 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at363 = at362 % 4 * 8;
                        const int at364 = at362 / 4;
                        const int i365 = at10 + at364;
                        const int k366 = first359 + 32 + at363;
                        if (n16 % 8 == 0 && n28 % 8 == 0 && i365 < n26 && k366 + 8 <= n16) {
                            lw_pack<unsigned short, 8> pack367;
                            pack367 = *(const lw_pack<unsigned short, 8>*)&x0_bits[k366 + i365 * n16 + i9 * n28];
                            #pragma unroll
                            for (int e368 = 0; e368 < 8; ++e368) {
                                const unsigned short v369 = pack367.at[e368];
                                left_next[u361 * 8 + e368] = v369;
                            }
                        } else {
                            #pragma unroll
                            for (int e370 = 0; e370 < 8; ++e370) {
                                left_next[u361 * 8 + e370] = 0;
                                if (i365 < n26 && (k366 + e370) < n16) {
                                    const unsigned short v371 = x0_bits[(k366 + e370) + i365 * n16 + i9 * n28];
                                    left_next[u361 * 8 + e370] = v371;
                                }
                            }
                        }
                    }
                    #pragma unroll
                    for (int u372 = 0; u372 < 1; ++u372) {
                        const int at373 = u372 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at374 = at373 % 4 * 8;
                        const int at375 = at373 / 4;
                        const int i376 = first356 + at375;
                        const int k377 = first359 + 32 + at374;
                        if (n16 % 8 == 0 && n41 % 8 == 0 && i376 < n14 && k377 + 8 <= n16) {
                            lw_pack<unsigned short, 8> pack378;
                            pack378 = *(const lw_pack<unsigned short, 8>*)&x1_bits[k377 + i376 * n16 + i9 * n41];
                            #pragma unroll
                            for (int e379 = 0; e379 < 8; ++e379) {
                                const unsigned short v380 = pack378.at[e379];
                                right_next[u372 * 8 + e379] = v380;
                            }
                        } else {
                            #pragma unroll
                            for (int e381 = 0; e381 < 8; ++e381) {
                                right_next[u372 * 8 + e381] = 0;
                                if (i376 < n14 && (k377 + e381) < n16) {
                                    const unsigned short v382 = x1_bits[(k377 + e381) + i376 * n16 + i9 * n41];
                                    right_next[u372 * 8 + e381] = v382;
                                }
                            }
                        }
                    }
                }
                if (first359 >= 0) {
                    #pragma unroll
                    for (int k383 = 0; k383 < 32; k383 += 16) {
                        unsigned left_now[2][4];
                        #pragma unroll
                        for (int g384 = 0; g384 < 2; ++g384) {
                            lw_words4(left_now[g384], &left[stage358][(int)threadIdx.y % 2 * 32 + g384 * 16 + (int)threadIdx.x / 8 % 2 * 8 + (int)threadIdx.x % 8][k383 + (int)threadIdx.x / 16 * 8]);
                        }
                        unsigned right_now[2][2];
                        #pragma unroll
                        for (int g385 = 0; g385 < 2; ++g385) {
                            lw_words2(right_now[g385], &right[stage358][(int)threadIdx.y / 2 * 16 + g385 * 8 + 0 + (int)threadIdx.x % 8][k383 + (int)threadIdx.x / 8 % 2 * 8]);
                        }
                        #pragma unroll
                        for (int r386 = 0; r386 < 2; ++r386) {
                            #pragma unroll
                            for (int c387 = 0; c387 < 2; ++c387) {
                                lw_mma_f16(p0[(r386 * 2 + 0) * 4 + c387 * 2 + 0], p0[(r386 * 2 + 0) * 4 + c387 * 2 + 1], p0[(r386 * 2 + 1) * 4 + c387 * 2 + 0], p0[(r386 * 2 + 1) * 4 + c387 * 2 + 1], left_now[r386], right_now[c387]);
                            }
                        }
                    }
                }
                stage358 = 1 - stage358;
                if (more360) {
                    #pragma unroll
                    for (int u388 = 0; u388 < 1; ++u388) {
                        const int at390 = u388 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at391 = at390 % 4 * 8;
                        const int at392 = at390 / 4;
                        lw_pack<unsigned short, 8> whole;
                        #pragma unroll
                        for (int e389 = 0; e389 < 8; ++e389) {
                            whole.at[e389] = left_next[u388 * 8 + e389];
                        }
                        *(lw_pack<unsigned short, 8>*)&left[stage358][at392][at391] = whole;
                    }
                    #pragma unroll
                    for (int u393 = 0; u393 < 1; ++u393) {
                        const int at395 = u393 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at396 = at395 % 4 * 8;
                        const int at397 = at395 / 4;
                        lw_pack<unsigned short, 8> whole;
                        #pragma unroll
                        for (int e394 = 0; e394 < 8; ++e394) {
                            whole.at[e394] = right_next[u393 * 8 + e394];
                        }
                        *(lw_pack<unsigned short, 8>*)&right[stage358][at397][at396] = whole;
                    }
                }
                __syncthreads();
            }
        }
        float p1[16];
        #pragma unroll
        for (int k398 = 0; k398 < 16; ++k398) {
            p1[k398] = 0.0f;
        }
         {
            unsigned short (*const left)[64][40] = (unsigned short (*)[64][40])(lw_near + 0);
            unsigned short left_next[8];
            unsigned short (*const right)[64][40] = (unsigned short (*)[64][40])(lw_near + 10240);
            unsigned short right_next[8];
            int stage399 = 0;
            for (int first400 = -32; first400 < n187; first400 += 32) {
                const bool more401 = first400 + 32 < n187;
                if (more401) {
                    #pragma unroll
                    for (int u402 = 0; u402 < 1; ++u402) {
                        const int at403 = u402 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at404 = at403 % 4 * 8;
                        const int at405 = at403 / 4;
                        const int i406 = at10 + at405;
                        const int k407 = first400 + 32 + at404;
                        if (n187 % 8 == 0 && n198 % 8 == 0 && i406 < n26 && k407 + 8 <= n187) {
                            lw_pack<unsigned short, 8> pack408;
                            pack408 = *(const lw_pack<unsigned short, 8>*)&x2_bits[k407 + i406 * n187 + i9 * n198];
                            #pragma unroll
                            for (int e409 = 0; e409 < 8; ++e409) {
                                const unsigned short v410 = pack408.at[e409];
                                left_next[u402 * 8 + e409] = v410;
                            }
                        } else {
                            #pragma unroll
                            for (int e411 = 0; e411 < 8; ++e411) {
                                left_next[u402 * 8 + e411] = 0;
                                if (i406 < n26 && (k407 + e411) < n187) {
                                    const unsigned short v412 = x2_bits[(k407 + e411) + i406 * n187 + i9 * n198];
                                    left_next[u402 * 8 + e411] = v412;
                                }
                            }
                        }
                    }
                    #pragma unroll
                    for (int u413 = 0; u413 < 1; ++u413) {
                        const int at414 = u413 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at415 = at414 % 4 * 8;
                        const int at416 = at414 / 4;
                        const int i417 = first356 + at416;
                        const int k418 = first400 + 32 + at415;
                        if (n187 % 8 == 0 && n211 % 8 == 0 && i417 < n14 && k418 + 8 <= n187) {
                            lw_pack<unsigned short, 8> pack419;
                            pack419 = *(const lw_pack<unsigned short, 8>*)&x3_bits[k418 + i417 * n187 + i9 * n211];
                            #pragma unroll
                            for (int e420 = 0; e420 < 8; ++e420) {
                                const unsigned short v421 = pack419.at[e420];
                                right_next[u413 * 8 + e420] = v421;
                            }
                        } else {
                            #pragma unroll
                            for (int e422 = 0; e422 < 8; ++e422) {
                                right_next[u413 * 8 + e422] = 0;
                                if (i417 < n14 && (k418 + e422) < n187) {
                                    const unsigned short v423 = x3_bits[(k418 + e422) + i417 * n187 + i9 * n211];
                                    right_next[u413 * 8 + e422] = v423;
                                }
                            }
                        }
                    }
                }
                if (first400 >= 0) {
                    #pragma unroll
                    for (int k424 = 0; k424 < 32; k424 += 16) {
                        unsigned left_now[2][4];
                        #pragma unroll
                        for (int g425 = 0; g425 < 2; ++g425) {
                            lw_words4(left_now[g425], &left[stage399][(int)threadIdx.y % 2 * 32 + g425 * 16 + (int)threadIdx.x / 8 % 2 * 8 + (int)threadIdx.x % 8][k424 + (int)threadIdx.x / 16 * 8]);
                        }
                        unsigned right_now[2][2];
                        #pragma unroll
                        for (int g426 = 0; g426 < 2; ++g426) {
                            lw_words2(right_now[g426], &right[stage399][(int)threadIdx.y / 2 * 16 + g426 * 8 + 0 + (int)threadIdx.x % 8][k424 + (int)threadIdx.x / 8 % 2 * 8]);
                        }
                        #pragma unroll
                        for (int r427 = 0; r427 < 2; ++r427) {
                            #pragma unroll
                            for (int c428 = 0; c428 < 2; ++c428) {
                                lw_mma_f16(p1[(r427 * 2 + 0) * 4 + c428 * 2 + 0], p1[(r427 * 2 + 0) * 4 + c428 * 2 + 1], p1[(r427 * 2 + 1) * 4 + c428 * 2 + 0], p1[(r427 * 2 + 1) * 4 + c428 * 2 + 1], left_now[r427], right_now[c428]);
                            }
                        }
                    }
                }
                stage399 = 1 - stage399;
                if (more401) {
                    #pragma unroll
                    for (int u429 = 0; u429 < 1; ++u429) {
                        const int at431 = u429 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at432 = at431 % 4 * 8;
                        const int at433 = at431 / 4;
                        lw_pack<unsigned short, 8> whole;
                        #pragma unroll
                        for (int e430 = 0; e430 < 8; ++e430) {
                            whole.at[e430] = left_next[u429 * 8 + e430];
                        }
                        *(lw_pack<unsigned short, 8>*)&left[stage399][at433][at432] = whole;
                    }
                    #pragma unroll
                    for (int u434 = 0; u434 < 1; ++u434) {
                        const int at436 = u434 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at437 = at436 % 4 * 8;
                        const int at438 = at436 / 4;
                        lw_pack<unsigned short, 8> whole;
                        #pragma unroll
                        for (int e435 = 0; e435 < 8; ++e435) {
                            whole.at[e435] = right_next[u434 * 8 + e435];
                        }
                        *(lw_pack<unsigned short, 8>*)&right[stage399][at438][at437] = whole;
                    }
                }
                __syncthreads();
            }
        }
        #pragma unroll
        for (int a439 = 0; a439 < 4; ++a439) {
            #pragma unroll
            for (int g440 = 0; g440 < 2; ++g440) {
                lw_pack<unsigned short, 2> whole;
                #pragma unroll
                for (int e441 = 0; e441 < 2; ++e441) {
                    const int at442 = g440 * 2 + e441;
                    whole.at[e441] = 0;
                    const int i443 = at10 + a439 * 8 + (int)threadIdx.y % 2 * 32 + (int)threadIdx.x / 4;
                    const int i444 = first356 + at442 / 2 * 8 + (int)threadIdx.y / 2 * 16 + (int)threadIdx.x % 4 * 2 + at442 % 2;
                    if (i443 < n26 && i444 < n14) {
                        const float v445 = lw_from_f16(lw_to_f16((float)p1[a439 * 4 + at442]));
                        const float v446 = lw_from_f16(lw_to_f16(v445 / s11_rows[a439]));
                        const float v447 = lw_from_f16(lw_to_f16(v446 + s20_rows[a439]));
                        const float v448 = lw_from_f16(lw_to_f16((float)p0[a439 * 4 + at442]));
                        const float v449 = lw_from_f16(lw_to_f16(v448 * 0x1.998p-3f));
                        const float v450 = lw_from_f16(lw_to_f16(v449 - s4_rows[a439]));
                        const float v451 = lw_from_f16(lw_to_f16(lw_exp_f32(v450)));
                        const float v452 = lw_from_f16(lw_to_f16(v447 * v451));
                        const bool v453 = v449 == s4_rows[a439];
                        const float v454 = lw_from_f16(lw_to_f16(s25_rows[a439] / s8_rows[a439]));
                        const float v455 = v453 ? v454 : 0.0f;
                        const float v456 = lw_from_f16(lw_to_f16(v452 + v455));
                        const float v457 = lw_from_f16(lw_to_f16(v456 * 0x1.998p-3f));
                        whole.at[e441] = lw_to_f16(v457);
                    }
                }
                *(lw_pack<unsigned short, 2>*)&lw_kept[a439 * 8 + (int)threadIdx.y % 2 * 32 + (int)threadIdx.x / 4][g440 * 8 + (int)threadIdx.y / 2 * 16 + (int)threadIdx.x % 4 * 2] = whole;
            }
        }
         {
            unsigned short (*const right_stages)[32][40] = (unsigned short (*)[32][40])(lw_near + 0);
            unsigned short right_stages_next[4];
            int stage458 = 0;
            for (int first459 = -32; first459 < 64; first459 += 32) {
                const bool more460 = first459 + 32 < 64;
                if (more460) {
                    #pragma unroll
                    for (int u461 = 0; u461 < 1; ++u461) {
                        const int at462 = u461 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at463 = at462 % 8 * 4;
                        const int at464 = at462 / 8;
                        const int i465 = at11 + at463;
                        const int k466 = first356 + first459 + 32 + at464;
                        if (n16 % 4 == 0 && n41 % 4 == 0 && i465 + 4 <= n16 && k466 < n14) {
                            lw_pack<unsigned short, 4> pack467;
                            pack467 = *(const lw_pack<unsigned short, 4>*)&x1_bits[i465 + k466 * n16 + i9 * n41];
                            #pragma unroll
                            for (int e468 = 0; e468 < 4; ++e468) {
                                const unsigned short v469 = pack467.at[e468];
                                right_stages_next[u461 * 4 + e468] = v469;
                            }
                        } else {
                            #pragma unroll
                            for (int e470 = 0; e470 < 4; ++e470) {
                                right_stages_next[u461 * 4 + e470] = 0;
                                if ((i465 + e470) < n16 && k466 < n14) {
                                    const unsigned short v471 = x1_bits[(i465 + e470) + k466 * n16 + i9 * n41];
                                    right_stages_next[u461 * 4 + e470] = v471;
                                }
                            }
                        }
                    }
                }
                if (first459 >= 0) {
                    unsigned short (*const left)[72] = (unsigned short (*)[72])&lw_kept[0][first459];
                    auto* const right = right_stages[stage458];
                    #pragma unroll
                    for (int k472 = 0; k472 < 32; k472 += 16) {
                        unsigned left_now[2][4];
                        #pragma unroll
                        for (int g473 = 0; g473 < 2; ++g473) {
                            lw_words4(left_now[g473], &left[(int)threadIdx.y % 2 * 32 + g473 * 16 + (int)threadIdx.x / 8 % 2 * 8 + (int)threadIdx.x % 8][k472 + (int)threadIdx.x / 16 * 8]);
                        }
                        unsigned right_now[1][2];
                        #pragma unroll
                        for (int g474 = 0; g474 < 1; ++g474) {
                            lw_words2_across(right_now[g474], &right[k472 + (int)threadIdx.x / 8 % 2 * 8 + (int)threadIdx.x % 8][(int)threadIdx.y / 2 * 8 + g474 * 8 + 0]);
                        }
                        #pragma unroll
                        for (int r475 = 0; r475 < 2; ++r475) {
                            #pragma unroll
                            for (int c476 = 0; c476 < 1; ++c476) {
                                lw_mma_f16(s31_sums[(r475 * 2 + 0) * 2 + c476 * 2 + 0], s31_sums[(r475 * 2 + 0) * 2 + c476 * 2 + 1], s31_sums[(r475 * 2 + 1) * 2 + c476 * 2 + 0], s31_sums[(r475 * 2 + 1) * 2 + c476 * 2 + 1], left_now[r475], right_now[c476]);
                            }
                        }
                    }
                }
                stage458 = 1 - stage458;
                if (more460) {
                    #pragma unroll
                    for (int u477 = 0; u477 < 1; ++u477) {
                        const int at479 = u477 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at480 = at479 % 8 * 4;
                        const int at481 = at479 / 8;
                        lw_pack<unsigned short, 4> whole;
                        #pragma unroll
                        for (int e478 = 0; e478 < 4; ++e478) {
                            whole.at[e478] = right_stages_next[u477 * 4 + e478];
                        }
                        *(lw_pack<unsigned short, 4>*)&right_stages[stage458][at481][at480] = whole;
                    }
                }
                __syncthreads();
            }
        }
    }
    if (at11 == 0 && (int)threadIdx.y / 2 * 4 + (int)threadIdx.x % 4 == 0) {
        #pragma unroll
        for (int r482 = 0; r482 < 4; ++r482) {
            const int i483 = at10 + r482 * 8 + (int)threadIdx.y % 2 * 32 + (int)threadIdx.x / 4;
            if (i483 < n26) {
                y1[i483 + i9 * n26] = lw_to_f16(s4_rows[r482]);
                y2[i483 + i9 * n26] = lw_to_f16(s11_rows[r482]);
                y3[i483 + i9 * n26] = lw_to_f16(s20_rows[r482]);
                const float v484 = lw_from_f16(lw_to_f16(s25_rows[r482] / s8_rows[r482]));
                y4[i483 + i9 * n26] = lw_to_f16(v484);
            }
        }
    }
    #pragma unroll
    for (int r485 = 0; r485 < 4; ++r485) {
        const int i487 = at10 + r485 * 8 + (int)threadIdx.y % 2 * 32 + (int)threadIdx.x / 4;
        #pragma unroll
        for (int g486 = 0; g486 < 1; ++g486) {
            const int i488 = at11 + g486 * 8 + (int)threadIdx.y / 2 * 8 + (int)threadIdx.x % 4 * 2;
            if (n16 % 2 == 0 && n28 % 2 == 0 && i487 < n26 && i488 + 2 <= n16) {
                lw_pack<unsigned short, 2> pack489;
                #pragma unroll
                for (int e490 = 0; e490 < 2; ++e490) {
                    const float v491 = lw_from_f16(lw_to_f16((float)s31_sums[r485 * 2 + g486 * 2 + e490]));
                    pack489.at[e490] = lw_to_f16(v491);
                }
                *(lw_pack<unsigned short, 2>*)&y0[i488 + i487 * n16 + i9 * n28] = pack489;
            } else {
                #pragma unroll
                for (int e492 = 0; e492 < 2; ++e492) {
                    if (i487 < n26 && i488 + e492 < n16) {
                        const float v493 = lw_from_f16(lw_to_f16((float)s31_sums[r485 * 2 + g486 * 2 + e492]));
                        y0[(i488 + e492) + i487 * n16 + i9 * n28] = lw_to_f16(v493);
                    }
                }
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(256, 2) kernel_1(
        const unsigned short* __restrict__ x0,
        const unsigned short* __restrict__ x1,
        const unsigned short* __restrict__ x2,
        const unsigned short* __restrict__ x3,
        const unsigned short* __restrict__ x4,
        unsigned short* y0,
        long long size_n,
        long long size_m,
        long long size_r,
        long long size_t,
        long long size_k,
        long long* error) {
    const long long n0 = size_k + 63ll;
    const long long n1 = lw_size_divide(n0, 64ll);
    const int n2 = (int)(n1);
    const long long n5 = size_t + 63ll;
    const long long n6 = lw_size_divide(n5, 64ll);
    const int n7 = (int)(n6);
    const int n14 = (int)(size_m);
    const int n16 = (int)(size_r);
    const int n26 = (int)(size_t);
    const long long n27 = size_r * size_t;
    const int n28 = (int)(n27);
    const long long n40 = size_m * size_r;
    const int n41 = (int)(n40);
    const int n84 = (int)(size_k);
    const long long n85 = size_k * size_m;
    const int n86 = (int)(n85);
    const long long n106 = size_k * size_t;
    const int n107 = (int)(n106);
    const int i3 = (int)((unsigned int)(int)blockIdx.x % (unsigned int)n2);
    const int i4 = (int)((unsigned int)(int)blockIdx.x / (unsigned int)n2);
    const int i8 = (int)((unsigned int)i4 % (unsigned int)n7);
    const int i9 = (int)((unsigned int)i4 / (unsigned int)n7);
    const int at10 = i8 * 64;
    const int at11 = i3 * 64;
    float s9_sums[16];
    __shared__ __align__(16) unsigned char lw_near[20480];
    __shared__ __align__(16) unsigned short lw_kept[64][72];
    // the last pass
    #pragma unroll
    for (int k12 = 0; k12 < 16; ++k12) {
        s9_sums[k12] = 0.0f;
    }
    const unsigned short* const x1_bits = x1;
    const unsigned short* const x0_bits = x0;
    const unsigned short* const x4_bits = x4;
    for (int first13 = 0; first13 < n14; first13 += 64) {
        float p0[16];
        #pragma unroll
        for (int k15 = 0; k15 < 16; ++k15) {
            p0[k15] = 0.0f;
        }
         {
            unsigned short (*const left)[64][40] = (unsigned short (*)[64][40])(lw_near + 0);
            unsigned short left_next[8];
            unsigned short (*const right)[64][40] = (unsigned short (*)[64][40])(lw_near + 10240);
            unsigned short right_next[8];
            int stage17 = 0;
            for (int first18 = -32; first18 < n16; first18 += 32) {
                const bool more19 = first18 + 32 < n16;
                if (more19) {
                    #pragma unroll
                    for (int u20 = 0; u20 < 1; ++u20) {
                        const int at21 = u20 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at22 = at21 % 4 * 8;
                        const int at23 = at21 / 4;
                        const int i24 = at10 + at23;
                        const int k25 = first18 + 32 + at22;
                        if (n16 % 8 == 0 && n28 % 8 == 0 && i24 < n26 && k25 + 8 <= n16) {
                            lw_pack<unsigned short, 8> pack29;
                            pack29 = *(const lw_pack<unsigned short, 8>*)&x1_bits[k25 + i24 * n16 + i9 * n28];
                            #pragma unroll
                            for (int e30 = 0; e30 < 8; ++e30) {
                                const unsigned short v31 = pack29.at[e30];
                                left_next[u20 * 8 + e30] = v31;
                            }
                        } else {
                            #pragma unroll
                            for (int e32 = 0; e32 < 8; ++e32) {
                                left_next[u20 * 8 + e32] = 0;
                                if (i24 < n26 && (k25 + e32) < n16) {
                                    const unsigned short v33 = x1_bits[(k25 + e32) + i24 * n16 + i9 * n28];
                                    left_next[u20 * 8 + e32] = v33;
                                }
                            }
                        }
                    }
                    #pragma unroll
                    for (int u34 = 0; u34 < 1; ++u34) {
                        const int at35 = u34 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at36 = at35 % 4 * 8;
                        const int at37 = at35 / 4;
                        const int i38 = first13 + at37;
                        const int k39 = first18 + 32 + at36;
                        if (n16 % 8 == 0 && n41 % 8 == 0 && i38 < n14 && k39 + 8 <= n16) {
                            lw_pack<unsigned short, 8> pack42;
                            pack42 = *(const lw_pack<unsigned short, 8>*)&x0_bits[k39 + i38 * n16 + i9 * n41];
                            #pragma unroll
                            for (int e43 = 0; e43 < 8; ++e43) {
                                const unsigned short v44 = pack42.at[e43];
                                right_next[u34 * 8 + e43] = v44;
                            }
                        } else {
                            #pragma unroll
                            for (int e45 = 0; e45 < 8; ++e45) {
                                right_next[u34 * 8 + e45] = 0;
                                if (i38 < n14 && (k39 + e45) < n16) {
                                    const unsigned short v46 = x0_bits[(k39 + e45) + i38 * n16 + i9 * n41];
                                    right_next[u34 * 8 + e45] = v46;
                                }
                            }
                        }
                    }
                }
                if (first18 >= 0) {
                    #pragma unroll
                    for (int k47 = 0; k47 < 32; k47 += 16) {
                        unsigned left_now[2][4];
                        #pragma unroll
                        for (int g48 = 0; g48 < 2; ++g48) {
                            lw_words4(left_now[g48], &left[stage17][(int)threadIdx.y % 2 * 32 + g48 * 16 + (int)threadIdx.x / 8 % 2 * 8 + (int)threadIdx.x % 8][k47 + (int)threadIdx.x / 16 * 8]);
                        }
                        unsigned right_now[2][2];
                        #pragma unroll
                        for (int g49 = 0; g49 < 2; ++g49) {
                            lw_words2(right_now[g49], &right[stage17][(int)threadIdx.y / 2 * 16 + g49 * 8 + 0 + (int)threadIdx.x % 8][k47 + (int)threadIdx.x / 8 % 2 * 8]);
                        }
                        #pragma unroll
                        for (int r50 = 0; r50 < 2; ++r50) {
                            #pragma unroll
                            for (int c51 = 0; c51 < 2; ++c51) {
                                lw_mma_f16(p0[(r50 * 2 + 0) * 4 + c51 * 2 + 0], p0[(r50 * 2 + 0) * 4 + c51 * 2 + 1], p0[(r50 * 2 + 1) * 4 + c51 * 2 + 0], p0[(r50 * 2 + 1) * 4 + c51 * 2 + 1], left_now[r50], right_now[c51]);
                            }
                        }
                    }
                }
                stage17 = 1 - stage17;
                if (more19) {
                    #pragma unroll
                    for (int u52 = 0; u52 < 1; ++u52) {
                        const int at54 = u52 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at55 = at54 % 4 * 8;
                        const int at56 = at54 / 4;
                        lw_pack<unsigned short, 8> whole;
                        #pragma unroll
                        for (int e53 = 0; e53 < 8; ++e53) {
                            whole.at[e53] = left_next[u52 * 8 + e53];
                        }
                        *(lw_pack<unsigned short, 8>*)&left[stage17][at56][at55] = whole;
                    }
                    #pragma unroll
                    for (int u57 = 0; u57 < 1; ++u57) {
                        const int at59 = u57 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at60 = at59 % 4 * 8;
                        const int at61 = at59 / 4;
                        lw_pack<unsigned short, 8> whole;
                        #pragma unroll
                        for (int e58 = 0; e58 < 8; ++e58) {
                            whole.at[e58] = right_next[u57 * 8 + e58];
                        }
                        *(lw_pack<unsigned short, 8>*)&right[stage17][at61][at60] = whole;
                    }
                }
                __syncthreads();
            }
        }
        #pragma unroll
        for (int a62 = 0; a62 < 4; ++a62) {
            #pragma unroll
            for (int g63 = 0; g63 < 2; ++g63) {
                lw_pack<unsigned short, 2> whole;
                #pragma unroll
                for (int e64 = 0; e64 < 2; ++e64) {
                    const int at65 = g63 * 2 + e64;
                    whole.at[e64] = 0;
                    const int i66 = at10 + a62 * 8 + (int)threadIdx.y % 2 * 32 + (int)threadIdx.x / 4;
                    const int i67 = first13 + at65 / 2 * 8 + (int)threadIdx.y / 2 * 16 + (int)threadIdx.x % 4 * 2 + at65 % 2;
                    if (i66 < n26 && i67 < n14) {
                        const float v68 = lw_from_f16(lw_to_f16((float)p0[a62 * 4 + at65]));
                        const float v69 = lw_from_f16(lw_to_f16(v68 * 0x1.998p-3f));
                        const float v70 = lw_from_f16(x2[i67 + i9 * n14]);
                        const float v71 = lw_from_f16(lw_to_f16(v69 - v70));
                        const float v72 = lw_from_f16(lw_to_f16(lw_exp_f32(v71)));
                        const float v73 = lw_from_f16(x3[i67 + i9 * n14]);
                        const float v74 = lw_from_f16(lw_to_f16(v72 / v73));
                        whole.at[e64] = lw_to_f16(v74);
                    }
                }
                *(lw_pack<unsigned short, 2>*)&lw_kept[a62 * 8 + (int)threadIdx.y % 2 * 32 + (int)threadIdx.x / 4][g63 * 8 + (int)threadIdx.y / 2 * 16 + (int)threadIdx.x % 4 * 2] = whole;
            }
        }
         {
            unsigned short (*const right_stages)[32][72] = (unsigned short (*)[32][72])(lw_near + 0);
            unsigned short right_stages_next[8];
            int stage75 = 0;
            for (int first76 = -32; first76 < 64; first76 += 32) {
                const bool more77 = first76 + 32 < 64;
                if (more77) {
                    #pragma unroll
                    for (int u78 = 0; u78 < 1; ++u78) {
                        const int at79 = u78 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at80 = at79 % 8 * 8;
                        const int at81 = at79 / 8;
                        const int i82 = at11 + at80;
                        const int k83 = first13 + first76 + 32 + at81;
                        if (n84 % 8 == 0 && n86 % 8 == 0 && i82 + 8 <= n84 && k83 < n14) {
                            lw_pack<unsigned short, 8> pack87;
                            pack87 = *(const lw_pack<unsigned short, 8>*)&x4_bits[i82 + k83 * n84 + i9 * n86];
                            #pragma unroll
                            for (int e88 = 0; e88 < 8; ++e88) {
                                const unsigned short v89 = pack87.at[e88];
                                right_stages_next[u78 * 8 + e88] = v89;
                            }
                        } else {
                            #pragma unroll
                            for (int e90 = 0; e90 < 8; ++e90) {
                                right_stages_next[u78 * 8 + e90] = 0;
                                if ((i82 + e90) < n84 && k83 < n14) {
                                    const unsigned short v91 = x4_bits[(i82 + e90) + k83 * n84 + i9 * n86];
                                    right_stages_next[u78 * 8 + e90] = v91;
                                }
                            }
                        }
                    }
                }
                if (first76 >= 0) {
                    unsigned short (*const left)[72] = (unsigned short (*)[72])&lw_kept[0][first76];
                    auto* const right = right_stages[stage75];
                    #pragma unroll
                    for (int k92 = 0; k92 < 32; k92 += 16) {
                        unsigned left_now[2][4];
                        #pragma unroll
                        for (int g93 = 0; g93 < 2; ++g93) {
                            lw_words4(left_now[g93], &left[(int)threadIdx.y % 2 * 32 + g93 * 16 + (int)threadIdx.x / 8 % 2 * 8 + (int)threadIdx.x % 8][k92 + (int)threadIdx.x / 16 * 8]);
                        }
                        unsigned right_now[2][2];
                        #pragma unroll
                        for (int g94 = 0; g94 < 2; ++g94) {
                            lw_words2_across(right_now[g94], &right[k92 + (int)threadIdx.x / 8 % 2 * 8 + (int)threadIdx.x % 8][(int)threadIdx.y / 2 * 16 + g94 * 8 + 0]);
                        }
                        #pragma unroll
                        for (int r95 = 0; r95 < 2; ++r95) {
                            #pragma unroll
                            for (int c96 = 0; c96 < 2; ++c96) {
                                lw_mma_f16(s9_sums[(r95 * 2 + 0) * 4 + c96 * 2 + 0], s9_sums[(r95 * 2 + 0) * 4 + c96 * 2 + 1], s9_sums[(r95 * 2 + 1) * 4 + c96 * 2 + 0], s9_sums[(r95 * 2 + 1) * 4 + c96 * 2 + 1], left_now[r95], right_now[c96]);
                            }
                        }
                    }
                }
                stage75 = 1 - stage75;
                if (more77) {
                    #pragma unroll
                    for (int u97 = 0; u97 < 1; ++u97) {
                        const int at99 = u97 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at100 = at99 % 8 * 8;
                        const int at101 = at99 / 8;
                        lw_pack<unsigned short, 8> whole;
                        #pragma unroll
                        for (int e98 = 0; e98 < 8; ++e98) {
                            whole.at[e98] = right_stages_next[u97 * 8 + e98];
                        }
                        *(lw_pack<unsigned short, 8>*)&right_stages[stage75][at101][at100] = whole;
                    }
                }
                __syncthreads();
            }
        }
    }
    #pragma unroll
    for (int r102 = 0; r102 < 4; ++r102) {
        const int i104 = at10 + r102 * 8 + (int)threadIdx.y % 2 * 32 + (int)threadIdx.x / 4;
        #pragma unroll
        for (int g103 = 0; g103 < 2; ++g103) {
            const int i105 = at11 + g103 * 8 + (int)threadIdx.y / 2 * 16 + (int)threadIdx.x % 4 * 2;
            if (n84 % 2 == 0 && n107 % 2 == 0 && i104 < n26 && i105 + 2 <= n84) {
                lw_pack<unsigned short, 2> pack108;
                #pragma unroll
                for (int e109 = 0; e109 < 2; ++e109) {
                    const float v110 = lw_from_f16(lw_to_f16((float)s9_sums[r102 * 4 + g103 * 2 + e109]));
                    pack108.at[e109] = lw_to_f16(v110);
                }
                *(lw_pack<unsigned short, 2>*)&y0[i105 + i104 * n84 + i9 * n107] = pack108;
            } else {
                #pragma unroll
                for (int e111 = 0; e111 < 2; ++e111) {
                    if (i104 < n26 && i105 + e111 < n84) {
                        const float v112 = lw_from_f16(lw_to_f16((float)s9_sums[r102 * 4 + g103 * 2 + e111]));
                        y0[(i105 + e111) + i104 * n84 + i9 * n107] = lw_to_f16(v112);
                    }
                }
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(256, 1) kernel_2(
        const unsigned short* __restrict__ x0,
        const unsigned short* __restrict__ x1,
        const unsigned short* __restrict__ x2,
        const unsigned short* __restrict__ x3,
        const unsigned short* __restrict__ x4,
        const unsigned short* __restrict__ x5,
        const unsigned short* __restrict__ x6,
        const unsigned short* __restrict__ x7,
        unsigned short* y0,
        long long size_n,
        long long size_m,
        long long size_r,
        long long size_t,
        long long size_k,
        long long* error) {
    const long long n0 = size_r + 31ll;
    const long long n1 = lw_size_divide(n0, 32ll);
    const int n2 = (int)(n1);
    const long long n5 = size_t + 63ll;
    const long long n6 = lw_size_divide(n5, 64ll);
    const int n7 = (int)(n6);
    const int n14 = (int)(size_m);
    const int n16 = (int)(size_k);
    const int n26 = (int)(size_t);
    const long long n27 = size_k * size_t;
    const int n28 = (int)(n27);
    const long long n40 = size_k * size_m;
    const int n41 = (int)(n40);
    const int n63 = (int)(size_r);
    const long long n73 = size_r * size_t;
    const int n74 = (int)(n73);
    const long long n86 = size_m * size_r;
    const int n87 = (int)(n86);
    const int i3 = (int)((unsigned int)(int)blockIdx.x % (unsigned int)n2);
    const int i4 = (int)((unsigned int)(int)blockIdx.x / (unsigned int)n2);
    const int i8 = (int)((unsigned int)i4 % (unsigned int)n7);
    const int i9 = (int)((unsigned int)i4 / (unsigned int)n7);
    const int at10 = i8 * 64;
    const int at11 = i3 * 32;
    float s20_sums[8];
    __shared__ __align__(16) unsigned char lw_near[20480];
    __shared__ __align__(16) unsigned short lw_kept[64][72];
    // the last pass
    #pragma unroll
    for (int k12 = 0; k12 < 8; ++k12) {
        s20_sums[k12] = 0.0f;
    }
    const unsigned short* const x5_bits = x5;
    const unsigned short* const x4_bits = x4;
    const unsigned short* const x1_bits = x1;
    const unsigned short* const x0_bits = x0;
    for (int first13 = 0; first13 < n14; first13 += 64) {
        float p0[16];
        #pragma unroll
        for (int k15 = 0; k15 < 16; ++k15) {
            p0[k15] = 0.0f;
        }
         {
            unsigned short (*const left)[64][40] = (unsigned short (*)[64][40])(lw_near + 0);
            unsigned short left_next[8];
            unsigned short (*const right)[64][40] = (unsigned short (*)[64][40])(lw_near + 10240);
            unsigned short right_next[8];
            int stage17 = 0;
            for (int first18 = -32; first18 < n16; first18 += 32) {
                const bool more19 = first18 + 32 < n16;
                if (more19) {
                    #pragma unroll
                    for (int u20 = 0; u20 < 1; ++u20) {
                        const int at21 = u20 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at22 = at21 % 4 * 8;
                        const int at23 = at21 / 4;
                        const int i24 = at10 + at23;
                        const int k25 = first18 + 32 + at22;
                        if (n16 % 8 == 0 && n28 % 8 == 0 && i24 < n26 && k25 + 8 <= n16) {
                            lw_pack<unsigned short, 8> pack29;
                            pack29 = *(const lw_pack<unsigned short, 8>*)&x5_bits[k25 + i24 * n16 + i9 * n28];
                            #pragma unroll
                            for (int e30 = 0; e30 < 8; ++e30) {
                                const unsigned short v31 = pack29.at[e30];
                                left_next[u20 * 8 + e30] = v31;
                            }
                        } else {
                            #pragma unroll
                            for (int e32 = 0; e32 < 8; ++e32) {
                                left_next[u20 * 8 + e32] = 0;
                                if (i24 < n26 && (k25 + e32) < n16) {
                                    const unsigned short v33 = x5_bits[(k25 + e32) + i24 * n16 + i9 * n28];
                                    left_next[u20 * 8 + e32] = v33;
                                }
                            }
                        }
                    }
                    #pragma unroll
                    for (int u34 = 0; u34 < 1; ++u34) {
                        const int at35 = u34 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at36 = at35 % 4 * 8;
                        const int at37 = at35 / 4;
                        const int i38 = first13 + at37;
                        const int k39 = first18 + 32 + at36;
                        if (n16 % 8 == 0 && n41 % 8 == 0 && i38 < n14 && k39 + 8 <= n16) {
                            lw_pack<unsigned short, 8> pack42;
                            pack42 = *(const lw_pack<unsigned short, 8>*)&x4_bits[k39 + i38 * n16 + i9 * n41];
                            #pragma unroll
                            for (int e43 = 0; e43 < 8; ++e43) {
                                const unsigned short v44 = pack42.at[e43];
                                right_next[u34 * 8 + e43] = v44;
                            }
                        } else {
                            #pragma unroll
                            for (int e45 = 0; e45 < 8; ++e45) {
                                right_next[u34 * 8 + e45] = 0;
                                if (i38 < n14 && (k39 + e45) < n16) {
                                    const unsigned short v46 = x4_bits[(k39 + e45) + i38 * n16 + i9 * n41];
                                    right_next[u34 * 8 + e45] = v46;
                                }
                            }
                        }
                    }
                }
                if (first18 >= 0) {
                    #pragma unroll
                    for (int k47 = 0; k47 < 32; k47 += 16) {
                        unsigned left_now[2][4];
                        #pragma unroll
                        for (int g48 = 0; g48 < 2; ++g48) {
                            lw_words4(left_now[g48], &left[stage17][(int)threadIdx.y % 2 * 32 + g48 * 16 + (int)threadIdx.x / 8 % 2 * 8 + (int)threadIdx.x % 8][k47 + (int)threadIdx.x / 16 * 8]);
                        }
                        unsigned right_now[2][2];
                        #pragma unroll
                        for (int g49 = 0; g49 < 2; ++g49) {
                            lw_words2(right_now[g49], &right[stage17][(int)threadIdx.y / 2 * 16 + g49 * 8 + 0 + (int)threadIdx.x % 8][k47 + (int)threadIdx.x / 8 % 2 * 8]);
                        }
                        #pragma unroll
                        for (int r50 = 0; r50 < 2; ++r50) {
                            #pragma unroll
                            for (int c51 = 0; c51 < 2; ++c51) {
                                lw_mma_f16(p0[(r50 * 2 + 0) * 4 + c51 * 2 + 0], p0[(r50 * 2 + 0) * 4 + c51 * 2 + 1], p0[(r50 * 2 + 1) * 4 + c51 * 2 + 0], p0[(r50 * 2 + 1) * 4 + c51 * 2 + 1], left_now[r50], right_now[c51]);
                            }
                        }
                    }
                }
                stage17 = 1 - stage17;
                if (more19) {
                    #pragma unroll
                    for (int u52 = 0; u52 < 1; ++u52) {
                        const int at54 = u52 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at55 = at54 % 4 * 8;
                        const int at56 = at54 / 4;
                        lw_pack<unsigned short, 8> whole;
                        #pragma unroll
                        for (int e53 = 0; e53 < 8; ++e53) {
                            whole.at[e53] = left_next[u52 * 8 + e53];
                        }
                        *(lw_pack<unsigned short, 8>*)&left[stage17][at56][at55] = whole;
                    }
                    #pragma unroll
                    for (int u57 = 0; u57 < 1; ++u57) {
                        const int at59 = u57 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at60 = at59 % 4 * 8;
                        const int at61 = at59 / 4;
                        lw_pack<unsigned short, 8> whole;
                        #pragma unroll
                        for (int e58 = 0; e58 < 8; ++e58) {
                            whole.at[e58] = right_next[u57 * 8 + e58];
                        }
                        *(lw_pack<unsigned short, 8>*)&right[stage17][at61][at60] = whole;
                    }
                }
                __syncthreads();
            }
        }
        float p1[16];
        #pragma unroll
        for (int k62 = 0; k62 < 16; ++k62) {
            p1[k62] = 0.0f;
        }
         {
            unsigned short (*const left)[64][40] = (unsigned short (*)[64][40])(lw_near + 0);
            unsigned short left_next[8];
            unsigned short (*const right)[64][40] = (unsigned short (*)[64][40])(lw_near + 10240);
            unsigned short right_next[8];
            int stage64 = 0;
            for (int first65 = -32; first65 < n63; first65 += 32) {
                const bool more66 = first65 + 32 < n63;
                if (more66) {
                    #pragma unroll
                    for (int u67 = 0; u67 < 1; ++u67) {
                        const int at68 = u67 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at69 = at68 % 4 * 8;
                        const int at70 = at68 / 4;
                        const int i71 = at10 + at70;
                        const int k72 = first65 + 32 + at69;
                        if (n63 % 8 == 0 && n74 % 8 == 0 && i71 < n26 && k72 + 8 <= n63) {
                            lw_pack<unsigned short, 8> pack75;
                            pack75 = *(const lw_pack<unsigned short, 8>*)&x1_bits[k72 + i71 * n63 + i9 * n74];
                            #pragma unroll
                            for (int e76 = 0; e76 < 8; ++e76) {
                                const unsigned short v77 = pack75.at[e76];
                                left_next[u67 * 8 + e76] = v77;
                            }
                        } else {
                            #pragma unroll
                            for (int e78 = 0; e78 < 8; ++e78) {
                                left_next[u67 * 8 + e78] = 0;
                                if (i71 < n26 && (k72 + e78) < n63) {
                                    const unsigned short v79 = x1_bits[(k72 + e78) + i71 * n63 + i9 * n74];
                                    left_next[u67 * 8 + e78] = v79;
                                }
                            }
                        }
                    }
                    #pragma unroll
                    for (int u80 = 0; u80 < 1; ++u80) {
                        const int at81 = u80 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at82 = at81 % 4 * 8;
                        const int at83 = at81 / 4;
                        const int i84 = first13 + at83;
                        const int k85 = first65 + 32 + at82;
                        if (n63 % 8 == 0 && n87 % 8 == 0 && i84 < n14 && k85 + 8 <= n63) {
                            lw_pack<unsigned short, 8> pack88;
                            pack88 = *(const lw_pack<unsigned short, 8>*)&x0_bits[k85 + i84 * n63 + i9 * n87];
                            #pragma unroll
                            for (int e89 = 0; e89 < 8; ++e89) {
                                const unsigned short v90 = pack88.at[e89];
                                right_next[u80 * 8 + e89] = v90;
                            }
                        } else {
                            #pragma unroll
                            for (int e91 = 0; e91 < 8; ++e91) {
                                right_next[u80 * 8 + e91] = 0;
                                if (i84 < n14 && (k85 + e91) < n63) {
                                    const unsigned short v92 = x0_bits[(k85 + e91) + i84 * n63 + i9 * n87];
                                    right_next[u80 * 8 + e91] = v92;
                                }
                            }
                        }
                    }
                }
                if (first65 >= 0) {
                    #pragma unroll
                    for (int k93 = 0; k93 < 32; k93 += 16) {
                        unsigned left_now[2][4];
                        #pragma unroll
                        for (int g94 = 0; g94 < 2; ++g94) {
                            lw_words4(left_now[g94], &left[stage64][(int)threadIdx.y % 2 * 32 + g94 * 16 + (int)threadIdx.x / 8 % 2 * 8 + (int)threadIdx.x % 8][k93 + (int)threadIdx.x / 16 * 8]);
                        }
                        unsigned right_now[2][2];
                        #pragma unroll
                        for (int g95 = 0; g95 < 2; ++g95) {
                            lw_words2(right_now[g95], &right[stage64][(int)threadIdx.y / 2 * 16 + g95 * 8 + 0 + (int)threadIdx.x % 8][k93 + (int)threadIdx.x / 8 % 2 * 8]);
                        }
                        #pragma unroll
                        for (int r96 = 0; r96 < 2; ++r96) {
                            #pragma unroll
                            for (int c97 = 0; c97 < 2; ++c97) {
                                lw_mma_f16(p1[(r96 * 2 + 0) * 4 + c97 * 2 + 0], p1[(r96 * 2 + 0) * 4 + c97 * 2 + 1], p1[(r96 * 2 + 1) * 4 + c97 * 2 + 0], p1[(r96 * 2 + 1) * 4 + c97 * 2 + 1], left_now[r96], right_now[c97]);
                            }
                        }
                    }
                }
                stage64 = 1 - stage64;
                if (more66) {
                    #pragma unroll
                    for (int u98 = 0; u98 < 1; ++u98) {
                        const int at100 = u98 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at101 = at100 % 4 * 8;
                        const int at102 = at100 / 4;
                        lw_pack<unsigned short, 8> whole;
                        #pragma unroll
                        for (int e99 = 0; e99 < 8; ++e99) {
                            whole.at[e99] = left_next[u98 * 8 + e99];
                        }
                        *(lw_pack<unsigned short, 8>*)&left[stage64][at102][at101] = whole;
                    }
                    #pragma unroll
                    for (int u103 = 0; u103 < 1; ++u103) {
                        const int at105 = u103 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at106 = at105 % 4 * 8;
                        const int at107 = at105 / 4;
                        lw_pack<unsigned short, 8> whole;
                        #pragma unroll
                        for (int e104 = 0; e104 < 8; ++e104) {
                            whole.at[e104] = right_next[u103 * 8 + e104];
                        }
                        *(lw_pack<unsigned short, 8>*)&right[stage64][at107][at106] = whole;
                    }
                }
                __syncthreads();
            }
        }
        #pragma unroll
        for (int a108 = 0; a108 < 4; ++a108) {
            #pragma unroll
            for (int g109 = 0; g109 < 2; ++g109) {
                lw_pack<unsigned short, 2> whole;
                #pragma unroll
                for (int e110 = 0; e110 < 2; ++e110) {
                    const int at111 = g109 * 2 + e110;
                    whole.at[e110] = 0;
                    const int i112 = at10 + a108 * 8 + (int)threadIdx.y % 2 * 32 + (int)threadIdx.x / 4;
                    const int i113 = first13 + at111 / 2 * 8 + (int)threadIdx.y / 2 * 16 + (int)threadIdx.x % 4 * 2 + at111 % 2;
                    if (i112 < n26 && i113 < n14) {
                        const float v114 = lw_from_f16(lw_to_f16((float)p0[a108 * 4 + at111]));
                        const float v115 = lw_from_f16(x3[i113 + i9 * n14]);
                        const float v116 = lw_from_f16(lw_to_f16(v114 / v115));
                        const float v117 = lw_from_f16(x6[i113 + i9 * n14]);
                        const float v118 = lw_from_f16(lw_to_f16(v116 + v117));
                        const float v119 = lw_from_f16(lw_to_f16((float)p1[a108 * 4 + at111]));
                        const float v120 = lw_from_f16(lw_to_f16(v119 * 0x1.998p-3f));
                        const float v121 = lw_from_f16(x2[i113 + i9 * n14]);
                        const float v122 = lw_from_f16(lw_to_f16(v120 - v121));
                        const float v123 = lw_from_f16(lw_to_f16(lw_exp_f32(v122)));
                        const float v124 = lw_from_f16(lw_to_f16(v118 * v123));
                        const bool v125 = v120 == v121;
                        const float v126 = lw_from_f16(x7[i113 + i9 * n14]);
                        const float v127 = v125 ? v126 : 0.0f;
                        const float v128 = lw_from_f16(lw_to_f16(v124 + v127));
                        const float v129 = lw_from_f16(lw_to_f16(v128 * 0x1.998p-3f));
                        whole.at[e110] = lw_to_f16(v129);
                    }
                }
                *(lw_pack<unsigned short, 2>*)&lw_kept[a108 * 8 + (int)threadIdx.y % 2 * 32 + (int)threadIdx.x / 4][g109 * 8 + (int)threadIdx.y / 2 * 16 + (int)threadIdx.x % 4 * 2] = whole;
            }
        }
         {
            unsigned short (*const right_stages)[32][40] = (unsigned short (*)[32][40])(lw_near + 0);
            unsigned short right_stages_next[4];
            int stage130 = 0;
            for (int first131 = -32; first131 < 64; first131 += 32) {
                const bool more132 = first131 + 32 < 64;
                if (more132) {
                    #pragma unroll
                    for (int u133 = 0; u133 < 1; ++u133) {
                        const int at134 = u133 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at135 = at134 % 8 * 4;
                        const int at136 = at134 / 8;
                        const int i137 = at11 + at135;
                        const int k138 = first13 + first131 + 32 + at136;
                        if (n63 % 4 == 0 && n87 % 4 == 0 && i137 + 4 <= n63 && k138 < n14) {
                            lw_pack<unsigned short, 4> pack139;
                            pack139 = *(const lw_pack<unsigned short, 4>*)&x0_bits[i137 + k138 * n63 + i9 * n87];
                            #pragma unroll
                            for (int e140 = 0; e140 < 4; ++e140) {
                                const unsigned short v141 = pack139.at[e140];
                                right_stages_next[u133 * 4 + e140] = v141;
                            }
                        } else {
                            #pragma unroll
                            for (int e142 = 0; e142 < 4; ++e142) {
                                right_stages_next[u133 * 4 + e142] = 0;
                                if ((i137 + e142) < n63 && k138 < n14) {
                                    const unsigned short v143 = x0_bits[(i137 + e142) + k138 * n63 + i9 * n87];
                                    right_stages_next[u133 * 4 + e142] = v143;
                                }
                            }
                        }
                    }
                }
                if (first131 >= 0) {
                    unsigned short (*const left)[72] = (unsigned short (*)[72])&lw_kept[0][first131];
                    auto* const right = right_stages[stage130];
                    #pragma unroll
                    for (int k144 = 0; k144 < 32; k144 += 16) {
                        unsigned left_now[2][4];
                        #pragma unroll
                        for (int g145 = 0; g145 < 2; ++g145) {
                            lw_words4(left_now[g145], &left[(int)threadIdx.y % 2 * 32 + g145 * 16 + (int)threadIdx.x / 8 % 2 * 8 + (int)threadIdx.x % 8][k144 + (int)threadIdx.x / 16 * 8]);
                        }
                        unsigned right_now[1][2];
                        #pragma unroll
                        for (int g146 = 0; g146 < 1; ++g146) {
                            lw_words2_across(right_now[g146], &right[k144 + (int)threadIdx.x / 8 % 2 * 8 + (int)threadIdx.x % 8][(int)threadIdx.y / 2 * 8 + g146 * 8 + 0]);
                        }
                        #pragma unroll
                        for (int r147 = 0; r147 < 2; ++r147) {
                            #pragma unroll
                            for (int c148 = 0; c148 < 1; ++c148) {
                                lw_mma_f16(s20_sums[(r147 * 2 + 0) * 2 + c148 * 2 + 0], s20_sums[(r147 * 2 + 0) * 2 + c148 * 2 + 1], s20_sums[(r147 * 2 + 1) * 2 + c148 * 2 + 0], s20_sums[(r147 * 2 + 1) * 2 + c148 * 2 + 1], left_now[r147], right_now[c148]);
                            }
                        }
                    }
                }
                stage130 = 1 - stage130;
                if (more132) {
                    #pragma unroll
                    for (int u149 = 0; u149 < 1; ++u149) {
                        const int at151 = u149 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at152 = at151 % 8 * 4;
                        const int at153 = at151 / 8;
                        lw_pack<unsigned short, 4> whole;
                        #pragma unroll
                        for (int e150 = 0; e150 < 4; ++e150) {
                            whole.at[e150] = right_stages_next[u149 * 4 + e150];
                        }
                        *(lw_pack<unsigned short, 4>*)&right_stages[stage130][at153][at152] = whole;
                    }
                }
                __syncthreads();
            }
        }
    }
    #pragma unroll
    for (int r154 = 0; r154 < 4; ++r154) {
        const int i156 = at10 + r154 * 8 + (int)threadIdx.y % 2 * 32 + (int)threadIdx.x / 4;
        #pragma unroll
        for (int g155 = 0; g155 < 1; ++g155) {
            const int i157 = at11 + g155 * 8 + (int)threadIdx.y / 2 * 8 + (int)threadIdx.x % 4 * 2;
            if (n63 % 2 == 0 && n74 % 2 == 0 && i156 < n26 && i157 + 2 <= n63) {
                lw_pack<unsigned short, 2> pack158;
                #pragma unroll
                for (int e159 = 0; e159 < 2; ++e159) {
                    const float v160 = lw_from_f16(lw_to_f16((float)s20_sums[r154 * 2 + g155 * 2 + e159]));
                    pack158.at[e159] = lw_to_f16(v160);
                }
                *(lw_pack<unsigned short, 2>*)&y0[i157 + i156 * n63 + i9 * n74] = pack158;
            } else {
                #pragma unroll
                for (int e161 = 0; e161 < 2; ++e161) {
                    if (i156 < n26 && i157 + e161 < n63) {
                        const float v162 = lw_from_f16(lw_to_f16((float)s20_sums[r154 * 2 + g155 * 2 + e161]));
                        y0[(i157 + e161) + i156 * n63 + i9 * n74] = lw_to_f16(v162);
                    }
                }
            }
        }
    }
}
