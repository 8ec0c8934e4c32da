// kernel_0<<<floordiv(floordiv(k, w)*m + 63, 64)*floordiv(t + 31, 32)*n*w, 32 * 8>>> (1250 blocks now): f16[n, m, k, t], f16[n, v, w, t], f16[n, m, k, p], f16[n, v, w, p] -> f32[n, w, m, floordiv(k, w), t], f32[n, w, m, floordiv(k, w)], f32[n, w, m, floordiv(k, w)], f32[n, w, m, floordiv(k, w)], f32[n, w, m, floordiv(k, w)]
// kernel_1<<<floordiv(p + 31, 32)*floordiv(v + 63, 64)*n*w, 32 * 8>>> (626 blocks now): f16[n, m, k, t], f16[n, v, w, t], f32[n, w, m, floordiv(k, w)], f32[n, w, m, floordiv(k, w)], f16[n, m, k, p] -> f16[n, w, v, p]
// kernel_2<<<floordiv(t + 31, 32)*floordiv(v + 63, 64)*n*w, 32 * 8>>> (626 blocks now): f16[n, m, k, t], f16[n, v, w, t], f32[n, w, m, floordiv(k, w)], f32[n, w, m, floordiv(k, w)], f16[n, m, k, p], f16[n, v, w, p], f32[n, w, m, floordiv(k, w)] -> f32[n, w, v, t]
// kernel_3<<<floordiv(n*p*v*w + 4095, 4096), 256 * 1>>> (235 blocks now): f16[n, w, v, p] -> f16[n, v, w, p]
// kernel_4<<<floordiv(n*t*v*w + 2047, 2048), 256 * 1>>> (469 blocks now): f32[n, w, v, t] -> f16[n, v, w, t]
// kernel_5<<<floordiv(floordiv(k, w)*m*n*t*w + 2047, 2048), 256 * 1>>> (938 blocks now): f32[n, w, m, floordiv(k, w), t] -> f16[n, m, w, floordiv(k, w), t]
// reshape, the same bytes: f16[n, m, w, floordiv(k, w), t] -> f16[n, m, k, t]

__device__ __forceinline__ long long lw_size_divide(long long a, long long b) {
    return b == 0 ? 0 : a / b - (a % b != 0 && (a % b ^ b) < 0);
}

template <class T, int N> struct alignas(sizeof(T) * N) lw_pack { T at[N]; };

__device__ __forceinline__ long long lw_remainder_int64(long long a, long long b) { if (b == 0 || b == (long long)-1) return 0; const long long r = (long long)(a % b); return (long long)(r != 0 && (r ^ b) < 0 ? r + b : r); }

__device__ __forceinline__ long long lw_floor_divide_int64(long long a, long long b) { if (b == 0) return 0; if (b == (long long)-1) return (long long)(0 - (unsigned long long)a); return (long long)(a / b - (a % b != 0 && (a % b ^ b) < 0)); }

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
__device__ __forceinline__ void lw_words4_across(unsigned* to, const unsigned short* row) {
#ifndef LW_EMULATED
    const unsigned at = (unsigned)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(at) : "memory");
#else
    const int lane = (int)threadIdx.x % 32, one = lane % 4 * 2, other = lane / 4;
    for (int q = 0; q < 4; ++q) {
        const unsigned short* const x = __shfl_sync(0xffffffffu, row, q * 8 + (true ? one : other));
        const unsigned short* const y = __shfl_sync(0xffffffffu, row, q * 8 + (true ? one + 1 : other));
        to[q] = true ? x[other] | (unsigned)y[other] << 16 : x[one] | (unsigned)y[one + 1] << 16;
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
        const unsigned short* __restrict__ x2,
        const unsigned short* __restrict__ x3,
        float* y0,
        float* y1,
        float* y2,
        float* y3,
        float* y4,
        long long size_n,
        long long size_m,
        long long size_k,
        long long size_t,
        long long size_v,
        long long size_w,
        long long size_p,
        long long* error) {
    const long long n0 = size_t + 31ll;
    const long long n1 = lw_size_divide(n0, 32ll);
    const int n2 = (int)(n1);
    const long long n5 = lw_size_divide(size_k, size_w) * size_m + 63ll;
    const long long n6 = lw_size_divide(n5, 64ll);
    const int n7 = (int)(n6);
    const int n10 = (int)(size_w);
    const int n17 = (int)(size_v);
    const int n19 = (int)(size_t);
    const long long n29 = lw_size_divide(size_k, size_w) * size_m;
    const int n30 = (int)(n29);
    const long long n32 = lw_size_divide(size_k, size_w);
    const int n33 = (int)(n32);
    const long long n42 = size_k * size_t;
    const int n43 = (int)(n42);
    const long long n44 = size_k * size_m * size_t;
    const int n45 = (int)(n44);
    const long long n53 = size_t * size_w;
    const int n54 = (int)(n53);
    const long long n55 = size_t * size_v * size_w;
    const int n56 = (int)(n55);
    const int n146 = (int)(size_p);
    const long long n165 = size_k * size_p;
    const int n166 = (int)(n165);
    const long long n167 = size_k * size_m * size_p;
    const int n168 = (int)(n167);
    const long long n176 = size_p * size_w;
    const int n177 = (int)(n176);
    const long long n178 = size_p * size_v * size_w;
    const int n179 = (int)(n178);
    const long long n382 = lw_size_divide(size_k, size_w) * size_m * size_w;
    const int n383 = (int)(n382);
    const long long n395 = lw_size_divide(size_k, size_w) * size_t;
    const int n396 = (int)(n395);
    const long long n397 = lw_size_divide(size_k, size_w) * size_m * size_t;
    const int n398 = (int)(n397);
    const long long n399 = lw_size_divide(size_k, size_w) * size_m * size_t * size_w;
    const int n400 = (int)(n399);
    const int i3 = (int)((unsigned int)(int)blockIdx.x % (unsigned int)n2);
    const int i4 = (int)((unsigned int)(int)blockIdx.x / (unsigned int)n2);
    const int i8 = (int)((unsigned int)i4 % (unsigned int)n7);
    const int i9 = (int)((unsigned int)i4 / (unsigned int)n7);
    const int i11 = (int)((unsigned int)i9 % (unsigned int)n10);
    const int i12 = (int)((unsigned int)i9 / (unsigned int)n10);
    const int at13 = i8 * 64;
    const int at14 = i3 * 32;
    float r42_sums[8];
    __shared__ __align__(16) unsigned char lw_near[20480];
    __shared__ __align__(16) float lw_kept[64][68];
    // pass 1: max
    float acc15[4] = {__uint_as_float(0xff800000u), __uint_as_float(0xff800000u), __uint_as_float(0xff800000u), __uint_as_float(0xff800000u)};
    const unsigned short* const x0_bits = x0;
    const unsigned short* const x1_bits = x1;
    for (int first16 = 0; first16 < n17; first16 += 64) {
        float p0[16];
        #pragma unroll
        for (int k18 = 0; k18 < 16; ++k18) {
            p0[k18] = 0.0f;
        }
         {
            unsigned short (*const left)[32][72] = (unsigned short (*)[32][72])(lw_near + 0);
            unsigned short left_next[8];
            unsigned short (*const right)[64][40] = (unsigned short (*)[64][40])(lw_near + 9216);
            unsigned short right_next[8];
            int stage20 = 0;
            for (int first21 = -32; first21 < n19; first21 += 32) {
                const bool more22 = first21 + 32 < n19;
                if (more22) {
                    #pragma unroll
                    for (int u23 = 0; u23 < 8; ++u23) {
                        const int at24 = u23 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at25 = at24 % 64 * 1;
                        const int at26 = at24 / 64;
                        const int i27 = at13 + at25;
                        const int k28 = first21 + 32 + at26;
                        #pragma unroll
                        for (int e31 = 0; e31 < 1; ++e31) {
                            left_next[u23 * 1 + e31] = 0;
                            if ((i27 + e31) < n30 && k28 < n19) {
                                const int i34 = (int)((unsigned int)((i27 + e31)) % (unsigned int)n33);
                                const int i35 = (int)((unsigned int)((i27 + e31)) / (unsigned int)n33);
                                const long long v36 = (long long)((unsigned long long)(long long)i11 * (unsigned long long)n32);
                                const long long v37 = (long long)((unsigned long long)v36 + (unsigned long long)(long long)i34);
                                const long long v38 = (long long)((unsigned long long)v37 * (unsigned long long)size_t);
                                const long long v39 = (long long)((unsigned long long)v38 + (unsigned long long)(long long)k28);
                                const long long v40 = lw_remainder_int64(v39, size_t);
                                const long long v41 = lw_floor_divide_int64(v39, size_t);
                                const unsigned short v46 = x0_bits[(int)v40 + (int)v41 * n19 + i35 * n43 + i12 * n45];
                                left_next[u23 * 1 + e31] = v46;
                            }
                        }
                    }
                    #pragma unroll
                    for (int u47 = 0; u47 < 1; ++u47) {
                        const int at48 = u47 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at49 = at48 % 4 * 8;
                        const int at50 = at48 / 4;
                        const int i51 = first16 + at50;
                        const int k52 = first21 + 32 + at49;
                        if (n19 % 8 == 0 && n54 % 8 == 0 && n56 % 8 == 0 && i51 < n17 && k52 + 8 <= n19) {
                            lw_pack<unsigned short, 8> pack57;
                            pack57 = *(const lw_pack<unsigned short, 8>*)&x1_bits[k52 + i11 * n19 + i51 * n54 + i12 * n56];
                            #pragma unroll
                            for (int e58 = 0; e58 < 8; ++e58) {
                                const unsigned short v59 = pack57.at[e58];
                                right_next[u47 * 8 + e58] = v59;
                            }
                        } else {
                            #pragma unroll
                            for (int e60 = 0; e60 < 8; ++e60) {
                                right_next[u47 * 8 + e60] = 0;
                                if (i51 < n17 && (k52 + e60) < n19) {
                                    const unsigned short v61 = x1_bits[(k52 + e60) + i11 * n19 + i51 * n54 + i12 * n56];
                                    right_next[u47 * 8 + e60] = v61;
                                }
                            }
                        }
                    }
                }
                if (first21 >= 0) {
                    #pragma unroll
                    for (int k62 = 0; k62 < 32; k62 += 16) {
                        unsigned left_now[2][4];
                        #pragma unroll
                        for (int g63 = 0; g63 < 2; ++g63) {
                            lw_words4_across(left_now[g63], &left[stage20][k62 + (int)threadIdx.x / 16 * 8 + (int)threadIdx.x % 8][(int)threadIdx.y % 2 * 32 + g63 * 16 + (int)threadIdx.x / 8 % 2 * 8]);
                        }
                        unsigned right_now[2][2];
                        #pragma unroll
                        for (int g64 = 0; g64 < 2; ++g64) {
                            lw_words2(right_now[g64], &right[stage20][(int)threadIdx.y / 2 * 16 + g64 * 8 + 0 + (int)threadIdx.x % 8][k62 + (int)threadIdx.x / 8 % 2 * 8]);
                        }
                        #pragma unroll
                        for (int r65 = 0; r65 < 2; ++r65) {
                            #pragma unroll
                            for (int c66 = 0; c66 < 2; ++c66) {
                                lw_mma_f16(p0[(r65 * 2 + 0) * 4 + c66 * 2 + 0], p0[(r65 * 2 + 0) * 4 + c66 * 2 + 1], p0[(r65 * 2 + 1) * 4 + c66 * 2 + 0], p0[(r65 * 2 + 1) * 4 + c66 * 2 + 1], left_now[r65], right_now[c66]);
                            }
                        }
                    }
                }
                stage20 = 1 - stage20;
                if (more22) {
                    #pragma unroll
                    for (int u67 = 0; u67 < 8; ++u67) {
                        const int at69 = u67 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at70 = at69 % 64 * 1;
                        const int at71 = at69 / 64;
                        lw_pack<unsigned short, 1> whole;
                        #pragma unroll
                        for (int e68 = 0; e68 < 1; ++e68) {
                            whole.at[e68] = left_next[u67 * 1 + e68];
                        }
                        *(lw_pack<unsigned short, 1>*)&left[stage20][at71][at70] = whole;
                    }
                    #pragma unroll
                    for (int u72 = 0; u72 < 1; ++u72) {
                        const int at74 = u72 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at75 = at74 % 4 * 8;
                        const int at76 = at74 / 4;
                        lw_pack<unsigned short, 8> whole;
                        #pragma unroll
                        for (int e73 = 0; e73 < 8; ++e73) {
                            whole.at[e73] = right_next[u72 * 8 + e73];
                        }
                        *(lw_pack<unsigned short, 8>*)&right[stage20][at76][at75] = whole;
                    }
                }
                __syncthreads();
            }
        }
        #pragma unroll
        for (int r77 = 0; r77 < 4; ++r77) {
            #pragma unroll
            for (int c78 = 0; c78 < 4; ++c78) {
                const int i79 = at13 + r77 * 8 + (int)threadIdx.y % 2 * 32 + (int)threadIdx.x / 4;
                const int i80 = first16 + c78 / 2 * 8 + (int)threadIdx.y / 2 * 16 + (int)threadIdx.x % 4 * 2 + c78 % 2;
                if (i79 < n30 && i80 < n17) {
                    const int i81 = (int)((unsigned int)(i79) % (unsigned int)n33);
                    const int i82 = (int)((unsigned int)(i79) / (unsigned int)n33);
                    const double v83 = (double)size_t;
                    const double v84 = sqrt(v83);
                    const double v85 = 1.0 / v84;
                    const float v86 = (float)v85;
                    const float v87 = p0[r77 * 4 + c78] * v86;
                    acc15[r77] = lw_max(acc15[r77], v87);
                }
            }
        }
    }
    float s12_rows[4];
    float (*const table88)[17] = (float (*)[17])lw_near;
    #pragma unroll
    for (int r89 = 0; r89 < 4; ++r89) {
        float all90 = (acc15 + r89)[0];
        table88[r89 * 8 + (int)threadIdx.y % 2 * 32 + (int)threadIdx.x / 4][(int)threadIdx.y / 2 * 4 + (int)threadIdx.x % 4] = all90;
    }
    __syncthreads();
    #pragma unroll
    for (int r89 = 0; r89 < 4; ++r89) {
        float all91 = table88[r89 * 8 + (int)threadIdx.y % 2 * 32 + (int)threadIdx.x / 4][0];
        for (int k92 = 1; k92 < 16; ++k92) {
            all91 = lw_max(all91, table88[r89 * 8 + (int)threadIdx.y % 2 * 32 + (int)threadIdx.x / 4][k92]);
        }
        const float v93 = all91;
        s12_rows[r89] = v93;
    }
    __syncthreads();
    // pass 2: sum, sum
    float acc94[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    float acc95[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    float acc96[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    float acc97[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    const unsigned short* const x2_bits = x2;
    const unsigned short* const x3_bits = x3;
    for (int first98 = 0; first98 < n17; first98 += 64) {
        float p0[16];
        #pragma unroll
        for (int k99 = 0; k99 < 16; ++k99) {
            p0[k99] = 0.0f;
        }
         {
            unsigned short (*const left)[32][72] = (unsigned short (*)[32][72])(lw_near + 0);
            unsigned short left_next[8];
            unsigned short (*const right)[64][40] = (unsigned short (*)[64][40])(lw_near + 9216);
            unsigned short right_next[8];
            int stage100 = 0;
            for (int first101 = -32; first101 < n19; first101 += 32) {
                const bool more102 = first101 + 32 < n19;
                if (more102) {
                    #pragma unroll
                    for (int u103 = 0; u103 < 8; ++u103) {
                        const int at104 = u103 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at105 = at104 % 64 * 1;
                        const int at106 = at104 / 64;
                        const int i107 = at13 + at105;
                        const int k108 = first101 + 32 + at106;
                        #pragma unroll
                        for (int e109 = 0; e109 < 1; ++e109) {
                            left_next[u103 * 1 + e109] = 0;
                            if ((i107 + e109) < n30 && k108 < n19) {
                                const int i110 = (int)((unsigned int)((i107 + e109)) % (unsigned int)n33);
                                const int i111 = (int)((unsigned int)((i107 + e109)) / (unsigned int)n33);
                                const long long v112 = (long long)((unsigned long long)(long long)i11 * (unsigned long long)n32);
                                const long long v113 = (long long)((unsigned long long)v112 + (unsigned long long)(long long)i110);
                                const long long v114 = (long long)((unsigned long long)v113 * (unsigned long long)size_t);
                                const long long v115 = (long long)((unsigned long long)v114 + (unsigned long long)(long long)k108);
                                const long long v116 = lw_remainder_int64(v115, size_t);
                                const long long v117 = lw_floor_divide_int64(v115, size_t);
                                const unsigned short v118 = x0_bits[(int)v116 + (int)v117 * n19 + i111 * n43 + i12 * n45];
                                left_next[u103 * 1 + e109] = v118;
                            }
                        }
                    }
                    #pragma unroll
                    for (int u119 = 0; u119 < 1; ++u119) {
                        const int at120 = u119 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at121 = at120 % 4 * 8;
                        const int at122 = at120 / 4;
                        const int i123 = first98 + at122;
                        const int k124 = first101 + 32 + at121;
                        if (n19 % 8 == 0 && n54 % 8 == 0 && n56 % 8 == 0 && i123 < n17 && k124 + 8 <= n19) {
                            lw_pack<unsigned short, 8> pack125;
                            pack125 = *(const lw_pack<unsigned short, 8>*)&x1_bits[k124 + i11 * n19 + i123 * n54 + i12 * n56];
                            #pragma unroll
                            for (int e126 = 0; e126 < 8; ++e126) {
                                const unsigned short v127 = pack125.at[e126];
                                right_next[u119 * 8 + e126] = v127;
                            }
                        } else {
                            #pragma unroll
                            for (int e128 = 0; e128 < 8; ++e128) {
                                right_next[u119 * 8 + e128] = 0;
                                if (i123 < n17 && (k124 + e128) < n19) {
                                    const unsigned short v129 = x1_bits[(k124 + e128) + i11 * n19 + i123 * n54 + i12 * n56];
                                    right_next[u119 * 8 + e128] = v129;
                                }
                            }
                        }
                    }
                }
                if (first101 >= 0) {
                    #pragma unroll
                    for (int k130 = 0; k130 < 32; k130 += 16) {
                        unsigned left_now[2][4];
                        #pragma unroll
                        for (int g131 = 0; g131 < 2; ++g131) {
                            lw_words4_across(left_now[g131], &left[stage100][k130 + (int)threadIdx.x / 16 * 8 + (int)threadIdx.x % 8][(int)threadIdx.y % 2 * 32 + g131 * 16 + (int)threadIdx.x / 8 % 2 * 8]);
                        }
                        unsigned right_now[2][2];
                        #pragma unroll
                        for (int g132 = 0; g132 < 2; ++g132) {
                            lw_words2(right_now[g132], &right[stage100][(int)threadIdx.y / 2 * 16 + g132 * 8 + 0 + (int)threadIdx.x % 8][k130 + (int)threadIdx.x / 8 % 2 * 8]);
                        }
                        #pragma unroll
                        for (int r133 = 0; r133 < 2; ++r133) {
                            #pragma unroll
                            for (int c134 = 0; c134 < 2; ++c134) {
                                lw_mma_f16(p0[(r133 * 2 + 0) * 4 + c134 * 2 + 0], p0[(r133 * 2 + 0) * 4 + c134 * 2 + 1], p0[(r133 * 2 + 1) * 4 + c134 * 2 + 0], p0[(r133 * 2 + 1) * 4 + c134 * 2 + 1], left_now[r133], right_now[c134]);
                            }
                        }
                    }
                }
                stage100 = 1 - stage100;
                if (more102) {
                    #pragma unroll
                    for (int u135 = 0; u135 < 8; ++u135) {
                        const int at137 = u135 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at138 = at137 % 64 * 1;
                        const int at139 = at137 / 64;
                        lw_pack<unsigned short, 1> whole;
                        #pragma unroll
                        for (int e136 = 0; e136 < 1; ++e136) {
                            whole.at[e136] = left_next[u135 * 1 + e136];
                        }
                        *(lw_pack<unsigned short, 1>*)&left[stage100][at139][at138] = whole;
                    }
                    #pragma unroll
                    for (int u140 = 0; u140 < 1; ++u140) {
                        const int at142 = u140 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at143 = at142 % 4 * 8;
                        const int at144 = at142 / 4;
                        lw_pack<unsigned short, 8> whole;
                        #pragma unroll
                        for (int e141 = 0; e141 < 8; ++e141) {
                            whole.at[e141] = right_next[u140 * 8 + e141];
                        }
                        *(lw_pack<unsigned short, 8>*)&right[stage100][at144][at143] = whole;
                    }
                }
                __syncthreads();
            }
        }
        float p1[16];
        #pragma unroll
        for (int k145 = 0; k145 < 16; ++k145) {
            p1[k145] = 0.0f;
        }
         {
            unsigned short (*const left)[32][72] = (unsigned short (*)[32][72])(lw_near + 0);
            unsigned short left_next[8];
            unsigned short (*const right)[64][40] = (unsigned short (*)[64][40])(lw_near + 9216);
            unsigned short right_next[8];
            int stage147 = 0;
            for (int first148 = -32; first148 < n146; first148 += 32) {
                const bool more149 = first148 + 32 < n146;
                if (more149) {
                    #pragma unroll
                    for (int u150 = 0; u150 < 8; ++u150) {
                        const int at151 = u150 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at152 = at151 % 64 * 1;
                        const int at153 = at151 / 64;
                        const int i154 = at13 + at152;
                        const int k155 = first148 + 32 + at153;
                        #pragma unroll
                        for (int e156 = 0; e156 < 1; ++e156) {
                            left_next[u150 * 1 + e156] = 0;
                            if ((i154 + e156) < n30 && k155 < n146) {
                                const int i157 = (int)((unsigned int)((i154 + e156)) % (unsigned int)n33);
                                const int i158 = (int)((unsigned int)((i154 + e156)) / (unsigned int)n33);
                                const long long v159 = (long long)((unsigned long long)(long long)i11 * (unsigned long long)n32);
                                const long long v160 = (long long)((unsigned long long)v159 + (unsigned long long)(long long)i157);
                                const long long v161 = (long long)((unsigned long long)v160 * (unsigned long long)size_p);
                                const long long v162 = (long long)((unsigned long long)v161 + (unsigned long long)(long long)k155);
                                const long long v163 = lw_remainder_int64(v162, size_p);
                                const long long v164 = lw_floor_divide_int64(v162, size_p);
                                const unsigned short v169 = x2_bits[(int)v163 + (int)v164 * n146 + i158 * n166 + i12 * n168];
                                left_next[u150 * 1 + e156] = v169;
                            }
                        }
                    }
                    #pragma unroll
                    for (int u170 = 0; u170 < 1; ++u170) {
                        const int at171 = u170 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at172 = at171 % 4 * 8;
                        const int at173 = at171 / 4;
                        const int i174 = first98 + at173;
                        const int k175 = first148 + 32 + at172;
                        if (n146 % 8 == 0 && n177 % 8 == 0 && n179 % 8 == 0 && i174 < n17 && k175 + 8 <= n146) {
                            lw_pack<unsigned short, 8> pack180;
                            pack180 = *(const lw_pack<unsigned short, 8>*)&x3_bits[k175 + i11 * n146 + i174 * n177 + i12 * n179];
                            #pragma unroll
                            for (int e181 = 0; e181 < 8; ++e181) {
                                const unsigned short v182 = pack180.at[e181];
                                right_next[u170 * 8 + e181] = v182;
                            }
                        } else {
                            #pragma unroll
                            for (int e183 = 0; e183 < 8; ++e183) {
                                right_next[u170 * 8 + e183] = 0;
                                if (i174 < n17 && (k175 + e183) < n146) {
                                    const unsigned short v184 = x3_bits[(k175 + e183) + i11 * n146 + i174 * n177 + i12 * n179];
                                    right_next[u170 * 8 + e183] = v184;
                                }
                            }
                        }
                    }
                }
                if (first148 >= 0) {
                    #pragma unroll
                    for (int k185 = 0; k185 < 32; k185 += 16) {
                        unsigned left_now[2][4];
                        #pragma unroll
                        for (int g186 = 0; g186 < 2; ++g186) {
                            lw_words4_across(left_now[g186], &left[stage147][k185 + (int)threadIdx.x / 16 * 8 + (int)threadIdx.x % 8][(int)threadIdx.y % 2 * 32 + g186 * 16 + (int)threadIdx.x / 8 % 2 * 8]);
                        }
                        unsigned right_now[2][2];
                        #pragma unroll
                        for (int g187 = 0; g187 < 2; ++g187) {
                            lw_words2(right_now[g187], &right[stage147][(int)threadIdx.y / 2 * 16 + g187 * 8 + 0 + (int)threadIdx.x % 8][k185 + (int)threadIdx.x / 8 % 2 * 8]);
                        }
                        #pragma unroll
                        for (int r188 = 0; r188 < 2; ++r188) {
                            #pragma unroll
                            for (int c189 = 0; c189 < 2; ++c189) {
                                lw_mma_f16(p1[(r188 * 2 + 0) * 4 + c189 * 2 + 0], p1[(r188 * 2 + 0) * 4 + c189 * 2 + 1], p1[(r188 * 2 + 1) * 4 + c189 * 2 + 0], p1[(r188 * 2 + 1) * 4 + c189 * 2 + 1], left_now[r188], right_now[c189]);
                            }
                        }
                    }
                }
                stage147 = 1 - stage147;
                if (more149) {
                    #pragma unroll
                    for (int u190 = 0; u190 < 8; ++u190) {
                        const int at192 = u190 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at193 = at192 % 64 * 1;
                        const int at194 = at192 / 64;
                        lw_pack<unsigned short, 1> whole;
                        #pragma unroll
                        for (int e191 = 0; e191 < 1; ++e191) {
                            whole.at[e191] = left_next[u190 * 1 + e191];
                        }
                        *(lw_pack<unsigned short, 1>*)&left[stage147][at194][at193] = whole;
                    }
                    #pragma unroll
                    for (int u195 = 0; u195 < 1; ++u195) {
                        const int at197 = u195 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at198 = at197 % 4 * 8;
                        const int at199 = at197 / 4;
                        lw_pack<unsigned short, 8> whole;
                        #pragma unroll
                        for (int e196 = 0; e196 < 8; ++e196) {
                            whole.at[e196] = right_next[u195 * 8 + e196];
                        }
                        *(lw_pack<unsigned short, 8>*)&right[stage147][at199][at198] = whole;
                    }
                }
                __syncthreads();
            }
        }
        #pragma unroll
        for (int r200 = 0; r200 < 4; ++r200) {
            #pragma unroll
            for (int c201 = 0; c201 < 4; ++c201) {
                const int i202 = at13 + r200 * 8 + (int)threadIdx.y % 2 * 32 + (int)threadIdx.x / 4;
                const int i203 = first98 + c201 / 2 * 8 + (int)threadIdx.y / 2 * 16 + (int)threadIdx.x % 4 * 2 + c201 % 2;
                if (i202 < n30 && i203 < n17) {
                    const int i204 = (int)((unsigned int)(i202) % (unsigned int)n33);
                    const int i205 = (int)((unsigned int)(i202) / (unsigned int)n33);
                    const double v206 = (double)size_t;
                    const double v207 = sqrt(v206);
                    const double v208 = 1.0 / v207;
                    const float v209 = (float)v208;
                    const float v210 = p0[r200 * 4 + c201] * v209;
                    const float v211 = lw_max(s12_rows[r200], __uint_as_float(0xff800000u));
                    const bool v212 = v211 - v211 == 0;
                    const float v213 = v212 ? v211 : 0.0f;
                    const float v214 = v210 - v213;
                    const float v215 = expf(v214);
                    lw_add(acc94[r200], acc95[r200], v215);
                    const float v216 = lw_from_f16(lw_to_f16((float)p1[r200 * 4 + c201]));
                    const float v217 = v216 * v215;
                    lw_add(acc96[r200], acc97[r200], v217);
                }
            }
        }
    }
    float s24_rows[4];
    float (*const table218)[17] = (float (*)[17])lw_near;
    #pragma unroll
    for (int r219 = 0; r219 < 4; ++r219) {
        float all220 = lw_added((acc94 + r219)[0], (acc95 + r219)[0]);
        table218[r219 * 8 + (int)threadIdx.y % 2 * 32 + (int)threadIdx.x / 4][(int)threadIdx.y / 2 * 4 + (int)threadIdx.x % 4] = all220;
    }
    __syncthreads();
    #pragma unroll
    for (int r219 = 0; r219 < 4; ++r219) {
        float all221 = table218[r219 * 8 + (int)threadIdx.y % 2 * 32 + (int)threadIdx.x / 4][0];
        for (int k222 = 1; k222 < 16; ++k222) {
            all221 = all221 + table218[r219 * 8 + (int)threadIdx.y % 2 * 32 + (int)threadIdx.x / 4][k222];
        }
        const float v223 = all221;
        s24_rows[r219] = v223;
    }
    __syncthreads();
    float s33_rows[4];
    float (*const table224)[17] = (float (*)[17])lw_near;
    #pragma unroll
    for (int r225 = 0; r225 < 4; ++r225) {
        float all226 = lw_added((acc96 + r225)[0], (acc97 + r225)[0]);
        table224[r225 * 8 + (int)threadIdx.y % 2 * 32 + (int)threadIdx.x / 4][(int)threadIdx.y / 2 * 4 + (int)threadIdx.x % 4] = all226;
    }
    __syncthreads();
    #pragma unroll
    for (int r225 = 0; r225 < 4; ++r225) {
        float all227 = table224[r225 * 8 + (int)threadIdx.y % 2 * 32 + (int)threadIdx.x / 4][0];
        for (int k228 = 1; k228 < 16; ++k228) {
            all227 = all227 + table224[r225 * 8 + (int)threadIdx.y % 2 * 32 + (int)threadIdx.x / 4][k228];
        }
        const float v229 = all227;
        s33_rows[r225] = v229;
    }
    __syncthreads();
    // the last pass
    #pragma unroll
    for (int k230 = 0; k230 < 8; ++k230) {
        r42_sums[k230] = 0.0f;
    }
    for (int first231 = 0; first231 < n17; first231 += 64) {
        float p0[16];
        #pragma unroll
        for (int k232 = 0; k232 < 16; ++k232) {
            p0[k232] = 0.0f;
        }
         {
            unsigned short (*const left)[32][72] = (unsigned short (*)[32][72])(lw_near + 0);
            unsigned short left_next[8];
            unsigned short (*const right)[64][40] = (unsigned short (*)[64][40])(lw_near + 9216);
            unsigned short right_next[8];
            int stage233 = 0;
            for (int first234 = -32; first234 < n19; first234 += 32) {
                const bool more235 = first234 + 32 < n19;
                if (more235) {
                    #pragma unroll
                    for (int u236 = 0; u236 < 8; ++u236) {
                        const int at237 = u236 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at238 = at237 % 64 * 1;
                        const int at239 = at237 / 64;
                        const int i240 = at13 + at238;
                        const int k241 = first234 + 32 + at239;
                        #pragma unroll
                        for (int e242 = 0; e242 < 1; ++e242) {
                            left_next[u236 * 1 + e242] = 0;
                            if ((i240 + e242) < n30 && k241 < n19) {
                                const int i243 = (int)((unsigned int)((i240 + e242)) % (unsigned int)n33);
                                const int i244 = (int)((unsigned int)((i240 + e242)) / (unsigned int)n33);
                                const long long v245 = (long long)((unsigned long long)(long long)i11 * (unsigned long long)n32);
                                const long long v246 = (long long)((unsigned long long)v245 + (unsigned long long)(long long)i243);
                                const long long v247 = (long long)((unsigned long long)v246 * (unsigned long long)size_t);
                                const long long v248 = (long long)((unsigned long long)v247 + (unsigned long long)(long long)k241);
                                const long long v249 = lw_remainder_int64(v248, size_t);
                                const long long v250 = lw_floor_divide_int64(v248, size_t);
                                const unsigned short v251 = x0_bits[(int)v249 + (int)v250 * n19 + i244 * n43 + i12 * n45];
                                left_next[u236 * 1 + e242] = v251;
                            }
                        }
                    }
                    #pragma unroll
                    for (int u252 = 0; u252 < 1; ++u252) {
                        const int at253 = u252 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at254 = at253 % 4 * 8;
                        const int at255 = at253 / 4;
                        const int i256 = first231 + at255;
                        const int k257 = first234 + 32 + at254;
                        if (n19 % 8 == 0 && n54 % 8 == 0 && n56 % 8 == 0 && i256 < n17 && k257 + 8 <= n19) {
                            lw_pack<unsigned short, 8> pack258;
                            pack258 = *(const lw_pack<unsigned short, 8>*)&x1_bits[k257 + i11 * n19 + i256 * n54 + i12 * n56];
                            #pragma unroll
                            for (int e259 = 0; e259 < 8; ++e259) {
                                const unsigned short v260 = pack258.at[e259];
                                right_next[u252 * 8 + e259] = v260;
                            }
                        } else {
                            #pragma unroll
                            for (int e261 = 0; e261 < 8; ++e261) {
                                right_next[u252 * 8 + e261] = 0;
                                if (i256 < n17 && (k257 + e261) < n19) {
                                    const unsigned short v262 = x1_bits[(k257 + e261) + i11 * n19 + i256 * n54 + i12 * n56];
                                    right_next[u252 * 8 + e261] = v262;
                                }
                            }
                        }
                    }
                }
                if (first234 >= 0) {
                    #pragma unroll
                    for (int k263 = 0; k263 < 32; k263 += 16) {
                        unsigned left_now[2][4];
                        #pragma unroll
                        for (int g264 = 0; g264 < 2; ++g264) {
                            lw_words4_across(left_now[g264], &left[stage233][k263 + (int)threadIdx.x / 16 * 8 + (int)threadIdx.x % 8][(int)threadIdx.y % 2 * 32 + g264 * 16 + (int)threadIdx.x / 8 % 2 * 8]);
                        }
                        unsigned right_now[2][2];
                        #pragma unroll
                        for (int g265 = 0; g265 < 2; ++g265) {
                            lw_words2(right_now[g265], &right[stage233][(int)threadIdx.y / 2 * 16 + g265 * 8 + 0 + (int)threadIdx.x % 8][k263 + (int)threadIdx.x / 8 % 2 * 8]);
                        }
                        #pragma unroll
                        for (int r266 = 0; r266 < 2; ++r266) {
                            #pragma unroll
                            for (int c267 = 0; c267 < 2; ++c267) {
                                lw_mma_f16(p0[(r266 * 2 + 0) * 4 + c267 * 2 + 0], p0[(r266 * 2 + 0) * 4 + c267 * 2 + 1], p0[(r266 * 2 + 1) * 4 + c267 * 2 + 0], p0[(r266 * 2 + 1) * 4 + c267 * 2 + 1], left_now[r266], right_now[c267]);
                            }
                        }
                    }
                }
                stage233 = 1 - stage233;
                if (more235) {
                    #pragma unroll
                    for (int u268 = 0; u268 < 8; ++u268) {
                        const int at270 = u268 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at271 = at270 % 64 * 1;
                        const int at272 = at270 / 64;
                        lw_pack<unsigned short, 1> whole;
                        #pragma unroll
                        for (int e269 = 0; e269 < 1; ++e269) {
                            whole.at[e269] = left_next[u268 * 1 + e269];
                        }
                        *(lw_pack<unsigned short, 1>*)&left[stage233][at272][at271] = whole;
                    }
                    #pragma unroll
                    for (int u273 = 0; u273 < 1; ++u273) {
                        const int at275 = u273 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at276 = at275 % 4 * 8;
                        const int at277 = at275 / 4;
                        lw_pack<unsigned short, 8> whole;
                        #pragma unroll
                        for (int e274 = 0; e274 < 8; ++e274) {
                            whole.at[e274] = right_next[u273 * 8 + e274];
                        }
                        *(lw_pack<unsigned short, 8>*)&right[stage233][at277][at276] = whole;
                    }
                }
                __syncthreads();
            }
        }
        float p1[16];
        #pragma unroll
        for (int k278 = 0; k278 < 16; ++k278) {
            p1[k278] = 0.0f;
        }
         {
            unsigned short (*const left)[32][72] = (unsigned short (*)[32][72])(lw_near + 0);
            unsigned short left_next[8];
            unsigned short (*const right)[64][40] = (unsigned short (*)[64][40])(lw_near + 9216);
            unsigned short right_next[8];
            int stage279 = 0;
            for (int first280 = -32; first280 < n146; first280 += 32) {
                const bool more281 = first280 + 32 < n146;
                if (more281) {
                    #pragma unroll
                    for (int u282 = 0; u282 < 8; ++u282) {
                        const int at283 = u282 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at284 = at283 % 64 * 1;
                        const int at285 = at283 / 64;
                        const int i286 = at13 + at284;
                        const int k287 = first280 + 32 + at285;
                        #pragma unroll
                        for (int e288 = 0; e288 < 1; ++e288) {
                            left_next[u282 * 1 + e288] = 0;
                            if ((i286 + e288) < n30 && k287 < n146) {
                                const int i289 = (int)((unsigned int)((i286 + e288)) % (unsigned int)n33);
                                const int i290 = (int)((unsigned int)((i286 + e288)) / (unsigned int)n33);
                                const long long v291 = (long long)((unsigned long long)(long long)i11 * (unsigned long long)n32);
                                const long long v292 = (long long)((unsigned long long)v291 + (unsigned long long)(long long)i289);
                                const long long v293 = (long long)((unsigned long long)v292 * (unsigned long long)size_p);
                                const long long v294 = (long long)((unsigned long long)v293 + (unsigned long long)(long long)k287);
                                const long long v295 = lw_remainder_int64(v294, size_p);
                                const long long v296 = lw_floor_divide_int64(v294, size_p);
                                const unsigned short v297 = x2_bits[(int)v295 + (int)v296 * n146 + i290 * n166 + i12 * n168];
                                left_next[u282 * 1 + e288] = v297;
                            }
                        }
                    }
                    #pragma unroll
                    for (int u298 = 0; u298 < 1; ++u298) {
                        const int at299 = u298 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at300 = at299 % 4 * 8;
                        const int at301 = at299 / 4;
                        const int i302 = first231 + at301;
                        const int k303 = first280 + 32 + at300;
                        if (n146 % 8 == 0 && n177 % 8 == 0 && n179 % 8 == 0 && i302 < n17 && k303 + 8 <= n146) {
                            lw_pack<unsigned short, 8> pack304;
                            pack304 = *(const lw_pack<unsigned short, 8>*)&x3_bits[k303 + i11 * n146 + i302 * n177 + i12 * n179];
                            #pragma unroll
                            for (int e305 = 0; e305 < 8; ++e305) {
                                const unsigned short v306 = pack304.at[e305];
                                right_next[u298 * 8 + e305] = v306;
                            }
                        } else {
                            #pragma unroll
                            for (int e307 = 0; e307 < 8; ++e307) {
                                right_next[u298 * 8 + e307] = 0;
                                if (i302 < n17 && (k303 + e307) < n146) {
                                    const unsigned short v308 = x3_bits[(k303 + e307) + i11 * n146 + i302 * n177 + i12 * n179];
                                    right_next[u298 * 8 + e307] = v308;
                                }
                            }
                        }
                    }
                }
                if (first280 >= 0) {
                    #pragma unroll
                    for (int k309 = 0; k309 < 32; k309 += 16) {
                        unsigned left_now[2][4];
                        #pragma unroll
                        for (int g310 = 0; g310 < 2; ++g310) {
                            lw_words4_across(left_now[g310], &left[stage279][k309 + (int)threadIdx.x / 16 * 8 + (int)threadIdx.x % 8][(int)threadIdx.y % 2 * 32 + g310 * 16 + (int)threadIdx.x / 8 % 2 * 8]);
                        }
                        unsigned right_now[2][2];
                        #pragma unroll
                        for (int g311 = 0; g311 < 2; ++g311) {
                            lw_words2(right_now[g311], &right[stage279][(int)threadIdx.y / 2 * 16 + g311 * 8 + 0 + (int)threadIdx.x % 8][k309 + (int)threadIdx.x / 8 % 2 * 8]);
                        }
                        #pragma unroll
                        for (int r312 = 0; r312 < 2; ++r312) {
                            #pragma unroll
                            for (int c313 = 0; c313 < 2; ++c313) {
                                lw_mma_f16(p1[(r312 * 2 + 0) * 4 + c313 * 2 + 0], p1[(r312 * 2 + 0) * 4 + c313 * 2 + 1], p1[(r312 * 2 + 1) * 4 + c313 * 2 + 0], p1[(r312 * 2 + 1) * 4 + c313 * 2 + 1], left_now[r312], right_now[c313]);
                            }
                        }
                    }
                }
                stage279 = 1 - stage279;
                if (more281) {
                    #pragma unroll
                    for (int u314 = 0; u314 < 8; ++u314) {
                        const int at316 = u314 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at317 = at316 % 64 * 1;
                        const int at318 = at316 / 64;
                        lw_pack<unsigned short, 1> whole;
                        #pragma unroll
                        for (int e315 = 0; e315 < 1; ++e315) {
                            whole.at[e315] = left_next[u314 * 1 + e315];
                        }
                        *(lw_pack<unsigned short, 1>*)&left[stage279][at318][at317] = whole;
                    }
                    #pragma unroll
                    for (int u319 = 0; u319 < 1; ++u319) {
                        const int at321 = u319 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at322 = at321 % 4 * 8;
                        const int at323 = at321 / 4;
                        lw_pack<unsigned short, 8> whole;
                        #pragma unroll
                        for (int e320 = 0; e320 < 8; ++e320) {
                            whole.at[e320] = right_next[u319 * 8 + e320];
                        }
                        *(lw_pack<unsigned short, 8>*)&right[stage279][at323][at322] = whole;
                    }
                }
                __syncthreads();
            }
        }
        #pragma unroll
        for (int a324 = 0; a324 < 4; ++a324) {
            #pragma unroll
            for (int g325 = 0; g325 < 4; ++g325) {
                lw_pack<float, 1> whole;
                #pragma unroll
                for (int e326 = 0; e326 < 1; ++e326) {
                    const int at327 = g325 * 1 + e326;
                    whole.at[e326] = 0;
                    const int i328 = at13 + at327 * 8 + (int)threadIdx.y % 2 * 32 + (int)threadIdx.x / 4;
                    const int i329 = first231 + a324 / 2 * 8 + (int)threadIdx.y / 2 * 16 + (int)threadIdx.x % 4 * 2 + a324 % 2;
                    if (i328 < n30 && i329 < n17) {
                        const int i330 = (int)((unsigned int)(i328) % (unsigned int)n33);
                        const int i331 = (int)((unsigned int)(i328) / (unsigned int)n33);
                        const float v332 = lw_from_f16(lw_to_f16((float)p1[at327 * 4 + a324]));
                        const float v333 = 1.0f / s24_rows[at327];
                        const float v334 = v332 * v333;
                        const float v335 = -s33_rows[at327];
                        const float v336 = v335 * v333;
                        const float v337 = v336 * v333;
                        const float v338 = v334 + v337;
                        const double v339 = (double)size_t;
                        const double v340 = sqrt(v339);
                        const double v341 = 1.0 / v340;
                        const float v342 = (float)v341;
                        const float v343 = p0[at327 * 4 + a324] * v342;
                        const float v344 = lw_max(s12_rows[at327], __uint_as_float(0xff800000u));
                        const bool v345 = v344 - v344 == 0;
                        const float v346 = v345 ? v344 : 0.0f;
                        const float v347 = v343 - v346;
                        const float v348 = expf(v347);
                        const float v349 = v338 * v348;
                        const float v350 = v349 * v342;
                        whole.at[e326] = v350;
                    }
                }
                *(lw_pack<float, 1>*)&lw_kept[a324 / 2 * 8 + (int)threadIdx.y / 2 * 16 + (int)threadIdx.x % 4 * 2 + a324 % 2][g325 * 8 + (int)threadIdx.y % 2 * 32 + (int)threadIdx.x / 4] = whole;
            }
        }
         {
            float (*const right_stages)[16][36] = (float (*)[16][36])(lw_near + 0);
            float right_stages_next[2];
            int stage351 = 0;
            for (int first352 = -16; first352 < 64; first352 += 16) {
                const bool more353 = first352 + 16 < 64;
                if (more353) {
                    #pragma unroll
                    for (int u354 = 0; u354 < 1; ++u354) {
                        const int at355 = u354 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at356 = at355 % 16 * 2;
                        const int at357 = at355 / 16;
                        const int i358 = at14 + at356;
                        const int k359 = first231 + first352 + 16 + at357;
                        if (n19 % 2 == 0 && n54 % 2 == 0 && n56 % 2 == 0 && i358 + 2 <= n19 && k359 < n17) {
                            lw_pack<unsigned short, 2> pack360;
                            pack360 = *(const lw_pack<unsigned short, 2>*)&x1[i358 + i11 * n19 + k359 * n54 + i12 * n56];
                            #pragma unroll
                            for (int e361 = 0; e361 < 2; ++e361) {
                                const float v362 = lw_from_f16(pack360.at[e361]);
                                right_stages_next[u354 * 2 + e361] = v362;
                            }
                        } else {
                            #pragma unroll
                            for (int e363 = 0; e363 < 2; ++e363) {
                                right_stages_next[u354 * 2 + e363] = 0;
                                if ((i358 + e363) < n19 && k359 < n17) {
                                    const float v364 = lw_from_f16(x1[(i358 + e363) + i11 * n19 + k359 * n54 + i12 * n56]);
                                    right_stages_next[u354 * 2 + e363] = v364;
                                }
                            }
                        }
                    }
                }
                if (first352 >= 0) {
                    float (*const left)[68] = (float (*)[68])&lw_kept[first352][0];
                    auto* const right = right_stages[stage351];
                    #pragma unroll 4
                    for (int k365 = 0; k365 < 16; ++k365) {
                        lw_pack<float, 4> left_now[2];
                        #pragma unroll
                        for (int g366 = 0; g366 < 2; ++g366) {
                            left_now[g366] = *(const lw_pack<float, 4>*)&left[k365][g366 * 32 + (int)threadIdx.y * 4];
                        }
                        lw_pack<float, 1> right_now[1];
                        #pragma unroll
                        for (int g367 = 0; g367 < 1; ++g367) {
                            right_now[g367] = *(const lw_pack<float, 1>*)&right[k365][g367 * 32 + (int)threadIdx.x * 1];
                        }
                        #pragma unroll
                        for (int r368 = 0; r368 < 8; ++r368) {
                            #pragma unroll
                            for (int c369 = 0; c369 < 1; ++c369) {
                                r42_sums[r368 * 1 + c369] = fmaf(left_now[r368 / 4].at[r368 % 4], right_now[c369 / 1].at[c369 % 1], r42_sums[r368 * 1 + c369]);
                            }
                        }
                    }
                }
                stage351 = 1 - stage351;
                if (more353) {
                    #pragma unroll
                    for (int u370 = 0; u370 < 1; ++u370) {
                        const int at372 = u370 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at373 = at372 % 16 * 2;
                        const int at374 = at372 / 16;
                        lw_pack<float, 2> whole;
                        #pragma unroll
                        for (int e371 = 0; e371 < 2; ++e371) {
                            whole.at[e371] = right_stages_next[u370 * 2 + e371];
                        }
                        *(lw_pack<float, 2>*)&right_stages[stage351][at374][at373] = whole;
                    }
                }
                __syncthreads();
            }
        }
    }
    if (at14 == 0 && (int)threadIdx.y / 2 * 4 + (int)threadIdx.x % 4 == 0) {
        #pragma unroll
        for (int r375 = 0; r375 < 4; ++r375) {
            const int i376 = at13 + r375 * 8 + (int)threadIdx.y % 2 * 32 + (int)threadIdx.x / 4;
            if (i376 < n30) {
                const int i377 = (int)((unsigned int)(i376) % (unsigned int)n33);
                const int i378 = (int)((unsigned int)(i376) / (unsigned int)n33);
                const float v379 = lw_max(s12_rows[r375], __uint_as_float(0xff800000u));
                const bool v380 = v379 - v379 == 0;
                const float v381 = v380 ? v379 : 0.0f;
                y1[i377 + i378 * n33 + i11 * n30 + i12 * n383] = v381;
                y2[i377 + i378 * n33 + i11 * n30 + i12 * n383] = s24_rows[r375];
                const float v384 = 1.0f / s24_rows[r375];
                y3[i377 + i378 * n33 + i11 * n30 + i12 * n383] = v384;
                const float v385 = -s33_rows[r375];
                const float v386 = v385 * v384;
                const float v387 = v386 * v384;
                y4[i377 + i378 * n33 + i11 * n30 + i12 * n383] = v387;
            }
        }
    }
    #pragma unroll
    for (int r388 = 0; r388 < 8; ++r388) {
        const int i390 = at13 + r388 / 4 * 32 + (int)threadIdx.y * 4 + r388 % 4;
        #pragma unroll
        for (int g389 = 0; g389 < 1; ++g389) {
            const int i391 = at14 + g389 * 32 + (int)threadIdx.x * 1;
            const int i392 = (int)((unsigned int)(i390) % (unsigned int)n33);
            const int i393 = (int)((unsigned int)(i390) / (unsigned int)n33);
            #pragma unroll
            for (int e394 = 0; e394 < 1; ++e394) {
                if (i390 < n30 && i391 + e394 < n19) {
                    y0[(i391 + e394) + i392 * n19 + i393 * n396 + i11 * n398 + i12 * n400] = r42_sums[r388 * 1 + g389 * 1 + e394];
                }
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(256, 1) kernel_1(
        const unsigned short* __restrict__ x0,
        const unsigned short* __restrict__ x1,
        const float* __restrict__ x2,
        const float* __restrict__ x3,
        const unsigned short* __restrict__ x4,
        unsigned short* y0,
        long long size_n,
        long long size_m,
        long long size_k,
        long long size_t,
        long long size_v,
        long long size_w,
        long long size_p,
        long long* error) {
    const long long n0 = size_p + 31ll;
    const long long n1 = lw_size_divide(n0, 32ll);
    const int n2 = (int)(n1);
    const long long n5 = size_v + 63ll;
    const long long n6 = lw_size_divide(n5, 64ll);
    const int n7 = (int)(n6);
    const int n10 = (int)(size_w);
    const long long n17 = lw_size_divide(size_k, size_w) * size_m;
    const int n18 = (int)(n17);
    const int n20 = (int)(size_t);
    const int n30 = (int)(size_v);
    const long long n31 = size_t * size_w;
    const int n32 = (int)(n31);
    const long long n33 = size_t * size_v * size_w;
    const int n34 = (int)(n33);
    const long long n47 = lw_size_divide(size_k, size_w);
    const int n48 = (int)(n47);
    const long long n57 = size_k * size_t;
    const int n58 = (int)(n57);
    const long long n59 = size_k * size_m * size_t;
    const int n60 = (int)(n59);
    const long long n90 = lw_size_divide(size_k, size_w) * size_m * size_w;
    const int n91 = (int)(n90);
    const int n107 = (int)(size_p);
    const long long n117 = size_k * size_p;
    const int n118 = (int)(n117);
    const long long n119 = size_k * size_m * size_p;
    const int n120 = (int)(n119);
    const long long n136 = size_p * size_v;
    const int n137 = (int)(n136);
    const long long n138 = size_p * size_v * size_w;
    const int n139 = (int)(n138);
    const int i3 = (int)((unsigned int)(int)blockIdx.x % (unsigned int)n2);
    const int i4 = (int)((unsigned int)(int)blockIdx.x / (unsigned int)n2);
    const int i8 = (int)((unsigned int)i4 % (unsigned int)n7);
    const int i9 = (int)((unsigned int)i4 / (unsigned int)n7);
    const int i11 = (int)((unsigned int)i9 % (unsigned int)n10);
    const int i12 = (int)((unsigned int)i9 / (unsigned int)n10);
    const int at13 = i8 * 64;
    const int at14 = i3 * 32;
    float s20_sums[8];
    __shared__ __align__(16) unsigned char lw_near[20480];
    __shared__ __align__(16) unsigned short lw_kept[64][72];
    // the last pass
    #pragma unroll
    for (int k15 = 0; k15 < 8; ++k15) {
        s20_sums[k15] = 0.0f;
    }
    const unsigned short* const x1_bits = x1;
    const unsigned short* const x0_bits = x0;
    const unsigned short* const x4_bits = x4;
    for (int first16 = 0; first16 < n18; first16 += 64) {
        float p0[16];
        #pragma unroll
        for (int k19 = 0; k19 < 16; ++k19) {
            p0[k19] = 0.0f;
        }
         {
            unsigned short (*const left)[64][40] = (unsigned short (*)[64][40])(lw_near + 0);
            unsigned short left_next[8];
            unsigned short (*const right)[32][72] = (unsigned short (*)[32][72])(lw_near + 10240);
            unsigned short right_next[8];
            int stage21 = 0;
            for (int first22 = -32; first22 < n20; first22 += 32) {
                const bool more23 = first22 + 32 < n20;
                if (more23) {
                    #pragma unroll
                    for (int u24 = 0; u24 < 1; ++u24) {
                        const int at25 = u24 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at26 = at25 % 4 * 8;
                        const int at27 = at25 / 4;
                        const int i28 = at13 + at27;
                        const int k29 = first22 + 32 + at26;
                        if (n20 % 8 == 0 && n32 % 8 == 0 && n34 % 8 == 0 && i28 < n30 && k29 + 8 <= n20) {
                            lw_pack<unsigned short, 8> pack35;
                            pack35 = *(const lw_pack<unsigned short, 8>*)&x1_bits[k29 + i11 * n20 + i28 * n32 + i12 * n34];
                            #pragma unroll
                            for (int e36 = 0; e36 < 8; ++e36) {
                                const unsigned short v37 = pack35.at[e36];
                                left_next[u24 * 8 + e36] = v37;
                            }
                        } else {
                            #pragma unroll
                            for (int e38 = 0; e38 < 8; ++e38) {
                                left_next[u24 * 8 + e38] = 0;
                                if (i28 < n30 && (k29 + e38) < n20) {
                                    const unsigned short v39 = x1_bits[(k29 + e38) + i11 * n20 + i28 * n32 + i12 * n34];
                                    left_next[u24 * 8 + e38] = v39;
                                }
                            }
                        }
                    }
                    #pragma unroll
                    for (int u40 = 0; u40 < 8; ++u40) {
                        const int at41 = u40 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at42 = at41 % 64 * 1;
                        const int at43 = at41 / 64;
                        const int i44 = first16 + at42;
                        const int k45 = first22 + 32 + at43;
                        #pragma unroll
                        for (int e46 = 0; e46 < 1; ++e46) {
                            right_next[u40 * 1 + e46] = 0;
                            if ((i44 + e46) < n18 && k45 < n20) {
                                const int i49 = (int)((unsigned int)((i44 + e46)) % (unsigned int)n48);
                                const int i50 = (int)((unsigned int)((i44 + e46)) / (unsigned int)n48);
                                const long long v51 = (long long)((unsigned long long)(long long)i11 * (unsigned long long)n47);
                                const long long v52 = (long long)((unsigned long long)v51 + (unsigned long long)(long long)i49);
                                const long long v53 = (long long)((unsigned long long)v52 * (unsigned long long)size_t);
                                const long long v54 = (long long)((unsigned long long)v53 + (unsigned long long)(long long)k45);
                                const long long v55 = lw_remainder_int64(v54, size_t);
                                const long long v56 = lw_floor_divide_int64(v54, size_t);
                                const unsigned short v61 = x0_bits[(int)v55 + (int)v56 * n20 + i50 * n58 + i12 * n60];
                                right_next[u40 * 1 + e46] = v61;
                            }
                        }
                    }
                }
                if (first22 >= 0) {
                    #pragma unroll
                    for (int k62 = 0; k62 < 32; k62 += 16) {
                        unsigned left_now[2][4];
                        #pragma unroll
                        for (int g63 = 0; g63 < 2; ++g63) {
                            lw_words4(left_now[g63], &left[stage21][(int)threadIdx.y % 2 * 32 + g63 * 16 + (int)threadIdx.x / 8 % 2 * 8 + (int)threadIdx.x % 8][k62 + (int)threadIdx.x / 16 * 8]);
                        }
                        unsigned right_now[2][2];
                        #pragma unroll
                        for (int g64 = 0; g64 < 2; ++g64) {
                            lw_words2_across(right_now[g64], &right[stage21][k62 + (int)threadIdx.x / 8 % 2 * 8 + (int)threadIdx.x % 8][(int)threadIdx.y / 2 * 16 + g64 * 8 + 0]);
                        }
                        #pragma unroll
                        for (int r65 = 0; r65 < 2; ++r65) {
                            #pragma unroll
                            for (int c66 = 0; c66 < 2; ++c66) {
                                lw_mma_f16(p0[(r65 * 2 + 0) * 4 + c66 * 2 + 0], p0[(r65 * 2 + 0) * 4 + c66 * 2 + 1], p0[(r65 * 2 + 1) * 4 + c66 * 2 + 0], p0[(r65 * 2 + 1) * 4 + c66 * 2 + 1], left_now[r65], right_now[c66]);
                            }
                        }
                    }
                }
                stage21 = 1 - stage21;
                if (more23) {
                    #pragma unroll
                    for (int u67 = 0; u67 < 1; ++u67) {
                        const int at69 = u67 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at70 = at69 % 4 * 8;
                        const int at71 = at69 / 4;
                        lw_pack<unsigned short, 8> whole;
                        #pragma unroll
                        for (int e68 = 0; e68 < 8; ++e68) {
                            whole.at[e68] = left_next[u67 * 8 + e68];
                        }
                        *(lw_pack<unsigned short, 8>*)&left[stage21][at71][at70] = whole;
                    }
                    #pragma unroll
                    for (int u72 = 0; u72 < 8; ++u72) {
                        const int at74 = u72 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at75 = at74 % 64 * 1;
                        const int at76 = at74 / 64;
                        lw_pack<unsigned short, 1> whole;
                        #pragma unroll
                        for (int e73 = 0; e73 < 1; ++e73) {
                            whole.at[e73] = right_next[u72 * 1 + e73];
                        }
                        *(lw_pack<unsigned short, 1>*)&right[stage21][at76][at75] = whole;
                    }
                }
                __syncthreads();
            }
        }
        #pragma unroll
        for (int a77 = 0; a77 < 4; ++a77) {
            #pragma unroll
            for (int g78 = 0; g78 < 2; ++g78) {
                lw_pack<unsigned short, 2> whole;
                #pragma unroll
                for (int e79 = 0; e79 < 2; ++e79) {
                    const int at80 = g78 * 2 + e79;
                    whole.at[e79] = 0;
                    const int i81 = at13 + a77 * 8 + (int)threadIdx.y % 2 * 32 + (int)threadIdx.x / 4;
                    const int i82 = first16 + at80 / 2 * 8 + (int)threadIdx.y / 2 * 16 + (int)threadIdx.x % 4 * 2 + at80 % 2;
                    if (i81 < n30 && i82 < n18) {
                        const int i83 = (int)((unsigned int)(i82) % (unsigned int)n48);
                        const int i84 = (int)((unsigned int)(i82) / (unsigned int)n48);
                        const double v85 = (double)size_t;
                        const double v86 = sqrt(v85);
                        const double v87 = 1.0 / v86;
                        const float v88 = (float)v87;
                        const float v89 = p0[a77 * 4 + at80] * v88;
                        const float v92 = x2[i83 + i84 * n48 + i11 * n18 + i12 * n91];
                        const float v93 = v89 - v92;
                        const float v94 = expf(v93);
                        const float v95 = x3[i83 + i84 * n48 + i11 * n18 + i12 * n91];
                        const float v96 = v94 / v95;
                        const float v97 = lw_from_f16(lw_to_f16((float)v96));
                        whole.at[e79] = lw_to_f16(v97);
                    }
                }
                *(lw_pack<unsigned short, 2>*)&lw_kept[a77 * 8 + (int)threadIdx.y % 2 * 32 + (int)threadIdx.x / 4][g78 * 8 + (int)threadIdx.y / 2 * 16 + (int)threadIdx.x % 4 * 2] = whole;
            }
        }
         {
            unsigned short (*const right_stages)[32][40] = (unsigned short (*)[32][40])(lw_near + 0);
            unsigned short right_stages_next[4];
            int stage98 = 0;
            for (int first99 = -32; first99 < 64; first99 += 32) {
                const bool more100 = first99 + 32 < 64;
                if (more100) {
                    #pragma unroll
                    for (int u101 = 0; u101 < 1; ++u101) {
                        const int at102 = u101 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at103 = at102 % 8 * 4;
                        const int at104 = at102 / 8;
                        const int i105 = at14 + at103;
                        const int k106 = first16 + first99 + 32 + at104;
                        #pragma unroll
                        for (int e108 = 0; e108 < 4; ++e108) {
                            right_stages_next[u101 * 4 + e108] = 0;
                            if ((i105 + e108) < n107 && k106 < n18) {
                                const int i109 = (int)((unsigned int)k106 % (unsigned int)n48);
                                const int i110 = (int)((unsigned int)k106 / (unsigned int)n48);
                                const long long v111 = (long long)((unsigned long long)(long long)i11 * (unsigned long long)n47);
                                const long long v112 = (long long)((unsigned long long)v111 + (unsigned long long)(long long)i109);
                                const long long v113 = (long long)((unsigned long long)v112 * (unsigned long long)size_p);
                                const long long v114 = (long long)((unsigned long long)v113 + (unsigned long long)(long long)(i105 + e108));
                                const long long v115 = lw_remainder_int64(v114, size_p);
                                const long long v116 = lw_floor_divide_int64(v114, size_p);
                                const unsigned short v121 = x4_bits[(int)v115 + (int)v116 * n107 + i110 * n118 + i12 * n120];
                                right_stages_next[u101 * 4 + e108] = v121;
                            }
                        }
                    }
                }
                if (first99 >= 0) {
                    unsigned short (*const left)[72] = (unsigned short (*)[72])&lw_kept[0][first99];
                    auto* const right = right_stages[stage98];
                    #pragma unroll
                    for (int k122 = 0; k122 < 32; k122 += 16) {
                        unsigned left_now[2][4];
                        #pragma unroll
                        for (int g123 = 0; g123 < 2; ++g123) {
                            lw_words4(left_now[g123], &left[(int)threadIdx.y % 2 * 32 + g123 * 16 + (int)threadIdx.x / 8 % 2 * 8 + (int)threadIdx.x % 8][k122 + (int)threadIdx.x / 16 * 8]);
                        }
                        unsigned right_now[1][2];
                        #pragma unroll
                        for (int g124 = 0; g124 < 1; ++g124) {
                            lw_words2_across(right_now[g124], &right[k122 + (int)threadIdx.x / 8 % 2 * 8 + (int)threadIdx.x % 8][(int)threadIdx.y / 2 * 8 + g124 * 8 + 0]);
                        }
                        #pragma unroll
                        for (int r125 = 0; r125 < 2; ++r125) {
                            #pragma unroll
                            for (int c126 = 0; c126 < 1; ++c126) {
                                lw_mma_f16(s20_sums[(r125 * 2 + 0) * 2 + c126 * 2 + 0], s20_sums[(r125 * 2 + 0) * 2 + c126 * 2 + 1], s20_sums[(r125 * 2 + 1) * 2 + c126 * 2 + 0], s20_sums[(r125 * 2 + 1) * 2 + c126 * 2 + 1], left_now[r125], right_now[c126]);
                            }
                        }
                    }
                }
                stage98 = 1 - stage98;
                if (more100) {
                    #pragma unroll
                    for (int u127 = 0; u127 < 1; ++u127) {
                        const int at129 = u127 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at130 = at129 % 8 * 4;
                        const int at131 = at129 / 8;
                        lw_pack<unsigned short, 4> whole;
                        #pragma unroll
                        for (int e128 = 0; e128 < 4; ++e128) {
                            whole.at[e128] = right_stages_next[u127 * 4 + e128];
                        }
                        *(lw_pack<unsigned short, 4>*)&right_stages[stage98][at131][at130] = whole;
                    }
                }
                __syncthreads();
            }
        }
    }
    #pragma unroll
    for (int r132 = 0; r132 < 4; ++r132) {
        const int i134 = at13 + r132 * 8 + (int)threadIdx.y % 2 * 32 + (int)threadIdx.x / 4;
        #pragma unroll
        for (int g133 = 0; g133 < 1; ++g133) {
            const int i135 = at14 + g133 * 8 + (int)threadIdx.y / 2 * 8 + (int)threadIdx.x % 4 * 2;
            if (n107 % 2 == 0 && n137 % 2 == 0 && n139 % 2 == 0 && i134 < n30 && i135 + 2 <= n107) {
                lw_pack<unsigned short, 2> pack140;
                #pragma unroll
                for (int e141 = 0; e141 < 2; ++e141) {
                    const float v142 = lw_from_f16(lw_to_f16((float)s20_sums[r132 * 2 + g133 * 2 + e141]));
                    pack140.at[e141] = lw_to_f16(v142);
                }
                *(lw_pack<unsigned short, 2>*)&y0[i135 + i134 * n107 + i11 * n137 + i12 * n139] = pack140;
            } else {
                #pragma unroll
                for (int e143 = 0; e143 < 2; ++e143) {
                    if (i134 < n30 && i135 + e143 < n107) {
                        const float v144 = lw_from_f16(lw_to_f16((float)s20_sums[r132 * 2 + g133 * 2 + e143]));
                        y0[(i135 + e143) + i134 * n107 + i11 * n137 + i12 * n139] = lw_to_f16(v144);
                    }
                }
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(256, 1) kernel_2(
        const unsigned short* __restrict__ x0,
        const unsigned short* __restrict__ x1,
        const float* __restrict__ x2,
        const float* __restrict__ x3,
        const unsigned short* __restrict__ x4,
        const unsigned short* __restrict__ x5,
        const float* __restrict__ x6,
        float* y0,
        long long size_n,
        long long size_m,
        long long size_k,
        long long size_t,
        long long size_v,
        long long size_w,
        long long size_p,
        long long* error) {
    const long long n0 = size_t + 31ll;
    const long long n1 = lw_size_divide(n0, 32ll);
    const int n2 = (int)(n1);
    const long long n5 = size_v + 63ll;
    const long long n6 = lw_size_divide(n5, 64ll);
    const int n7 = (int)(n6);
    const int n10 = (int)(size_w);
    const long long n17 = lw_size_divide(size_k, size_w) * size_m;
    const int n18 = (int)(n17);
    const int n20 = (int)(size_p);
    const int n30 = (int)(size_v);
    const long long n31 = size_p * size_w;
    const int n32 = (int)(n31);
    const long long n33 = size_p * size_v * size_w;
    const int n34 = (int)(n33);
    const long long n47 = lw_size_divide(size_k, size_w);
    const int n48 = (int)(n47);
    const long long n57 = size_k * size_p;
    const int n58 = (int)(n57);
    const long long n59 = size_k * size_m * size_p;
    const int n60 = (int)(n59);
    const int n78 = (int)(size_t);
    const long long n88 = size_t * size_w;
    const int n89 = (int)(n88);
    const long long n90 = size_t * size_v * size_w;
    const int n91 = (int)(n90);
    const long long n112 = size_k * size_t;
    const int n113 = (int)(n112);
    const long long n114 = size_k * size_m * size_t;
    const int n115 = (int)(n114);
    const long long n141 = lw_size_divide(size_k, size_w) * size_m * size_w;
    const int n142 = (int)(n141);
    const long long n191 = size_t * size_v;
    const int n192 = (int)(n191);
    const int i3 = (int)((unsigned int)(int)blockIdx.x % (unsigned int)n2);
    const int i4 = (int)((unsigned int)(int)blockIdx.x / (unsigned int)n2);
    const int i8 = (int)((unsigned int)i4 % (unsigned int)n7);
    const int i9 = (int)((unsigned int)i4 / (unsigned int)n7);
    const int i11 = (int)((unsigned int)i9 % (unsigned int)n10);
    const int i12 = (int)((unsigned int)i9 / (unsigned int)n10);
    const int at13 = i8 * 64;
    const int at14 = i3 * 32;
    float r25_sums[8];
    __shared__ __align__(16) unsigned char lw_near[20480];
    __shared__ __align__(16) float lw_kept[64][68];
    // the last pass
    #pragma unroll
    for (int k15 = 0; k15 < 8; ++k15) {
        r25_sums[k15] = 0.0f;
    }
    const unsigned short* const x5_bits = x5;
    const unsigned short* const x4_bits = x4;
    const unsigned short* const x1_bits = x1;
    const unsigned short* const x0_bits = x0;
    for (int first16 = 0; first16 < n18; first16 += 64) {
        float p0[16];
        #pragma unroll
        for (int k19 = 0; k19 < 16; ++k19) {
            p0[k19] = 0.0f;
        }
         {
            unsigned short (*const left)[64][40] = (unsigned short (*)[64][40])(lw_near + 0);
            unsigned short left_next[8];
            unsigned short (*const right)[32][72] = (unsigned short (*)[32][72])(lw_near + 10240);
            unsigned short right_next[8];
            int stage21 = 0;
            for (int first22 = -32; first22 < n20; first22 += 32) {
                const bool more23 = first22 + 32 < n20;
                if (more23) {
                    #pragma unroll
                    for (int u24 = 0; u24 < 1; ++u24) {
                        const int at25 = u24 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at26 = at25 % 4 * 8;
                        const int at27 = at25 / 4;
                        const int i28 = at13 + at27;
                        const int k29 = first22 + 32 + at26;
                        if (n20 % 8 == 0 && n32 % 8 == 0 && n34 % 8 == 0 && i28 < n30 && k29 + 8 <= n20) {
                            lw_pack<unsigned short, 8> pack35;
                            pack35 = *(const lw_pack<unsigned short, 8>*)&x5_bits[k29 + i11 * n20 + i28 * n32 + i12 * n34];
                            #pragma unroll
                            for (int e36 = 0; e36 < 8; ++e36) {
                                const unsigned short v37 = pack35.at[e36];
                                left_next[u24 * 8 + e36] = v37;
                            }
                        } else {
                            #pragma unroll
                            for (int e38 = 0; e38 < 8; ++e38) {
                                left_next[u24 * 8 + e38] = 0;
                                if (i28 < n30 && (k29 + e38) < n20) {
                                    const unsigned short v39 = x5_bits[(k29 + e38) + i11 * n20 + i28 * n32 + i12 * n34];
                                    left_next[u24 * 8 + e38] = v39;
                                }
                            }
                        }
                    }
                    #pragma unroll
                    for (int u40 = 0; u40 < 8; ++u40) {
                        const int at41 = u40 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at42 = at41 % 64 * 1;
                        const int at43 = at41 / 64;
                        const int i44 = first16 + at42;
                        const int k45 = first22 + 32 + at43;
                        #pragma unroll
                        for (int e46 = 0; e46 < 1; ++e46) {
                            right_next[u40 * 1 + e46] = 0;
                            if ((i44 + e46) < n18 && k45 < n20) {
                                const int i49 = (int)((unsigned int)((i44 + e46)) % (unsigned int)n48);
                                const int i50 = (int)((unsigned int)((i44 + e46)) / (unsigned int)n48);
                                const long long v51 = (long long)((unsigned long long)(long long)i11 * (unsigned long long)n47);
                                const long long v52 = (long long)((unsigned long long)v51 + (unsigned long long)(long long)i49);
                                const long long v53 = (long long)((unsigned long long)v52 * (unsigned long long)size_p);
                                const long long v54 = (long long)((unsigned long long)v53 + (unsigned long long)(long long)k45);
                                const long long v55 = lw_remainder_int64(v54, size_p);
                                const long long v56 = lw_floor_divide_int64(v54, size_p);
                                const unsigned short v61 = x4_bits[(int)v55 + (int)v56 * n20 + i50 * n58 + i12 * n60];
                                right_next[u40 * 1 + e46] = v61;
                            }
                        }
                    }
                }
                if (first22 >= 0) {
                    #pragma unroll
                    for (int k62 = 0; k62 < 32; k62 += 16) {
                        unsigned left_now[2][4];
                        #pragma unroll
                        for (int g63 = 0; g63 < 2; ++g63) {
                            lw_words4(left_now[g63], &left[stage21][(int)threadIdx.y % 2 * 32 + g63 * 16 + (int)threadIdx.x / 8 % 2 * 8 + (int)threadIdx.x % 8][k62 + (int)threadIdx.x / 16 * 8]);
                        }
                        unsigned right_now[2][2];
                        #pragma unroll
                        for (int g64 = 0; g64 < 2; ++g64) {
                            lw_words2_across(right_now[g64], &right[stage21][k62 + (int)threadIdx.x / 8 % 2 * 8 + (int)threadIdx.x % 8][(int)threadIdx.y / 2 * 16 + g64 * 8 + 0]);
                        }
                        #pragma unroll
                        for (int r65 = 0; r65 < 2; ++r65) {
                            #pragma unroll
                            for (int c66 = 0; c66 < 2; ++c66) {
                                lw_mma_f16(p0[(r65 * 2 + 0) * 4 + c66 * 2 + 0], p0[(r65 * 2 + 0) * 4 + c66 * 2 + 1], p0[(r65 * 2 + 1) * 4 + c66 * 2 + 0], p0[(r65 * 2 + 1) * 4 + c66 * 2 + 1], left_now[r65], right_now[c66]);
                            }
                        }
                    }
                }
                stage21 = 1 - stage21;
                if (more23) {
                    #pragma unroll
                    for (int u67 = 0; u67 < 1; ++u67) {
                        const int at69 = u67 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at70 = at69 % 4 * 8;
                        const int at71 = at69 / 4;
                        lw_pack<unsigned short, 8> whole;
                        #pragma unroll
                        for (int e68 = 0; e68 < 8; ++e68) {
                            whole.at[e68] = left_next[u67 * 8 + e68];
                        }
                        *(lw_pack<unsigned short, 8>*)&left[stage21][at71][at70] = whole;
                    }
                    #pragma unroll
                    for (int u72 = 0; u72 < 8; ++u72) {
                        const int at74 = u72 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at75 = at74 % 64 * 1;
                        const int at76 = at74 / 64;
                        lw_pack<unsigned short, 1> whole;
                        #pragma unroll
                        for (int e73 = 0; e73 < 1; ++e73) {
                            whole.at[e73] = right_next[u72 * 1 + e73];
                        }
                        *(lw_pack<unsigned short, 1>*)&right[stage21][at76][at75] = whole;
                    }
                }
                __syncthreads();
            }
        }
        float p1[16];
        #pragma unroll
        for (int k77 = 0; k77 < 16; ++k77) {
            p1[k77] = 0.0f;
        }
         {
            unsigned short (*const left)[64][40] = (unsigned short (*)[64][40])(lw_near + 0);
            unsigned short left_next[8];
            unsigned short (*const right)[32][72] = (unsigned short (*)[32][72])(lw_near + 10240);
            unsigned short right_next[8];
            int stage79 = 0;
            for (int first80 = -32; first80 < n78; first80 += 32) {
                const bool more81 = first80 + 32 < n78;
                if (more81) {
                    #pragma unroll
                    for (int u82 = 0; u82 < 1; ++u82) {
                        const int at83 = u82 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at84 = at83 % 4 * 8;
                        const int at85 = at83 / 4;
                        const int i86 = at13 + at85;
                        const int k87 = first80 + 32 + at84;
                        if (n78 % 8 == 0 && n89 % 8 == 0 && n91 % 8 == 0 && i86 < n30 && k87 + 8 <= n78) {
                            lw_pack<unsigned short, 8> pack92;
                            pack92 = *(const lw_pack<unsigned short, 8>*)&x1_bits[k87 + i11 * n78 + i86 * n89 + i12 * n91];
                            #pragma unroll
                            for (int e93 = 0; e93 < 8; ++e93) {
                                const unsigned short v94 = pack92.at[e93];
                                left_next[u82 * 8 + e93] = v94;
                            }
                        } else {
                            #pragma unroll
                            for (int e95 = 0; e95 < 8; ++e95) {
                                left_next[u82 * 8 + e95] = 0;
                                if (i86 < n30 && (k87 + e95) < n78) {
                                    const unsigned short v96 = x1_bits[(k87 + e95) + i11 * n78 + i86 * n89 + i12 * n91];
                                    left_next[u82 * 8 + e95] = v96;
                                }
                            }
                        }
                    }
                    #pragma unroll
                    for (int u97 = 0; u97 < 8; ++u97) {
                        const int at98 = u97 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at99 = at98 % 64 * 1;
                        const int at100 = at98 / 64;
                        const int i101 = first16 + at99;
                        const int k102 = first80 + 32 + at100;
                        #pragma unroll
                        for (int e103 = 0; e103 < 1; ++e103) {
                            right_next[u97 * 1 + e103] = 0;
                            if ((i101 + e103) < n18 && k102 < n78) {
                                const int i104 = (int)((unsigned int)((i101 + e103)) % (unsigned int)n48);
                                const int i105 = (int)((unsigned int)((i101 + e103)) / (unsigned int)n48);
                                const long long v106 = (long long)((unsigned long long)(long long)i11 * (unsigned long long)n47);
                                const long long v107 = (long long)((unsigned long long)v106 + (unsigned long long)(long long)i104);
                                const long long v108 = (long long)((unsigned long long)v107 * (unsigned long long)size_t);
                                const long long v109 = (long long)((unsigned long long)v108 + (unsigned long long)(long long)k102);
                                const long long v110 = lw_remainder_int64(v109, size_t);
                                const long long v111 = lw_floor_divide_int64(v109, size_t);
                                const unsigned short v116 = x0_bits[(int)v110 + (int)v111 * n78 + i105 * n113 + i12 * n115];
                                right_next[u97 * 1 + e103] = v116;
                            }
                        }
                    }
                }
                if (first80 >= 0) {
                    #pragma unroll
                    for (int k117 = 0; k117 < 32; k117 += 16) {
                        unsigned left_now[2][4];
                        #pragma unroll
                        for (int g118 = 0; g118 < 2; ++g118) {
                            lw_words4(left_now[g118], &left[stage79][(int)threadIdx.y % 2 * 32 + g118 * 16 + (int)threadIdx.x / 8 % 2 * 8 + (int)threadIdx.x % 8][k117 + (int)threadIdx.x / 16 * 8]);
                        }
                        unsigned right_now[2][2];
                        #pragma unroll
                        for (int g119 = 0; g119 < 2; ++g119) {
                            lw_words2_across(right_now[g119], &right[stage79][k117 + (int)threadIdx.x / 8 % 2 * 8 + (int)threadIdx.x % 8][(int)threadIdx.y / 2 * 16 + g119 * 8 + 0]);
                        }
                        #pragma unroll
                        for (int r120 = 0; r120 < 2; ++r120) {
                            #pragma unroll
                            for (int c121 = 0; c121 < 2; ++c121) {
                                lw_mma_f16(p1[(r120 * 2 + 0) * 4 + c121 * 2 + 0], p1[(r120 * 2 + 0) * 4 + c121 * 2 + 1], p1[(r120 * 2 + 1) * 4 + c121 * 2 + 0], p1[(r120 * 2 + 1) * 4 + c121 * 2 + 1], left_now[r120], right_now[c121]);
                            }
                        }
                    }
                }
                stage79 = 1 - stage79;
                if (more81) {
                    #pragma unroll
                    for (int u122 = 0; u122 < 1; ++u122) {
                        const int at124 = u122 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at125 = at124 % 4 * 8;
                        const int at126 = at124 / 4;
                        lw_pack<unsigned short, 8> whole;
                        #pragma unroll
                        for (int e123 = 0; e123 < 8; ++e123) {
                            whole.at[e123] = left_next[u122 * 8 + e123];
                        }
                        *(lw_pack<unsigned short, 8>*)&left[stage79][at126][at125] = whole;
                    }
                    #pragma unroll
                    for (int u127 = 0; u127 < 8; ++u127) {
                        const int at129 = u127 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at130 = at129 % 64 * 1;
                        const int at131 = at129 / 64;
                        lw_pack<unsigned short, 1> whole;
                        #pragma unroll
                        for (int e128 = 0; e128 < 1; ++e128) {
                            whole.at[e128] = right_next[u127 * 1 + e128];
                        }
                        *(lw_pack<unsigned short, 1>*)&right[stage79][at131][at130] = whole;
                    }
                }
                __syncthreads();
            }
        }
        #pragma unroll
        for (int a132 = 0; a132 < 4; ++a132) {
            #pragma unroll
            for (int g133 = 0; g133 < 4; ++g133) {
                lw_pack<float, 1> whole;
                #pragma unroll
                for (int e134 = 0; e134 < 1; ++e134) {
                    const int at135 = g133 * 1 + e134;
                    whole.at[e134] = 0;
                    const int i136 = at13 + at135 * 8 + (int)threadIdx.y % 2 * 32 + (int)threadIdx.x / 4;
                    const int i137 = first16 + a132 / 2 * 8 + (int)threadIdx.y / 2 * 16 + (int)threadIdx.x % 4 * 2 + a132 % 2;
                    if (i136 < n30 && i137 < n18) {
                        const int i138 = (int)((unsigned int)(i137) % (unsigned int)n48);
                        const int i139 = (int)((unsigned int)(i137) / (unsigned int)n48);
                        const float v140 = lw_from_f16(lw_to_f16((float)p0[at135 * 4 + a132]));
                        const float v143 = x3[i138 + i139 * n48 + i11 * n18 + i12 * n142];
                        const float v144 = v140 * v143;
                        const float v145 = x6[i138 + i139 * n48 + i11 * n18 + i12 * n142];
                        const float v146 = v144 + v145;
                        const double v147 = (double)size_t;
                        const double v148 = sqrt(v147);
                        const double v149 = 1.0 / v148;
                        const float v150 = (float)v149;
                        const float v151 = p1[at135 * 4 + a132] * v150;
                        const float v152 = x2[i138 + i139 * n48 + i11 * n18 + i12 * n142];
                        const float v153 = v151 - v152;
                        const float v154 = expf(v153);
                        const float v155 = v146 * v154;
                        const float v156 = v155 * v150;
                        whole.at[e134] = v156;
                    }
                }
                *(lw_pack<float, 1>*)&lw_kept[a132 / 2 * 8 + (int)threadIdx.y / 2 * 16 + (int)threadIdx.x % 4 * 2 + a132 % 2][g133 * 8 + (int)threadIdx.y % 2 * 32 + (int)threadIdx.x / 4] = whole;
            }
        }
         {
            float (*const right_stages)[16][36] = (float (*)[16][36])(lw_near + 0);
            float right_stages_next[2];
            int stage157 = 0;
            for (int first158 = -16; first158 < 64; first158 += 16) {
                const bool more159 = first158 + 16 < 64;
                if (more159) {
                    #pragma unroll
                    for (int u160 = 0; u160 < 1; ++u160) {
                        const int at161 = u160 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at162 = at161 % 16 * 2;
                        const int at163 = at161 / 16;
                        const int i164 = at14 + at162;
                        const int k165 = first16 + first158 + 16 + at163;
                        #pragma unroll
                        for (int e166 = 0; e166 < 2; ++e166) {
                            right_stages_next[u160 * 2 + e166] = 0;
                            if ((i164 + e166) < n78 && k165 < n18) {
                                const int i167 = (int)((unsigned int)k165 % (unsigned int)n48);
                                const int i168 = (int)((unsigned int)k165 / (unsigned int)n48);
                                const long long v169 = (long long)((unsigned long long)(long long)i11 * (unsigned long long)n47);
                                const long long v170 = (long long)((unsigned long long)v169 + (unsigned long long)(long long)i167);
                                const long long v171 = (long long)((unsigned long long)v170 * (unsigned long long)size_t);
                                const long long v172 = (long long)((unsigned long long)v171 + (unsigned long long)(long long)(i164 + e166));
                                const long long v173 = lw_remainder_int64(v172, size_t);
                                const long long v174 = lw_floor_divide_int64(v172, size_t);
                                const float v175 = lw_from_f16(x0[(int)v173 + (int)v174 * n78 + i168 * n113 + i12 * n115]);
                                right_stages_next[u160 * 2 + e166] = v175;
                            }
                        }
                    }
                }
                if (first158 >= 0) {
                    float (*const left)[68] = (float (*)[68])&lw_kept[first158][0];
                    auto* const right = right_stages[stage157];
                    #pragma unroll 4
                    for (int k176 = 0; k176 < 16; ++k176) {
                        lw_pack<float, 4> left_now[2];
                        #pragma unroll
                        for (int g177 = 0; g177 < 2; ++g177) {
                            left_now[g177] = *(const lw_pack<float, 4>*)&left[k176][g177 * 32 + (int)threadIdx.y * 4];
                        }
                        lw_pack<float, 1> right_now[1];
                        #pragma unroll
                        for (int g178 = 0; g178 < 1; ++g178) {
                            right_now[g178] = *(const lw_pack<float, 1>*)&right[k176][g178 * 32 + (int)threadIdx.x * 1];
                        }
                        #pragma unroll
                        for (int r179 = 0; r179 < 8; ++r179) {
                            #pragma unroll
                            for (int c180 = 0; c180 < 1; ++c180) {
                                r25_sums[r179 * 1 + c180] = fmaf(left_now[r179 / 4].at[r179 % 4], right_now[c180 / 1].at[c180 % 1], r25_sums[r179 * 1 + c180]);
                            }
                        }
                    }
                }
                stage157 = 1 - stage157;
                if (more159) {
                    #pragma unroll
                    for (int u181 = 0; u181 < 1; ++u181) {
                        const int at183 = u181 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at184 = at183 % 16 * 2;
                        const int at185 = at183 / 16;
                        lw_pack<float, 2> whole;
                        #pragma unroll
                        for (int e182 = 0; e182 < 2; ++e182) {
                            whole.at[e182] = right_stages_next[u181 * 2 + e182];
                        }
                        *(lw_pack<float, 2>*)&right_stages[stage157][at185][at184] = whole;
                    }
                }
                __syncthreads();
            }
        }
    }
    #pragma unroll
    for (int r186 = 0; r186 < 8; ++r186) {
        const int i188 = at13 + r186 / 4 * 32 + (int)threadIdx.y * 4 + r186 % 4;
        #pragma unroll
        for (int g187 = 0; g187 < 1; ++g187) {
            const int i189 = at14 + g187 * 32 + (int)threadIdx.x * 1;
            #pragma unroll
            for (int e190 = 0; e190 < 1; ++e190) {
                if (i188 < n30 && i189 + e190 < n78) {
                    y0[(i189 + e190) + i188 * n78 + i11 * n192 + i12 * n91] = r25_sums[r186 * 1 + g187 * 1 + e190];
                }
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) kernel_3(
        const unsigned short* __restrict__ x0,
        unsigned short* y0,
        long long size_n,
        long long size_w,
        long long size_v,
        long long size_p,
        long long* error) {
    const long long n0 = size_n * size_p * size_v * size_w;
    const int n1 = (int)(n0);
    const int n3 = (int)(size_p);
    const long long n4 = size_p * size_v;
    const int n5 = (int)(n4);
    const long long n6 = size_p * size_v * size_w;
    const int n7 = (int)(n6);
    const long long n8 = size_p * size_w;
    const int n9 = (int)(n8);
    const int n15 = (int)(size_w);
    const int n18 = (int)(size_v);
    const int at2 = (int)blockIdx.x * 4096;
    if (n3 % 8 == 0 && n5 % 8 == 0 && n7 % 8 == 0 && n9 % 8 == 0 && at2 + 4096 <= n1) {
        lw_pack<unsigned short, 8> pack10[2];
        #pragma unroll
        for (int u11 = 0; u11 < 2; ++u11) {
            const int at12 = at2 + (u11 * 256 + (int)threadIdx.x) * 8;
            const int i13 = (int)((unsigned int)at12 % (unsigned int)n3);
            const int i14 = (int)((unsigned int)at12 / (unsigned int)n3);
            const int i16 = (int)((unsigned int)i14 % (unsigned int)n15);
            const int i17 = (int)((unsigned int)i14 / (unsigned int)n15);
            const int i19 = (int)((unsigned int)i17 % (unsigned int)n18);
            const int i20 = (int)((unsigned int)i17 / (unsigned int)n18);
            pack10[u11] = *(const lw_pack<unsigned short, 8>*)&x0[i13 + i19 * n3 + i16 * n5 + i20 * n7];
        }
        #pragma unroll
        for (int u21 = 0; u21 < 2; ++u21) {
            const int at22 = at2 + (u21 * 256 + (int)threadIdx.x) * 8;
            const int i23 = (int)((unsigned int)at22 % (unsigned int)n3);
            const int i24 = (int)((unsigned int)at22 / (unsigned int)n3);
            const int i25 = (int)((unsigned int)i24 % (unsigned int)n15);
            const int i26 = (int)((unsigned int)i24 / (unsigned int)n15);
            const int i27 = (int)((unsigned int)i26 % (unsigned int)n18);
            const int i28 = (int)((unsigned int)i26 / (unsigned int)n18);
            lw_pack<unsigned short, 8> pack29;
            #pragma unroll
            for (int e30 = 0; e30 < 8; ++e30) {
                const float v31 = lw_from_f16(pack10[u21].at[e30]);
                pack29.at[e30] = lw_to_f16(v31);
            }
            *(lw_pack<unsigned short, 8>*)&y0[i23 + i25 * n3 + i27 * n9 + i28 * n7] = pack29;
        }
    } else {
        const int n33 = at2 + 4096 < n1 ? at2 + 4096 : n1;
        for (int at32 = at2 + (int)threadIdx.x; at32 < n33; at32 += 256) {
            const int i34 = (int)((unsigned int)at32 % (unsigned int)n3);
            const int i35 = (int)((unsigned int)at32 / (unsigned int)n3);
            const int i36 = (int)((unsigned int)i35 % (unsigned int)n15);
            const int i37 = (int)((unsigned int)i35 / (unsigned int)n15);
            const int i38 = (int)((unsigned int)i37 % (unsigned int)n18);
            const int i39 = (int)((unsigned int)i37 / (unsigned int)n18);
            const float v40 = lw_from_f16(x0[i34 + i38 * n3 + i36 * n5 + i39 * n7]);
            y0[i34 + i36 * n3 + i38 * n9 + i39 * n7] = lw_to_f16(v40);
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) kernel_4(
        const float* __restrict__ x0,
        unsigned short* y0,
        long long size_n,
        long long size_w,
        long long size_v,
        long long size_t,
        long long* error) {
    const long long n0 = size_n * size_t * size_v * size_w;
    const int n1 = (int)(n0);
    const int n3 = (int)(size_t);
    const long long n4 = size_t * size_v;
    const int n5 = (int)(n4);
    const long long n6 = size_t * size_v * size_w;
    const int n7 = (int)(n6);
    const long long n8 = size_t * size_w;
    const int n9 = (int)(n8);
    const int n15 = (int)(size_w);
    const int n18 = (int)(size_v);
    const int at2 = (int)blockIdx.x * 2048;
    if (n3 % 4 == 0 && n5 % 4 == 0 && n7 % 4 == 0 && n9 % 4 == 0 && at2 + 2048 <= n1) {
        lw_pack<float, 4> pack10[2];
        #pragma unroll
        for (int u11 = 0; u11 < 2; ++u11) {
            const int at12 = at2 + (u11 * 256 + (int)threadIdx.x) * 4;
            const int i13 = (int)((unsigned int)at12 % (unsigned int)n3);
            const int i14 = (int)((unsigned int)at12 / (unsigned int)n3);
            const int i16 = (int)((unsigned int)i14 % (unsigned int)n15);
            const int i17 = (int)((unsigned int)i14 / (unsigned int)n15);
            const int i19 = (int)((unsigned int)i17 % (unsigned int)n18);
            const int i20 = (int)((unsigned int)i17 / (unsigned int)n18);
            pack10[u11] = *(const lw_pack<float, 4>*)&x0[i13 + i19 * n3 + i16 * n5 + i20 * n7];
        }
        #pragma unroll
        for (int u21 = 0; u21 < 2; ++u21) {
            const int at22 = at2 + (u21 * 256 + (int)threadIdx.x) * 4;
            const int i23 = (int)((unsigned int)at22 % (unsigned int)n3);
            const int i24 = (int)((unsigned int)at22 / (unsigned int)n3);
            const int i25 = (int)((unsigned int)i24 % (unsigned int)n15);
            const int i26 = (int)((unsigned int)i24 / (unsigned int)n15);
            const int i27 = (int)((unsigned int)i26 % (unsigned int)n18);
            const int i28 = (int)((unsigned int)i26 / (unsigned int)n18);
            lw_pack<unsigned short, 4> pack29;
            #pragma unroll
            for (int e30 = 0; e30 < 4; ++e30) {
                const float v31 = pack10[u21].at[e30];
                const float v32 = lw_from_f16(lw_to_f16((float)v31));
                pack29.at[e30] = lw_to_f16(v32);
            }
            *(lw_pack<unsigned short, 4>*)&y0[i23 + i25 * n3 + i27 * n9 + i28 * n7] = pack29;
        }
    } else {
        const int n34 = at2 + 2048 < n1 ? at2 + 2048 : n1;
        for (int at33 = at2 + (int)threadIdx.x; at33 < n34; at33 += 256) {
            const int i35 = (int)((unsigned int)at33 % (unsigned int)n3);
            const int i36 = (int)((unsigned int)at33 / (unsigned int)n3);
            const int i37 = (int)((unsigned int)i36 % (unsigned int)n15);
            const int i38 = (int)((unsigned int)i36 / (unsigned int)n15);
            const int i39 = (int)((unsigned int)i38 % (unsigned int)n18);
            const int i40 = (int)((unsigned int)i38 / (unsigned int)n18);
            const float v41 = x0[i35 + i39 * n3 + i37 * n5 + i40 * n7];
            const float v42 = lw_from_f16(lw_to_f16((float)v41));
            y0[i35 + i37 * n3 + i39 * n9 + i40 * n7] = lw_to_f16(v42);
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) kernel_5(
        const float* __restrict__ x0,
        unsigned short* y0,
        long long size_n,
        long long size_w,
        long long size_m,
        long long size_t,
        long long size_k,
        long long* error) {
    const long long n0 = lw_size_divide(size_k, size_w) * size_m * size_n * size_t * size_w;
    const int n1 = (int)(n0);
    const long long n3 = lw_size_divide(size_k, size_w) * size_t;
    const int n4 = (int)(n3);
    const long long n5 = lw_size_divide(size_k, size_w) * size_m * size_t;
    const int n6 = (int)(n5);
    const long long n7 = lw_size_divide(size_k, size_w) * size_m * size_t * size_w;
    const int n8 = (int)(n7);
    const long long n9 = lw_size_divide(size_k, size_w) * size_t * size_w;
    const int n10 = (int)(n9);
    const int n16 = (int)(size_w);
    const int n19 = (int)(size_m);
    const int at2 = (int)blockIdx.x * 2048;
    if (n4 % 4 == 0 && n6 % 4 == 0 && n8 % 4 == 0 && n10 % 4 == 0 && at2 + 2048 <= n1) {
        lw_pack<float, 4> pack11[2];
        #pragma unroll
        for (int u12 = 0; u12 < 2; ++u12) {
            const int at13 = at2 + (u12 * 256 + (int)threadIdx.x) * 4;
            const int i14 = (int)((unsigned int)at13 % (unsigned int)n4);
            const int i15 = (int)((unsigned int)at13 / (unsigned int)n4);
            const int i17 = (int)((unsigned int)i15 % (unsigned int)n16);
            const int i18 = (int)((unsigned int)i15 / (unsigned int)n16);
            const int i20 = (int)((unsigned int)i18 % (unsigned int)n19);
            const int i21 = (int)((unsigned int)i18 / (unsigned int)n19);
            pack11[u12] = *(const lw_pack<float, 4>*)&x0[i14 + i20 * n4 + i17 * n6 + i21 * n8];
        }
        #pragma unroll
        for (int u22 = 0; u22 < 2; ++u22) {
            const int at23 = at2 + (u22 * 256 + (int)threadIdx.x) * 4;
            const int i24 = (int)((unsigned int)at23 % (unsigned int)n4);
            const int i25 = (int)((unsigned int)at23 / (unsigned int)n4);
            const int i26 = (int)((unsigned int)i25 % (unsigned int)n16);
            const int i27 = (int)((unsigned int)i25 / (unsigned int)n16);
            const int i28 = (int)((unsigned int)i27 % (unsigned int)n19);
            const int i29 = (int)((unsigned int)i27 / (unsigned int)n19);
            lw_pack<unsigned short, 4> pack30;
            #pragma unroll
            for (int e31 = 0; e31 < 4; ++e31) {
                const float v32 = pack11[u22].at[e31];
                const float v33 = lw_from_f16(lw_to_f16((float)v32));
                pack30.at[e31] = lw_to_f16(v33);
            }
            *(lw_pack<unsigned short, 4>*)&y0[i24 + i26 * n4 + i28 * n10 + i29 * n8] = pack30;
        }
    } else {
        const int n35 = at2 + 2048 < n1 ? at2 + 2048 : n1;
        for (int at34 = at2 + (int)threadIdx.x; at34 < n35; at34 += 256) {
            const int i36 = (int)((unsigned int)at34 % (unsigned int)n4);
            const int i37 = (int)((unsigned int)at34 / (unsigned int)n4);
            const int i38 = (int)((unsigned int)i37 % (unsigned int)n16);
            const int i39 = (int)((unsigned int)i37 / (unsigned int)n16);
            const int i40 = (int)((unsigned int)i39 % (unsigned int)n19);
            const int i41 = (int)((unsigned int)i39 / (unsigned int)n19);
            const float v42 = x0[i36 + i40 * n4 + i38 * n6 + i41 * n8];
            const float v43 = lw_from_f16(lw_to_f16((float)v42));
            y0[i36 + i38 * n4 + i40 * n10 + i41 * n8] = lw_to_f16(v43);
        }
    }
}
