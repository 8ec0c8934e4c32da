// kernel_0<<<floordiv(m + 63, 64)*floordiv(u + 63, 64)*n, 32 * 8>>> (64 blocks now): f16[n, m, k], f16[n, q, k], f16[n, q, u] -> f16[n, m, u]

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

#ifndef LW_EMULATED
__device__ __forceinline__ float lw_max(float x, float y) {
    float found;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(found) : "f"(x), "f"(y));
    return found;
}
#endif

__device__ __forceinline__ void lw_add(float& sum, float& lost, float x) {
    const float next = sum + x;
    const float part = next - sum;
    lost += (sum - (next - part)) + (x - part);
    sum = next;
}
__device__ __forceinline__ float lw_added(float sum, float lost) { return lost - lost == 0 && lost != 0 ? sum + lost : sum; }

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

extern "C" __global__ void __launch_bounds__(256, 2) kernel_0(
        const unsigned short* __restrict__ x0,
        const unsigned short* __restrict__ x1,
        const unsigned short* __restrict__ x2,
        unsigned short* y0,
        long long size_n,
        long long size_m,
        long long size_k,
        long long size_q,
        long long size_u,
        long long* error) {
    const long long n0 = size_u + 63ll;
    const long long n1 = lw_size_divide(n0, 64ll);
    const int n2 = (int)(n1);
    const long long n5 = size_m + 63ll;
    const long long n6 = lw_size_divide(n5, 64ll);
    const int n7 = (int)(n6);
    const int n14 = (int)(size_q);
    const int n16 = (int)(size_k);
    const int n26 = (int)(size_m);
    const long long n27 = size_k * size_m;
    const int n28 = (int)(n27);
    const long long n40 = size_k * size_q;
    const int n41 = (int)(n40);
    const int n195 = (int)(size_u);
    const long long n196 = size_q * size_u;
    const int n197 = (int)(n196);
    const long long n217 = size_m * size_u;
    const int n218 = (int)(n217);
    const int i3 = (int)((unsigned int)(int)blockIdx.x % (unsigned int)n2);
    const int i4 = (int)((unsigned int)(int)blockIdx.x / (unsigned int)n2);
    const int i8 = (int)((unsigned int)i4 % (unsigned int)n7);
    const int i9 = (int)((unsigned int)i4 / (unsigned int)n7);
    const int at10 = i8 * 64;
    const int at11 = i3 * 64;
    float s11_sums[16];
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
                    acc12[r62] = lw_max(acc12[r62], v67);
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
            all71 = lw_max(all71, table68[r69 * 8 + (int)threadIdx.y % 2 * 32 + (int)threadIdx.x / 4][k72]);
        }
        const float v73 = lw_from_f16(lw_to_f16(all71));
        s4_rows[r69] = v73;
    }
    __syncthreads();
    // pass 2: sum
    float acc74[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    float acc75[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    for (int first76 = 0; first76 < n14; first76 += 64) {
        float p0[16];
        #pragma unroll
        for (int k77 = 0; k77 < 16; ++k77) {
            p0[k77] = 0.0f;
        }
         {
            unsigned short (*const left)[64][40] = (unsigned short (*)[64][40])(lw_near + 0);
            unsigned short left_next[8];
            unsigned short (*const right)[64][40] = (unsigned short (*)[64][40])(lw_near + 10240);
            unsigned short right_next[8];
            int stage78 = 0;
            for (int first79 = -32; first79 < n16; first79 += 32) {
                const bool more80 = first79 + 32 < n16;
                if (more80) {
                    #pragma unroll
                    for (int u81 = 0; u81 < 1; ++u81) {
                        const int at82 = u81 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at83 = at82 % 4 * 8;
                        const int at84 = at82 / 4;
                        const int i85 = at10 + at84;
                        const int k86 = first79 + 32 + at83;
                        if (n16 % 8 == 0 && n28 % 8 == 0 && i85 < n26 && k86 + 8 <= n16) {
                            lw_pack<unsigned short, 8> pack87;
                            pack87 = *(const lw_pack<unsigned short, 8>*)&x0_bits[k86 + i85 * n16 + i9 * n28];
                            #pragma unroll
                            for (int e88 = 0; e88 < 8; ++e88) {
                                const unsigned short v89 = pack87.at[e88];
                                left_next[u81 * 8 + e88] = v89;
                            }
                        } else {
                            #pragma unroll
                            for (int e90 = 0; e90 < 8; ++e90) {
                                left_next[u81 * 8 + e90] = 0;
                                if (i85 < n26 && (k86 + e90) < n16) {
                                    const unsigned short v91 = x0_bits[(k86 + e90) + i85 * n16 + i9 * n28];
                                    left_next[u81 * 8 + e90] = v91;
                                }
                            }
                        }
                    }
                    #pragma unroll
                    for (int u92 = 0; u92 < 1; ++u92) {
                        const int at93 = u92 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at94 = at93 % 4 * 8;
                        const int at95 = at93 / 4;
                        const int i96 = first76 + at95;
                        const int k97 = first79 + 32 + at94;
                        if (n16 % 8 == 0 && n41 % 8 == 0 && i96 < n14 && k97 + 8 <= n16) {
                            lw_pack<unsigned short, 8> pack98;
                            pack98 = *(const lw_pack<unsigned short, 8>*)&x1_bits[k97 + i96 * n16 + i9 * n41];
                            #pragma unroll
                            for (int e99 = 0; e99 < 8; ++e99) {
                                const unsigned short v100 = pack98.at[e99];
                                right_next[u92 * 8 + e99] = v100;
                            }
                        } else {
                            #pragma unroll
                            for (int e101 = 0; e101 < 8; ++e101) {
                                right_next[u92 * 8 + e101] = 0;
                                if (i96 < n14 && (k97 + e101) < n16) {
                                    const unsigned short v102 = x1_bits[(k97 + e101) + i96 * n16 + i9 * n41];
                                    right_next[u92 * 8 + e101] = v102;
                                }
                            }
                        }
                    }
                }
                if (first79 >= 0) {
                    #pragma unroll
                    for (int k103 = 0; k103 < 32; k103 += 16) {
                        unsigned left_now[2][4];
                        #pragma unroll
                        for (int g104 = 0; g104 < 2; ++g104) {
                            lw_words4(left_now[g104], &left[stage78][(int)threadIdx.y % 2 * 32 + g104 * 16 + (int)threadIdx.x / 8 % 2 * 8 + (int)threadIdx.x % 8][k103 + (int)threadIdx.x / 16 * 8]);
                        }
                        unsigned right_now[2][2];
                        #pragma unroll
                        for (int g105 = 0; g105 < 2; ++g105) {
                            lw_words2(right_now[g105], &right[stage78][(int)threadIdx.y / 2 * 16 + g105 * 8 + 0 + (int)threadIdx.x % 8][k103 + (int)threadIdx.x / 8 % 2 * 8]);
                        }
                        #pragma unroll
                        for (int r106 = 0; r106 < 2; ++r106) {
                            #pragma unroll
                            for (int c107 = 0; c107 < 2; ++c107) {
                                lw_mma_f16(p0[(r106 * 2 + 0) * 4 + c107 * 2 + 0], p0[(r106 * 2 + 0) * 4 + c107 * 2 + 1], p0[(r106 * 2 + 1) * 4 + c107 * 2 + 0], p0[(r106 * 2 + 1) * 4 + c107 * 2 + 1], left_now[r106], right_now[c107]);
                            }
                        }
                    }
                }
                stage78 = 1 - stage78;
                if (more80) {
                    #pragma unroll
                    for (int u108 = 0; u108 < 1; ++u108) {
                        const int at110 = u108 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at111 = at110 % 4 * 8;
                        const int at112 = at110 / 4;
                        lw_pack<unsigned short, 8> whole;
                        #pragma unroll
                        for (int e109 = 0; e109 < 8; ++e109) {
                            whole.at[e109] = left_next[u108 * 8 + e109];
                        }
                        *(lw_pack<unsigned short, 8>*)&left[stage78][at112][at111] = whole;
                    }
                    #pragma unroll
                    for (int u113 = 0; u113 < 1; ++u113) {
                        const int at115 = u113 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at116 = at115 % 4 * 8;
                        const int at117 = at115 / 4;
                        lw_pack<unsigned short, 8> whole;
                        #pragma unroll
                        for (int e114 = 0; e114 < 8; ++e114) {
                            whole.at[e114] = right_next[u113 * 8 + e114];
                        }
                        *(lw_pack<unsigned short, 8>*)&right[stage78][at117][at116] = whole;
                    }
                }
                __syncthreads();
            }
        }
        #pragma unroll
        for (int r118 = 0; r118 < 4; ++r118) {
            #pragma unroll
            for (int c119 = 0; c119 < 4; ++c119) {
                const int i120 = at10 + r118 * 8 + (int)threadIdx.y % 2 * 32 + (int)threadIdx.x / 4;
                const int i121 = first76 + c119 / 2 * 8 + (int)threadIdx.y / 2 * 16 + (int)threadIdx.x % 4 * 2 + c119 % 2;
                if (i120 < n26 && i121 < n14) {
                    const float v122 = lw_from_f16(lw_to_f16((float)p0[r118 * 4 + c119]));
                    const float v123 = lw_from_f16(lw_to_f16(v122 * 0x1.998p-3f));
                    const float v124 = lw_from_f16(lw_to_f16(v123 - s4_rows[r118]));
                    const float v125 = lw_from_f16(lw_to_f16(expf(v124)));
                    lw_add(acc74[r118], acc75[r118], v125);
                }
            }
        }
    }
    float s8_rows[4];
    float (*const table126)[17] = (float (*)[17])lw_near;
    #pragma unroll
    for (int r127 = 0; r127 < 4; ++r127) {
        float all128 = lw_added((acc74 + r127)[0], (acc75 + r127)[0]);
        table126[r127 * 8 + (int)threadIdx.y % 2 * 32 + (int)threadIdx.x / 4][(int)threadIdx.y / 2 * 4 + (int)threadIdx.x % 4] = all128;
    }
    __syncthreads();
    #pragma unroll
    for (int r127 = 0; r127 < 4; ++r127) {
        float all129 = table126[r127 * 8 + (int)threadIdx.y % 2 * 32 + (int)threadIdx.x / 4][0];
        for (int k130 = 1; k130 < 16; ++k130) {
            all129 = all129 + table126[r127 * 8 + (int)threadIdx.y % 2 * 32 + (int)threadIdx.x / 4][k130];
        }
        const float v131 = lw_from_f16(lw_to_f16(all129));
        s8_rows[r127] = v131;
    }
    __syncthreads();
    // the last pass
    #pragma unroll
    for (int k132 = 0; k132 < 16; ++k132) {
        s11_sums[k132] = 0.0f;
    }
    const unsigned short* const x2_bits = x2;
    for (int first133 = 0; first133 < n14; first133 += 64) {
        float p0[16];
        #pragma unroll
        for (int k134 = 0; k134 < 16; ++k134) {
            p0[k134] = 0.0f;
        }
         {
            unsigned short (*const left)[64][40] = (unsigned short (*)[64][40])(lw_near + 0);
            unsigned short left_next[8];
            unsigned short (*const right)[64][40] = (unsigned short (*)[64][40])(lw_near + 10240);
            unsigned short right_next[8];
            int stage135 = 0;
            for (int first136 = -32; first136 < n16; first136 += 32) {
                const bool more137 = first136 + 32 < n16;
                if (more137) {
                    #pragma unroll
                    for (int u138 = 0; u138 < 1; ++u138) {
                        const int at139 = u138 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at140 = at139 % 4 * 8;
                        const int at141 = at139 / 4;
                        const int i142 = at10 + at141;
                        const int k143 = first136 + 32 + at140;
                        if (n16 % 8 == 0 && n28 % 8 == 0 && i142 < n26 && k143 + 8 <= n16) {
                            lw_pack<unsigned short, 8> pack144;
                            pack144 = *(const lw_pack<unsigned short, 8>*)&x0_bits[k143 + i142 * n16 + i9 * n28];
                            #pragma unroll
                            for (int e145 = 0; e145 < 8; ++e145) {
                                const unsigned short v146 = pack144.at[e145];
                                left_next[u138 * 8 + e145] = v146;
                            }
                        } else {
                            #pragma unroll
                            for (int e147 = 0; e147 < 8; ++e147) {
                                left_next[u138 * 8 + e147] = 0;
                                if (i142 < n26 && (k143 + e147) < n16) {
                                    const unsigned short v148 = x0_bits[(k143 + e147) + i142 * n16 + i9 * n28];
                                    left_next[u138 * 8 + e147] = v148;
                                }
                            }
                        }
                    }
                    #pragma unroll
                    for (int u149 = 0; u149 < 1; ++u149) {
                        const int at150 = u149 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at151 = at150 % 4 * 8;
                        const int at152 = at150 / 4;
                        const int i153 = first133 + at152;
                        const int k154 = first136 + 32 + at151;
                        if (n16 % 8 == 0 && n41 % 8 == 0 && i153 < n14 && k154 + 8 <= n16) {
                            lw_pack<unsigned short, 8> pack155;
                            pack155 = *(const lw_pack<unsigned short, 8>*)&x1_bits[k154 + i153 * n16 + i9 * n41];
                            #pragma unroll
                            for (int e156 = 0; e156 < 8; ++e156) {
                                const unsigned short v157 = pack155.at[e156];
                                right_next[u149 * 8 + e156] = v157;
                            }
                        } else {
                            #pragma unroll
                            for (int e158 = 0; e158 < 8; ++e158) {
                                right_next[u149 * 8 + e158] = 0;
                                if (i153 < n14 && (k154 + e158) < n16) {
                                    const unsigned short v159 = x1_bits[(k154 + e158) + i153 * n16 + i9 * n41];
                                    right_next[u149 * 8 + e158] = v159;
                                }
                            }
                        }
                    }
                }
                if (first136 >= 0) {
                    #pragma unroll
                    for (int k160 = 0; k160 < 32; k160 += 16) {
                        unsigned left_now[2][4];
                        #pragma unroll
                        for (int g161 = 0; g161 < 2; ++g161) {
                            lw_words4(left_now[g161], &left[stage135][(int)threadIdx.y % 2 * 32 + g161 * 16 + (int)threadIdx.x / 8 % 2 * 8 + (int)threadIdx.x % 8][k160 + (int)threadIdx.x / 16 * 8]);
                        }
                        unsigned right_now[2][2];
                        #pragma unroll
                        for (int g162 = 0; g162 < 2; ++g162) {
                            lw_words2(right_now[g162], &right[stage135][(int)threadIdx.y / 2 * 16 + g162 * 8 + 0 + (int)threadIdx.x % 8][k160 + (int)threadIdx.x / 8 % 2 * 8]);
                        }
                        #pragma unroll
                        for (int r163 = 0; r163 < 2; ++r163) {
                            #pragma unroll
                            for (int c164 = 0; c164 < 2; ++c164) {
                                lw_mma_f16(p0[(r163 * 2 + 0) * 4 + c164 * 2 + 0], p0[(r163 * 2 + 0) * 4 + c164 * 2 + 1], p0[(r163 * 2 + 1) * 4 + c164 * 2 + 0], p0[(r163 * 2 + 1) * 4 + c164 * 2 + 1], left_now[r163], right_now[c164]);
                            }
                        }
                    }
                }
                stage135 = 1 - stage135;
                if (more137) {
                    #pragma unroll
                    for (int u165 = 0; u165 < 1; ++u165) {
                        const int at167 = u165 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at168 = at167 % 4 * 8;
                        const int at169 = at167 / 4;
                        lw_pack<unsigned short, 8> whole;
                        #pragma unroll
                        for (int e166 = 0; e166 < 8; ++e166) {
                            whole.at[e166] = left_next[u165 * 8 + e166];
                        }
                        *(lw_pack<unsigned short, 8>*)&left[stage135][at169][at168] = whole;
                    }
                    #pragma unroll
                    for (int u170 = 0; u170 < 1; ++u170) {
                        const int at172 = u170 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at173 = at172 % 4 * 8;
                        const int at174 = at172 / 4;
                        lw_pack<unsigned short, 8> whole;
                        #pragma unroll
                        for (int e171 = 0; e171 < 8; ++e171) {
                            whole.at[e171] = right_next[u170 * 8 + e171];
                        }
                        *(lw_pack<unsigned short, 8>*)&right[stage135][at174][at173] = whole;
                    }
                }
                __syncthreads();
            }
        }
        #pragma unroll
        for (int a175 = 0; a175 < 4; ++a175) {
            #pragma unroll
            for (int g176 = 0; g176 < 2; ++g176) {
                lw_pack<unsigned short, 2> whole;
                #pragma unroll
                for (int e177 = 0; e177 < 2; ++e177) {
                    const int at178 = g176 * 2 + e177;
                    whole.at[e177] = 0;
                    const int i179 = at10 + a175 * 8 + (int)threadIdx.y % 2 * 32 + (int)threadIdx.x / 4;
                    const int i180 = first133 + at178 / 2 * 8 + (int)threadIdx.y / 2 * 16 + (int)threadIdx.x % 4 * 2 + at178 % 2;
                    if (i179 < n26 && i180 < n14) {
                        const float v181 = lw_from_f16(lw_to_f16((float)p0[a175 * 4 + at178]));
                        const float v182 = lw_from_f16(lw_to_f16(v181 * 0x1.998p-3f));
                        const float v183 = lw_from_f16(lw_to_f16(v182 - s4_rows[a175]));
                        const float v184 = lw_from_f16(lw_to_f16(expf(v183)));
                        const float v185 = lw_from_f16(lw_to_f16(v184 / s8_rows[a175]));
                        whole.at[e177] = lw_to_f16(v185);
                    }
                }
                *(lw_pack<unsigned short, 2>*)&lw_kept[a175 * 8 + (int)threadIdx.y % 2 * 32 + (int)threadIdx.x / 4][g176 * 8 + (int)threadIdx.y / 2 * 16 + (int)threadIdx.x % 4 * 2] = whole;
            }
        }
         {
            unsigned short (*const right_stages)[32][72] = (unsigned short (*)[32][72])(lw_near + 0);
            unsigned short right_stages_next[8];
            int stage186 = 0;
            for (int first187 = -32; first187 < 64; first187 += 32) {
                const bool more188 = first187 + 32 < 64;
                if (more188) {
                    #pragma unroll
                    for (int u189 = 0; u189 < 1; ++u189) {
                        const int at190 = u189 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at191 = at190 % 8 * 8;
                        const int at192 = at190 / 8;
                        const int i193 = at11 + at191;
                        const int k194 = first133 + first187 + 32 + at192;
                        if (n195 % 8 == 0 && n197 % 8 == 0 && i193 + 8 <= n195 && k194 < n14) {
                            lw_pack<unsigned short, 8> pack198;
                            pack198 = *(const lw_pack<unsigned short, 8>*)&x2_bits[i193 + k194 * n195 + i9 * n197];
                            #pragma unroll
                            for (int e199 = 0; e199 < 8; ++e199) {
                                const unsigned short v200 = pack198.at[e199];
                                right_stages_next[u189 * 8 + e199] = v200;
                            }
                        } else {
                            #pragma unroll
                            for (int e201 = 0; e201 < 8; ++e201) {
                                right_stages_next[u189 * 8 + e201] = 0;
                                if ((i193 + e201) < n195 && k194 < n14) {
                                    const unsigned short v202 = x2_bits[(i193 + e201) + k194 * n195 + i9 * n197];
                                    right_stages_next[u189 * 8 + e201] = v202;
                                }
                            }
                        }
                    }
                }
                if (first187 >= 0) {
                    unsigned short (*const left)[72] = (unsigned short (*)[72])&lw_kept[0][first187];
                    auto* const right = right_stages[stage186];
                    #pragma unroll
                    for (int k203 = 0; k203 < 32; k203 += 16) {
                        unsigned left_now[2][4];
                        #pragma unroll
                        for (int g204 = 0; g204 < 2; ++g204) {
                            lw_words4(left_now[g204], &left[(int)threadIdx.y % 2 * 32 + g204 * 16 + (int)threadIdx.x / 8 % 2 * 8 + (int)threadIdx.x % 8][k203 + (int)threadIdx.x / 16 * 8]);
                        }
                        unsigned right_now[2][2];
                        #pragma unroll
                        for (int g205 = 0; g205 < 2; ++g205) {
                            lw_words2_across(right_now[g205], &right[k203 + (int)threadIdx.x / 8 % 2 * 8 + (int)threadIdx.x % 8][(int)threadIdx.y / 2 * 16 + g205 * 8 + 0]);
                        }
                        #pragma unroll
                        for (int r206 = 0; r206 < 2; ++r206) {
                            #pragma unroll
                            for (int c207 = 0; c207 < 2; ++c207) {
                                lw_mma_f16(s11_sums[(r206 * 2 + 0) * 4 + c207 * 2 + 0], s11_sums[(r206 * 2 + 0) * 4 + c207 * 2 + 1], s11_sums[(r206 * 2 + 1) * 4 + c207 * 2 + 0], s11_sums[(r206 * 2 + 1) * 4 + c207 * 2 + 1], left_now[r206], right_now[c207]);
                            }
                        }
                    }
                }
                stage186 = 1 - stage186;
                if (more188) {
                    #pragma unroll
                    for (int u208 = 0; u208 < 1; ++u208) {
                        const int at210 = u208 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at211 = at210 % 8 * 8;
                        const int at212 = at210 / 8;
                        lw_pack<unsigned short, 8> whole;
                        #pragma unroll
                        for (int e209 = 0; e209 < 8; ++e209) {
                            whole.at[e209] = right_stages_next[u208 * 8 + e209];
                        }
                        *(lw_pack<unsigned short, 8>*)&right_stages[stage186][at212][at211] = whole;
                    }
                }
                __syncthreads();
            }
        }
    }
    #pragma unroll
    for (int r213 = 0; r213 < 4; ++r213) {
        const int i215 = at10 + r213 * 8 + (int)threadIdx.y % 2 * 32 + (int)threadIdx.x / 4;
        #pragma unroll
        for (int g214 = 0; g214 < 2; ++g214) {
            const int i216 = at11 + g214 * 8 + (int)threadIdx.y / 2 * 16 + (int)threadIdx.x % 4 * 2;
            if (n195 % 2 == 0 && n218 % 2 == 0 && i215 < n26 && i216 + 2 <= n195) {
                lw_pack<unsigned short, 2> pack219;
                #pragma unroll
                for (int e220 = 0; e220 < 2; ++e220) {
                    const float v221 = lw_from_f16(lw_to_f16((float)s11_sums[r213 * 4 + g214 * 2 + e220]));
                    pack219.at[e220] = lw_to_f16(v221);
                }
                *(lw_pack<unsigned short, 2>*)&y0[i216 + i215 * n195 + i9 * n218] = pack219;
            } else {
                #pragma unroll
                for (int e222 = 0; e222 < 2; ++e222) {
                    if (i215 < n26 && i216 + e222 < n195) {
                        const float v223 = lw_from_f16(lw_to_f16((float)s11_sums[r213 * 4 + g214 * 2 + e222]));
                        y0[(i216 + e222) + i215 * n195 + i9 * n218] = lw_to_f16(v223);
                    }
                }
            }
        }
    }
}
