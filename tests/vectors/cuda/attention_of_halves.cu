// kernel_0<<<floordiv(m + 63, 64)*floordiv(u + 63, 64)*n, 32 * 4>>> (64 blocks now): f16[n, m, k], f16[n, q, k], f16[n, q, u] -> f16[n, m, u]

__device__ __forceinline__ long long lw_size_divide(long long a, long long b) {
    return b == 0 ? 0 : a / b - (a % b != 0 && (a % b ^ b) < 0);
}

template <class T, int N> struct alignas(sizeof(T) * N) lw_pack { T at[N]; };

// N bytes from memory to shared memory, both at multiples of N, while the thread goes on
template <int N> __device__ __forceinline__ void lw_copy(void* to, const void* from) {
#ifdef LW_EMULATED
    emulator::copy(to, from, N);
#elif __CUDA_ARCH__ >= 800
    const unsigned at = (unsigned)__cvta_generic_to_shared(to);
    const unsigned long long source = (unsigned long long)__cvta_generic_to_global(from);
    if (N == 16) asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(at), "l"(source) : "memory");
    else asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" :: "r"(at), "l"(source), "n"(N) : "memory");
#else
    *(lw_pack<unsigned, N / 4>*)to = *(const lw_pack<unsigned, N / 4>*)from;
#endif
}
// what this thread copies from here on is of the next group
__device__ __forceinline__ void lw_end_group() {
#ifdef LW_EMULATED
    emulator::end_group();
#elif __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
// until of this thread's groups at most the newest N are under way
template <int N> __device__ __forceinline__ void lw_wait_groups() {
#ifdef LW_EMULATED
    emulator::wait_groups(N);
#elif __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" :: "n"(N) : "memory");
#endif
}

#ifndef LW_EMULATED
#define LW_SHARED(name) extern __shared__ __align__(16) unsigned char name[]
#endif

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

// two numbers as half floats in a word, the first in its lower half
__device__ __forceinline__ unsigned lw_pair_f16(float x, float y) {
#ifndef LW_EMULATED
    unsigned pair;
    asm("cvt.rn.f16x2.f32 %0, %2, %1;" : "=r"(pair) : "f"(x), "f"(y));
    return pair;
#else
    return lw_to_f16(x) | (unsigned)lw_to_f16(y) << 16;
#endif
}

// the half floats of a word
__device__ __forceinline__ float lw_first(unsigned pair) { return lw_from_f16((unsigned short)pair); }
__device__ __forceinline__ float lw_second(unsigned pair) { return lw_from_f16((unsigned short)(pair >> 16)); }

__device__ __forceinline__ unsigned lw_mul_pairs(unsigned x, unsigned y) {
#ifndef LW_EMULATED
    unsigned pair;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(pair) : "r"(x), "r"(y));
    return pair;
#else
    return lw_pair_f16(lw_first(x) * lw_first(y), lw_second(x) * lw_second(y));
#endif
}

#ifndef LW_EMULATED
__device__ __forceinline__ float lw_max(float x, float y) {
    float found;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(found) : "f"(x), "f"(y));
    return found;
}
#endif

__device__ __forceinline__ unsigned lw_max_pairs(unsigned x, unsigned y) {
#ifndef LW_EMULATED
    unsigned pair;
    asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(pair) : "r"(x), "r"(y));
    return pair;
#else
    return lw_pair_f16(lw_max(lw_first(x), lw_first(y)), lw_max(lw_second(x), lw_second(y)));
#endif
}

// exp of an f16, for an f16: the exponent's error is less than 2^-20 where the result is none of 0 and infinity
__device__ __forceinline__ float lw_exp_f16(float x) {
#ifndef LW_EMULATED
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 0x1.715476p+0f));
    return y;
#else
    return expf(x);
#endif
}

__device__ __forceinline__ unsigned lw_sub_pairs(unsigned x, unsigned y) {
#ifndef LW_EMULATED
    unsigned pair;
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(pair) : "r"(x), "r"(y));
    return pair;
#else
    return lw_pair_f16(lw_first(x) - lw_first(y), lw_second(x) - lw_second(y));
#endif
}

__device__ __forceinline__ void lw_add(float& sum, float& lost, float x) {
    const float next = sum + x;
    const float part = next - sum;
    lost += (sum - (next - part)) + (x - part);
    sum = next;
}
__device__ __forceinline__ float lw_added(float sum, float lost) { return lost - lost == 0 && lost != 0 ? sum + lost : sum; }

// 1 / y in two parts of one sign, none of which is 0: x times both, of f16, is x / y, exact where that is an f32
__device__ __forceinline__ void lw_parts(float y, float& high, float& low) {
    high = 1 / y;
    float left = fmaf(-y, high, 1);
    if (left < 0) {
        high = __int_as_float(__float_as_int(high) - 1);
        left = fmaf(-y, high, 1);
    }
    left = fabsf(left * high);
    low = copysignf(left >= 0x1p-149f ? left : 0x1p-149f, high);
}
__device__ __forceinline__ float lw_times(float x, float high, float low) { return fmaf(x, high, x * low); }

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

extern "C" __global__ void __launch_bounds__(128, 3) kernel_0(
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
    const int n15 = (int)(size_k);
    const long long n16 = size_k * size_q;
    const int n17 = (int)(n16);
    const int n31 = (int)(size_m);
    const long long n32 = size_k * size_m;
    const int n33 = (int)(n32);
    const int n266 = (int)(size_u);
    const long long n267 = size_q * size_u;
    const int n268 = (int)(n267);
    const long long n362 = size_m * size_u;
    const int n363 = (int)(n362);
    const int i3 = (int)((unsigned int)(int)blockIdx.x % (unsigned int)n2);
    const int i4 = (int)((unsigned int)(int)blockIdx.x / (unsigned int)n2);
    const int i8 = (int)((unsigned int)i4 % (unsigned int)n7);
    const int i9 = (int)((unsigned int)i4 / (unsigned int)n7);
    const int at10 = i8 * 64;
    const int at11 = i3 * 64;
    float s11_sums[32];
    LW_SHARED(lw_shared);
    const unsigned short* const x0_bits = x0;
    unsigned short (*const p0_left)[64][40] = (unsigned short (*)[64][40])(lw_shared + 0ll);
    const unsigned short* const x1_bits = x1;
    unsigned short (*const p0_right)[64][40] = (unsigned short (*)[64][40])(lw_shared + 10240ll);
    const unsigned short* const x2_bits = x2;
    unsigned short (*const s11_sums_right)[64][72] = (unsigned short (*)[64][72])(lw_shared + 20480ll);
    // pass 1: max
    unsigned acc12[2] = {0xfc00fc00u, 0xfc00fc00u};
    __syncthreads();
    if (n15 % 8 == 0 && n17 % 8 == 0 && 0 + 64 <= n14 && 0 + 32 <= n15) {
        #pragma unroll
        for (int u18 = 0; u18 < 2; ++u18) {
            const int at19 = u18 * 128 + (int)threadIdx.y * 32 + (int)threadIdx.x;
            const int at20 = at19 % 4 * 8;
            const int at21 = at19 / 4;
            const int i22 = 0 + at21;
            const int k23 = 0 + at20;
            lw_copy<16>(&p0_right[0][at21][at20], &x1_bits[k23 + i22 * n15 + i9 * n17]);
        }
    } else {
        #pragma unroll 1
        for (int u24 = 0; u24 < 2; ++u24) {
            const int at25 = u24 * 128 + (int)threadIdx.y * 32 + (int)threadIdx.x;
            const int at26 = at25 % 4 * 8;
            const int at27 = at25 / 4;
            const int i28 = 0 + at27;
            const int k29 = 0 + at26;
            if (n15 % 8 == 0 && n17 % 8 == 0 && i28 < n14 && k29 + 8 <= n15) {
                lw_copy<16>(&p0_right[0][at27][at26], &x1_bits[k29 + i28 * n15 + i9 * n17]);
            } else {
                #pragma unroll
                for (int e30 = 0; e30 < 8; ++e30) {
                    if (i28 < n14 && (k29 + e30) < n15) {
                        p0_right[0][at27][at26 + e30] = x1_bits[(k29 + e30) + i28 * n15 + i9 * n17];
                    } else {
                        p0_right[0][at27][at26 + e30] = 0;
                    }
                }
            }
        }
    }
    if (n15 % 8 == 0 && n33 % 8 == 0 && at10 + 64 <= n31 && 0 + 32 <= n15) {
        #pragma unroll
        for (int u34 = 0; u34 < 2; ++u34) {
            const int at35 = u34 * 128 + (int)threadIdx.y * 32 + (int)threadIdx.x;
            const int at36 = at35 % 4 * 8;
            const int at37 = at35 / 4;
            const int i38 = at10 + at37;
            const int k39 = 0 + at36;
            lw_copy<16>(&p0_left[0][at37][at36], &x0_bits[k39 + i38 * n15 + i9 * n33]);
        }
    } else {
        #pragma unroll 1
        for (int u40 = 0; u40 < 2; ++u40) {
            const int at41 = u40 * 128 + (int)threadIdx.y * 32 + (int)threadIdx.x;
            const int at42 = at41 % 4 * 8;
            const int at43 = at41 / 4;
            const int i44 = at10 + at43;
            const int k45 = 0 + at42;
            if (n15 % 8 == 0 && n33 % 8 == 0 && i44 < n31 && k45 + 8 <= n15) {
                lw_copy<16>(&p0_left[0][at43][at42], &x0_bits[k45 + i44 * n15 + i9 * n33]);
            } else {
                #pragma unroll
                for (int e46 = 0; e46 < 8; ++e46) {
                    if (i44 < n31 && (k45 + e46) < n15) {
                        p0_left[0][at43][at42 + e46] = x0_bits[(k45 + e46) + i44 * n15 + i9 * n33];
                    } else {
                        p0_left[0][at43][at42 + e46] = 0;
                    }
                }
            }
        }
    }
    if (n15 > 32 && n15 <= 64) {
        if (n15 % 8 == 0 && n33 % 8 == 0 && at10 + 64 <= n31 && 32 + 32 <= n15) {
            #pragma unroll
            for (int u47 = 0; u47 < 2; ++u47) {
                const int at48 = u47 * 128 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                const int at49 = at48 % 4 * 8;
                const int at50 = at48 / 4;
                const int i51 = at10 + at50;
                const int k52 = 32 + at49;
                lw_copy<16>(&p0_left[1][at50][at49], &x0_bits[k52 + i51 * n15 + i9 * n33]);
            }
        } else {
            #pragma unroll 1
            for (int u53 = 0; u53 < 2; ++u53) {
                const int at54 = u53 * 128 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                const int at55 = at54 % 4 * 8;
                const int at56 = at54 / 4;
                const int i57 = at10 + at56;
                const int k58 = 32 + at55;
                if (n15 % 8 == 0 && n33 % 8 == 0 && i57 < n31 && k58 + 8 <= n15) {
                    lw_copy<16>(&p0_left[1][at56][at55], &x0_bits[k58 + i57 * n15 + i9 * n33]);
                } else {
                    #pragma unroll
                    for (int e59 = 0; e59 < 8; ++e59) {
                        if (i57 < n31 && (k58 + e59) < n15) {
                            p0_left[1][at56][at55 + e59] = x0_bits[(k58 + e59) + i57 * n15 + i9 * n33];
                        } else {
                            p0_left[1][at56][at55 + e59] = 0;
                        }
                    }
                }
            }
        }
    }
    lw_end_group();
    int stage60 = 0;
    unsigned words61[2][1][4];
    for (int first13 = 0; first13 < n14; first13 += 64) {
        float p0[32];
        #pragma unroll
        for (int k62 = 0; k62 < 32; ++k62) {
            p0[k62] = 0.0f;
        }
        for (int chunk63 = 0; chunk63 == 0 || chunk63 < n15; chunk63 += 32) {
            lw_wait_groups<0>();
            __syncthreads();
            const bool more64 = chunk63 + 32 < n15;
            const int k65 = more64 ? chunk63 + 32 : 0;
            const int first66 = more64 ? first13 : first13 + 64;
            const int stage67 = 1 - stage60;
            if (first66 < n14) {
                if (n15 % 8 == 0 && n17 % 8 == 0 && first66 + 64 <= n14 && k65 + 32 <= n15) {
                    #pragma unroll
                    for (int u68 = 0; u68 < 2; ++u68) {
                        const int at69 = u68 * 128 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at70 = at69 % 4 * 8;
                        const int at71 = at69 / 4;
                        const int i72 = first66 + at71;
                        const int k73 = k65 + at70;
                        lw_copy<16>(&p0_right[stage67][at71][at70], &x1_bits[k73 + i72 * n15 + i9 * n17]);
                    }
                } else {
                    #pragma unroll 1
                    for (int u74 = 0; u74 < 2; ++u74) {
                        const int at75 = u74 * 128 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at76 = at75 % 4 * 8;
                        const int at77 = at75 / 4;
                        const int i78 = first66 + at77;
                        const int k79 = k65 + at76;
                        if (n15 % 8 == 0 && n17 % 8 == 0 && i78 < n14 && k79 + 8 <= n15) {
                            lw_copy<16>(&p0_right[stage67][at77][at76], &x1_bits[k79 + i78 * n15 + i9 * n17]);
                        } else {
                            #pragma unroll
                            for (int e80 = 0; e80 < 8; ++e80) {
                                if (i78 < n14 && (k79 + e80) < n15) {
                                    p0_right[stage67][at77][at76 + e80] = x1_bits[(k79 + e80) + i78 * n15 + i9 * n17];
                                } else {
                                    p0_right[stage67][at77][at76 + e80] = 0;
                                }
                            }
                        }
                    }
                }
                if (n15 > 64) {
                    if (n15 % 8 == 0 && n33 % 8 == 0 && at10 + 64 <= n31 && k65 + 32 <= n15) {
                        #pragma unroll
                        for (int u81 = 0; u81 < 2; ++u81) {
                            const int at82 = u81 * 128 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                            const int at83 = at82 % 4 * 8;
                            const int at84 = at82 / 4;
                            const int i85 = at10 + at84;
                            const int k86 = k65 + at83;
                            lw_copy<16>(&p0_left[stage67][at84][at83], &x0_bits[k86 + i85 * n15 + i9 * n33]);
                        }
                    } else {
                        #pragma unroll 1
                        for (int u87 = 0; u87 < 2; ++u87) {
                            const int at88 = u87 * 128 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                            const int at89 = at88 % 4 * 8;
                            const int at90 = at88 / 4;
                            const int i91 = at10 + at90;
                            const int k92 = k65 + at89;
                            if (n15 % 8 == 0 && n33 % 8 == 0 && i91 < n31 && k92 + 8 <= n15) {
                                lw_copy<16>(&p0_left[stage67][at90][at89], &x0_bits[k92 + i91 * n15 + i9 * n33]);
                            } else {
                                #pragma unroll
                                for (int e93 = 0; e93 < 8; ++e93) {
                                    if (i91 < n31 && (k92 + e93) < n15) {
                                        p0_left[stage67][at90][at89 + e93] = x0_bits[(k92 + e93) + i91 * n15 + i9 * n33];
                                    } else {
                                        p0_left[stage67][at90][at89 + e93] = 0;
                                    }
                                }
                            }
                        }
                    }
                }
            }
            lw_end_group();
            if (first13 == 0 || n15 > 32) {
                const int stage94 = n15 > 64 ? stage60 : (int)chunk63 / 32;
                #pragma unroll
                for (int k95 = 0; k95 < 2; ++k95) {
                    #pragma unroll
                    for (int g96 = 0; g96 < 1; ++g96) {
                        lw_words4(words61[k95][g96], &p0_left[stage94][(int)threadIdx.y * 16 + g96 * 16 + (int)threadIdx.x / 8 % 2 * 8 + (int)threadIdx.x % 8][k95 * 16 + (int)threadIdx.x / 16 * 8]);
                    }
                }
            }
            #pragma unroll
            for (int k97 = 0; k97 < 32; k97 += 16) {
                #pragma unroll
                for (int h98 = 0; h98 < 4; ++h98) {
                    unsigned right_now[4];
                    lw_words4(right_now, &p0_right[stage60][h98 * 16 + (int)threadIdx.x / 16 * 8 + (int)threadIdx.x % 8][k97 + (int)threadIdx.x / 8 % 2 * 8]);
                    #pragma unroll
                    for (int g99 = 0; g99 < 1; ++g99) {
                        lw_mma_f16(p0[(g99 * 2 + 0) * 16 + h98 * 4 + 0], p0[(g99 * 2 + 0) * 16 + h98 * 4 + 1], p0[(g99 * 2 + 1) * 16 + h98 * 4 + 0], p0[(g99 * 2 + 1) * 16 + h98 * 4 + 1], words61[k97 / 16][g99], right_now + 0);
                        lw_mma_f16(p0[(g99 * 2 + 0) * 16 + h98 * 4 + 2], p0[(g99 * 2 + 0) * 16 + h98 * 4 + 3], p0[(g99 * 2 + 1) * 16 + h98 * 4 + 2], p0[(g99 * 2 + 1) * 16 + h98 * 4 + 3], words61[k97 / 16][g99], right_now + 2);
                    }
                }
            }
            stage60 = stage67;
        }
        if (at10 + 64 <= n31 && first13 + 64 <= n14) {
            #pragma unroll
            for (int r100 = 0; r100 < 2; ++r100) {
                const int i102 = at10 + r100 * 8 + (int)threadIdx.y * 16 + (int)threadIdx.x / 4;
                #pragma unroll
                for (int t101 = 0; t101 < 8; ++t101) {
                    const int i103 = first13 + t101 * 8 + (int)threadIdx.x % 4 * 2;
                    const unsigned w104 = lw_pair_f16(p0[r100 * 16 + t101 * 2 + 0], p0[r100 * 16 + t101 * 2 + 1]);
                    const float v105 = 0x1.998p-3f;
                    const float v106 = 0x1.998p-3f;
                    const unsigned w107 = lw_pair_f16(v105, v106);
                    const unsigned w108 = lw_mul_pairs(w104, w107);
                    acc12[r100] = lw_max_pairs(acc12[r100], w108);
                }
            }
        } else {
            #pragma unroll
            for (int r109 = 0; r109 < 2; ++r109) {
                const int i111 = at10 + r109 * 8 + (int)threadIdx.y * 16 + (int)threadIdx.x / 4;
                #pragma unroll
                for (int t110 = 0; t110 < 8; ++t110) {
                    const int i112 = first13 + t110 * 8 + (int)threadIdx.x % 4 * 2;
                    const unsigned w113 = lw_pair_f16(p0[r109 * 16 + t110 * 2 + 0], p0[r109 * 16 + t110 * 2 + 1]);
                    const float v114 = 0x1.998p-3f;
                    const float v115 = 0x1.998p-3f;
                    const unsigned w116 = lw_pair_f16(v114, v115);
                    const unsigned w117 = lw_mul_pairs(w113, w116);
                    const unsigned w118 = ((i111 < n31 && i112 + 0 < n14 ? w117 : 0xfc00fc00u) & 0xffffu) | ((i111 < n31 && i112 + 1 < n14 ? w117 : 0xfc00fc00u) & 0xffff0000u);
                    acc12[r109] = lw_max_pairs(acc12[r109], w118);
                }
            }
        }
    }
    float s4_rows[2];
    #pragma unroll
    for (int r119 = 0; r119 < 2; ++r119) {
        float all120 = lw_max(lw_first(acc12[r119]), lw_second(acc12[r119]));
        #pragma unroll
        for (int d121 = 2; d121 > 0; d121 /= 2) {
            const float v122 = (float)__shfl_xor_sync(0xffffffffu, (float)all120, d121);
            all120 = lw_max(all120, v122);
        }
        const float v123 = lw_from_f16(lw_to_f16(all120));
        s4_rows[r119] = v123;
    }
    // pass 2: sum
    float acc124[2] = {0.0f, 0.0f};
    float acc125[2] = {0.0f, 0.0f};
    __syncthreads();
    if (n15 % 8 == 0 && n17 % 8 == 0 && 0 + 64 <= n14 && 0 + 32 <= n15) {
        #pragma unroll
        for (int u128 = 0; u128 < 2; ++u128) {
            const int at129 = u128 * 128 + (int)threadIdx.y * 32 + (int)threadIdx.x;
            const int at130 = at129 % 4 * 8;
            const int at131 = at129 / 4;
            const int i132 = 0 + at131;
            const int k133 = 0 + at130;
            lw_copy<16>(&p0_right[0][at131][at130], &x1_bits[k133 + i132 * n15 + i9 * n17]);
        }
    } else {
        #pragma unroll 1
        for (int u134 = 0; u134 < 2; ++u134) {
            const int at135 = u134 * 128 + (int)threadIdx.y * 32 + (int)threadIdx.x;
            const int at136 = at135 % 4 * 8;
            const int at137 = at135 / 4;
            const int i138 = 0 + at137;
            const int k139 = 0 + at136;
            if (n15 % 8 == 0 && n17 % 8 == 0 && i138 < n14 && k139 + 8 <= n15) {
                lw_copy<16>(&p0_right[0][at137][at136], &x1_bits[k139 + i138 * n15 + i9 * n17]);
            } else {
                #pragma unroll
                for (int e140 = 0; e140 < 8; ++e140) {
                    if (i138 < n14 && (k139 + e140) < n15) {
                        p0_right[0][at137][at136 + e140] = x1_bits[(k139 + e140) + i138 * n15 + i9 * n17];
                    } else {
                        p0_right[0][at137][at136 + e140] = 0;
                    }
                }
            }
        }
    }
    if (n15 > 64) {
        if (n15 % 8 == 0 && n33 % 8 == 0 && at10 + 64 <= n31 && 0 + 32 <= n15) {
            #pragma unroll
            for (int u141 = 0; u141 < 2; ++u141) {
                const int at142 = u141 * 128 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                const int at143 = at142 % 4 * 8;
                const int at144 = at142 / 4;
                const int i145 = at10 + at144;
                const int k146 = 0 + at143;
                lw_copy<16>(&p0_left[0][at144][at143], &x0_bits[k146 + i145 * n15 + i9 * n33]);
            }
        } else {
            #pragma unroll 1
            for (int u147 = 0; u147 < 2; ++u147) {
                const int at148 = u147 * 128 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                const int at149 = at148 % 4 * 8;
                const int at150 = at148 / 4;
                const int i151 = at10 + at150;
                const int k152 = 0 + at149;
                if (n15 % 8 == 0 && n33 % 8 == 0 && i151 < n31 && k152 + 8 <= n15) {
                    lw_copy<16>(&p0_left[0][at150][at149], &x0_bits[k152 + i151 * n15 + i9 * n33]);
                } else {
                    #pragma unroll
                    for (int e153 = 0; e153 < 8; ++e153) {
                        if (i151 < n31 && (k152 + e153) < n15) {
                            p0_left[0][at150][at149 + e153] = x0_bits[(k152 + e153) + i151 * n15 + i9 * n33];
                        } else {
                            p0_left[0][at150][at149 + e153] = 0;
                        }
                    }
                }
            }
        }
    }
    lw_end_group();
    int stage154 = 0;
    unsigned words155[2][1][4];
    for (int first127 = 0; first127 < n14; first127 += 64) {
        float p0[32];
        #pragma unroll
        for (int k156 = 0; k156 < 32; ++k156) {
            p0[k156] = 0.0f;
        }
        for (int chunk157 = 0; chunk157 == 0 || chunk157 < n15; chunk157 += 32) {
            lw_wait_groups<0>();
            __syncthreads();
            const bool more158 = chunk157 + 32 < n15;
            const int k159 = more158 ? chunk157 + 32 : 0;
            const int first160 = more158 ? first127 : first127 + 64;
            const int stage161 = 1 - stage154;
            if (first160 < n14) {
                if (n15 % 8 == 0 && n17 % 8 == 0 && first160 + 64 <= n14 && k159 + 32 <= n15) {
                    #pragma unroll
                    for (int u162 = 0; u162 < 2; ++u162) {
                        const int at163 = u162 * 128 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at164 = at163 % 4 * 8;
                        const int at165 = at163 / 4;
                        const int i166 = first160 + at165;
                        const int k167 = k159 + at164;
                        lw_copy<16>(&p0_right[stage161][at165][at164], &x1_bits[k167 + i166 * n15 + i9 * n17]);
                    }
                } else {
                    #pragma unroll 1
                    for (int u168 = 0; u168 < 2; ++u168) {
                        const int at169 = u168 * 128 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at170 = at169 % 4 * 8;
                        const int at171 = at169 / 4;
                        const int i172 = first160 + at171;
                        const int k173 = k159 + at170;
                        if (n15 % 8 == 0 && n17 % 8 == 0 && i172 < n14 && k173 + 8 <= n15) {
                            lw_copy<16>(&p0_right[stage161][at171][at170], &x1_bits[k173 + i172 * n15 + i9 * n17]);
                        } else {
                            #pragma unroll
                            for (int e174 = 0; e174 < 8; ++e174) {
                                if (i172 < n14 && (k173 + e174) < n15) {
                                    p0_right[stage161][at171][at170 + e174] = x1_bits[(k173 + e174) + i172 * n15 + i9 * n17];
                                } else {
                                    p0_right[stage161][at171][at170 + e174] = 0;
                                }
                            }
                        }
                    }
                }
                if (n15 > 64) {
                    if (n15 % 8 == 0 && n33 % 8 == 0 && at10 + 64 <= n31 && k159 + 32 <= n15) {
                        #pragma unroll
                        for (int u175 = 0; u175 < 2; ++u175) {
                            const int at176 = u175 * 128 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                            const int at177 = at176 % 4 * 8;
                            const int at178 = at176 / 4;
                            const int i179 = at10 + at178;
                            const int k180 = k159 + at177;
                            lw_copy<16>(&p0_left[stage161][at178][at177], &x0_bits[k180 + i179 * n15 + i9 * n33]);
                        }
                    } else {
                        #pragma unroll 1
                        for (int u181 = 0; u181 < 2; ++u181) {
                            const int at182 = u181 * 128 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                            const int at183 = at182 % 4 * 8;
                            const int at184 = at182 / 4;
                            const int i185 = at10 + at184;
                            const int k186 = k159 + at183;
                            if (n15 % 8 == 0 && n33 % 8 == 0 && i185 < n31 && k186 + 8 <= n15) {
                                lw_copy<16>(&p0_left[stage161][at184][at183], &x0_bits[k186 + i185 * n15 + i9 * n33]);
                            } else {
                                #pragma unroll
                                for (int e187 = 0; e187 < 8; ++e187) {
                                    if (i185 < n31 && (k186 + e187) < n15) {
                                        p0_left[stage161][at184][at183 + e187] = x0_bits[(k186 + e187) + i185 * n15 + i9 * n33];
                                    } else {
                                        p0_left[stage161][at184][at183 + e187] = 0;
                                    }
                                }
                            }
                        }
                    }
                }
            }
            lw_end_group();
            if (first127 == 0 || n15 > 32) {
                const int stage188 = n15 > 64 ? stage154 : (int)chunk157 / 32;
                #pragma unroll
                for (int k189 = 0; k189 < 2; ++k189) {
                    #pragma unroll
                    for (int g190 = 0; g190 < 1; ++g190) {
                        lw_words4(words155[k189][g190], &p0_left[stage188][(int)threadIdx.y * 16 + g190 * 16 + (int)threadIdx.x / 8 % 2 * 8 + (int)threadIdx.x % 8][k189 * 16 + (int)threadIdx.x / 16 * 8]);
                    }
                }
            }
            #pragma unroll
            for (int k191 = 0; k191 < 32; k191 += 16) {
                #pragma unroll
                for (int h192 = 0; h192 < 4; ++h192) {
                    unsigned right_now[4];
                    lw_words4(right_now, &p0_right[stage154][h192 * 16 + (int)threadIdx.x / 16 * 8 + (int)threadIdx.x % 8][k191 + (int)threadIdx.x / 8 % 2 * 8]);
                    #pragma unroll
                    for (int g193 = 0; g193 < 1; ++g193) {
                        lw_mma_f16(p0[(g193 * 2 + 0) * 16 + h192 * 4 + 0], p0[(g193 * 2 + 0) * 16 + h192 * 4 + 1], p0[(g193 * 2 + 1) * 16 + h192 * 4 + 0], p0[(g193 * 2 + 1) * 16 + h192 * 4 + 1], words155[k191 / 16][g193], right_now + 0);
                        lw_mma_f16(p0[(g193 * 2 + 0) * 16 + h192 * 4 + 2], p0[(g193 * 2 + 0) * 16 + h192 * 4 + 3], p0[(g193 * 2 + 1) * 16 + h192 * 4 + 2], p0[(g193 * 2 + 1) * 16 + h192 * 4 + 3], words155[k191 / 16][g193], right_now + 2);
                    }
                }
            }
            stage154 = stage161;
        }
        if (at10 + 64 <= n31 && first127 + 64 <= n14) {
            #pragma unroll
            for (int r194 = 0; r194 < 2; ++r194) {
                const int i196 = at10 + r194 * 8 + (int)threadIdx.y * 16 + (int)threadIdx.x / 4;
                float part126 = 0.0f;
                #pragma unroll
                for (int t195 = 0; t195 < 8; ++t195) {
                    const int i197 = first127 + t195 * 8 + (int)threadIdx.x % 4 * 2;
                    const unsigned w198 = lw_pair_f16(p0[r194 * 16 + t195 * 2 + 0], p0[r194 * 16 + t195 * 2 + 1]);
                    const float v199 = 0x1.998p-3f;
                    const float v200 = 0x1.998p-3f;
                    const unsigned w201 = lw_pair_f16(v199, v200);
                    const unsigned w202 = lw_mul_pairs(w198, w201);
                    const unsigned w203 = lw_pair_f16(s4_rows[r194], s4_rows[r194]);
                    const unsigned w204 = lw_sub_pairs(w202, w203);
                    const float v205 = lw_first(w204);
                    const float v206 = lw_second(w204);
                    const unsigned w207 = lw_pair_f16(lw_exp_f16(v205), lw_exp_f16(v206));
                    const float v208 = lw_first(w207);
                    const float v209 = lw_second(w207);
                    part126 += v208;
                    part126 += v209;
                }
                lw_add(acc124[r194], acc125[r194], part126);
            }
        } else {
            #pragma unroll
            for (int r210 = 0; r210 < 2; ++r210) {
                const int i212 = at10 + r210 * 8 + (int)threadIdx.y * 16 + (int)threadIdx.x / 4;
                float part126 = 0.0f;
                #pragma unroll
                for (int t211 = 0; t211 < 8; ++t211) {
                    const int i213 = first127 + t211 * 8 + (int)threadIdx.x % 4 * 2;
                    const unsigned w214 = lw_pair_f16(p0[r210 * 16 + t211 * 2 + 0], p0[r210 * 16 + t211 * 2 + 1]);
                    const float v215 = 0x1.998p-3f;
                    const float v216 = 0x1.998p-3f;
                    const unsigned w217 = lw_pair_f16(v215, v216);
                    const unsigned w218 = lw_mul_pairs(w214, w217);
                    const unsigned w219 = lw_pair_f16(s4_rows[r210], s4_rows[r210]);
                    const unsigned w220 = lw_sub_pairs(w218, w219);
                    const float v221 = lw_first(w220);
                    const float v222 = lw_second(w220);
                    const unsigned w223 = lw_pair_f16(lw_exp_f16(v221), lw_exp_f16(v222));
                    const float v224 = lw_first(w223);
                    const float v225 = lw_second(w223);
                    part126 += (i212 < n31 && i213 + 0 < n14 ? v224 : 0);
                    part126 += (i212 < n31 && i213 + 1 < n14 ? v225 : 0);
                }
                lw_add(acc124[r210], acc125[r210], part126);
            }
        }
    }
    float s8_rows[2];
    #pragma unroll
    for (int r226 = 0; r226 < 2; ++r226) {
        float all227 = lw_added((acc124 + r226)[0], (acc125 + r226)[0]);
        #pragma unroll
        for (int d228 = 2; d228 > 0; d228 /= 2) {
            const float v229 = (float)__shfl_xor_sync(0xffffffffu, (float)all227, d228);
            all227 = all227 + v229;
        }
        const float v230 = lw_from_f16(lw_to_f16(all227));
        s8_rows[r226] = v230;
    }
    // the last pass
    #pragma unroll
    for (int k231 = 0; k231 < 32; ++k231) {
        s11_sums[k231] = 0.0f;
    }
    float over232_high[2];
    float over232_low[2];
    #pragma unroll
    for (int r233 = 0; r233 < 2; ++r233) {
        const int i234 = at10 + r233 * 8 + (int)threadIdx.y * 16 + (int)threadIdx.x / 4;
        lw_parts(s8_rows[r233], over232_high[r233], over232_low[r233]);
    }
    __syncthreads();
    if (n15 % 8 == 0 && n17 % 8 == 0 && 0 + 64 <= n14 && 0 + 32 <= n15) {
        #pragma unroll
        for (int u236 = 0; u236 < 2; ++u236) {
            const int at237 = u236 * 128 + (int)threadIdx.y * 32 + (int)threadIdx.x;
            const int at238 = at237 % 4 * 8;
            const int at239 = at237 / 4;
            const int i240 = 0 + at239;
            const int k241 = 0 + at238;
            lw_copy<16>(&p0_right[0][at239][at238], &x1_bits[k241 + i240 * n15 + i9 * n17]);
        }
    } else {
        #pragma unroll 1
        for (int u242 = 0; u242 < 2; ++u242) {
            const int at243 = u242 * 128 + (int)threadIdx.y * 32 + (int)threadIdx.x;
            const int at244 = at243 % 4 * 8;
            const int at245 = at243 / 4;
            const int i246 = 0 + at245;
            const int k247 = 0 + at244;
            if (n15 % 8 == 0 && n17 % 8 == 0 && i246 < n14 && k247 + 8 <= n15) {
                lw_copy<16>(&p0_right[0][at245][at244], &x1_bits[k247 + i246 * n15 + i9 * n17]);
            } else {
                #pragma unroll
                for (int e248 = 0; e248 < 8; ++e248) {
                    if (i246 < n14 && (k247 + e248) < n15) {
                        p0_right[0][at245][at244 + e248] = x1_bits[(k247 + e248) + i246 * n15 + i9 * n17];
                    } else {
                        p0_right[0][at245][at244 + e248] = 0;
                    }
                }
            }
        }
    }
    if (n15 > 64) {
        if (n15 % 8 == 0 && n33 % 8 == 0 && at10 + 64 <= n31 && 0 + 32 <= n15) {
            #pragma unroll
            for (int u249 = 0; u249 < 2; ++u249) {
                const int at250 = u249 * 128 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                const int at251 = at250 % 4 * 8;
                const int at252 = at250 / 4;
                const int i253 = at10 + at252;
                const int k254 = 0 + at251;
                lw_copy<16>(&p0_left[0][at252][at251], &x0_bits[k254 + i253 * n15 + i9 * n33]);
            }
        } else {
            #pragma unroll 1
            for (int u255 = 0; u255 < 2; ++u255) {
                const int at256 = u255 * 128 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                const int at257 = at256 % 4 * 8;
                const int at258 = at256 / 4;
                const int i259 = at10 + at258;
                const int k260 = 0 + at257;
                if (n15 % 8 == 0 && n33 % 8 == 0 && i259 < n31 && k260 + 8 <= n15) {
                    lw_copy<16>(&p0_left[0][at258][at257], &x0_bits[k260 + i259 * n15 + i9 * n33]);
                } else {
                    #pragma unroll
                    for (int e261 = 0; e261 < 8; ++e261) {
                        if (i259 < n31 && (k260 + e261) < n15) {
                            p0_left[0][at258][at257 + e261] = x0_bits[(k260 + e261) + i259 * n15 + i9 * n33];
                        } else {
                            p0_left[0][at258][at257 + e261] = 0;
                        }
                    }
                }
            }
        }
    }
    lw_end_group();
    int stage262 = 0;
    for (int first235 = 0; first235 < n14; first235 += 64) {
        float p0[32];
        #pragma unroll
        for (int k264 = 0; k264 < 32; ++k264) {
            p0[k264] = 0.0f;
        }
        for (int chunk265 = 0; chunk265 == 0 || chunk265 < n15; chunk265 += 32) {
            lw_wait_groups<0>();
            __syncthreads();
            if (chunk265 == 0) {
                if (n266 % 8 == 0 && n268 % 8 == 0 && at11 + 64 <= n266 && first235 + 64 <= n14) {
                    #pragma unroll
                    for (int u269 = 0; u269 < 4; ++u269) {
                        const int at270 = u269 * 128 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at271 = at270 % 8 * 8;
                        const int at272 = at270 / 8;
                        const int i273 = at11 + at271;
                        const int k274 = first235 + at272;
                        lw_copy<16>(&s11_sums_right[0][at272][at271], &x2_bits[i273 + k274 * n266 + i9 * n268]);
                    }
                } else {
                    #pragma unroll 1
                    for (int u275 = 0; u275 < 4; ++u275) {
                        const int at276 = u275 * 128 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at277 = at276 % 8 * 8;
                        const int at278 = at276 / 8;
                        const int i279 = at11 + at277;
                        const int k280 = first235 + at278;
                        if (n266 % 8 == 0 && n268 % 8 == 0 && i279 + 8 <= n266 && k280 < n14) {
                            lw_copy<16>(&s11_sums_right[0][at278][at277], &x2_bits[i279 + k280 * n266 + i9 * n268]);
                        } else {
                            #pragma unroll
                            for (int e281 = 0; e281 < 8; ++e281) {
                                if ((i279 + e281) < n266 && k280 < n14) {
                                    s11_sums_right[0][at278][at277 + e281] = x2_bits[(i279 + e281) + k280 * n266 + i9 * n268];
                                } else {
                                    s11_sums_right[0][at278][at277 + e281] = 0;
                                }
                            }
                        }
                    }
                }
            }
            lw_end_group();
            const bool more282 = chunk265 + 32 < n15;
            const int k283 = more282 ? chunk265 + 32 : 0;
            const int first284 = more282 ? first235 : first235 + 64;
            const int stage285 = 1 - stage262;
            if (first284 < n14) {
                if (n15 % 8 == 0 && n17 % 8 == 0 && first284 + 64 <= n14 && k283 + 32 <= n15) {
                    #pragma unroll
                    for (int u286 = 0; u286 < 2; ++u286) {
                        const int at287 = u286 * 128 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at288 = at287 % 4 * 8;
                        const int at289 = at287 / 4;
                        const int i290 = first284 + at289;
                        const int k291 = k283 + at288;
                        lw_copy<16>(&p0_right[stage285][at289][at288], &x1_bits[k291 + i290 * n15 + i9 * n17]);
                    }
                } else {
                    #pragma unroll 1
                    for (int u292 = 0; u292 < 2; ++u292) {
                        const int at293 = u292 * 128 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                        const int at294 = at293 % 4 * 8;
                        const int at295 = at293 / 4;
                        const int i296 = first284 + at295;
                        const int k297 = k283 + at294;
                        if (n15 % 8 == 0 && n17 % 8 == 0 && i296 < n14 && k297 + 8 <= n15) {
                            lw_copy<16>(&p0_right[stage285][at295][at294], &x1_bits[k297 + i296 * n15 + i9 * n17]);
                        } else {
                            #pragma unroll
                            for (int e298 = 0; e298 < 8; ++e298) {
                                if (i296 < n14 && (k297 + e298) < n15) {
                                    p0_right[stage285][at295][at294 + e298] = x1_bits[(k297 + e298) + i296 * n15 + i9 * n17];
                                } else {
                                    p0_right[stage285][at295][at294 + e298] = 0;
                                }
                            }
                        }
                    }
                }
                if (n15 > 64) {
                    if (n15 % 8 == 0 && n33 % 8 == 0 && at10 + 64 <= n31 && k283 + 32 <= n15) {
                        #pragma unroll
                        for (int u299 = 0; u299 < 2; ++u299) {
                            const int at300 = u299 * 128 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                            const int at301 = at300 % 4 * 8;
                            const int at302 = at300 / 4;
                            const int i303 = at10 + at302;
                            const int k304 = k283 + at301;
                            lw_copy<16>(&p0_left[stage285][at302][at301], &x0_bits[k304 + i303 * n15 + i9 * n33]);
                        }
                    } else {
                        #pragma unroll 1
                        for (int u305 = 0; u305 < 2; ++u305) {
                            const int at306 = u305 * 128 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                            const int at307 = at306 % 4 * 8;
                            const int at308 = at306 / 4;
                            const int i309 = at10 + at308;
                            const int k310 = k283 + at307;
                            if (n15 % 8 == 0 && n33 % 8 == 0 && i309 < n31 && k310 + 8 <= n15) {
                                lw_copy<16>(&p0_left[stage285][at308][at307], &x0_bits[k310 + i309 * n15 + i9 * n33]);
                            } else {
                                #pragma unroll
                                for (int e311 = 0; e311 < 8; ++e311) {
                                    if (i309 < n31 && (k310 + e311) < n15) {
                                        p0_left[stage285][at308][at307 + e311] = x0_bits[(k310 + e311) + i309 * n15 + i9 * n33];
                                    } else {
                                        p0_left[stage285][at308][at307 + e311] = 0;
                                    }
                                }
                            }
                        }
                    }
                }
            }
            lw_end_group();
            unsigned words263[2][1][4];
             {
                const int stage312 = n15 > 64 ? stage262 : (int)chunk265 / 32;
                #pragma unroll
                for (int k313 = 0; k313 < 2; ++k313) {
                    #pragma unroll
                    for (int g314 = 0; g314 < 1; ++g314) {
                        lw_words4(words263[k313][g314], &p0_left[stage312][(int)threadIdx.y * 16 + g314 * 16 + (int)threadIdx.x / 8 % 2 * 8 + (int)threadIdx.x % 8][k313 * 16 + (int)threadIdx.x / 16 * 8]);
                    }
                }
            }
            #pragma unroll
            for (int k315 = 0; k315 < 32; k315 += 16) {
                #pragma unroll
                for (int h316 = 0; h316 < 4; ++h316) {
                    unsigned right_now[4];
                    lw_words4(right_now, &p0_right[stage262][h316 * 16 + (int)threadIdx.x / 16 * 8 + (int)threadIdx.x % 8][k315 + (int)threadIdx.x / 8 % 2 * 8]);
                    #pragma unroll
                    for (int g317 = 0; g317 < 1; ++g317) {
                        lw_mma_f16(p0[(g317 * 2 + 0) * 16 + h316 * 4 + 0], p0[(g317 * 2 + 0) * 16 + h316 * 4 + 1], p0[(g317 * 2 + 1) * 16 + h316 * 4 + 0], p0[(g317 * 2 + 1) * 16 + h316 * 4 + 1], words263[k315 / 16][g317], right_now + 0);
                        lw_mma_f16(p0[(g317 * 2 + 0) * 16 + h316 * 4 + 2], p0[(g317 * 2 + 0) * 16 + h316 * 4 + 3], p0[(g317 * 2 + 1) * 16 + h316 * 4 + 2], p0[(g317 * 2 + 1) * 16 + h316 * 4 + 3], words263[k315 / 16][g317], right_now + 2);
                    }
                }
            }
            stage262 = stage285;
        }
        unsigned kept318[2][8];
        if (at10 + 64 <= n31 && first235 + 64 <= n14) {
            #pragma unroll
            for (int r319 = 0; r319 < 2; ++r319) {
                const int i321 = at10 + r319 * 8 + (int)threadIdx.y * 16 + (int)threadIdx.x / 4;
                #pragma unroll
                for (int t320 = 0; t320 < 8; ++t320) {
                    const int i322 = first235 + t320 * 8 + (int)threadIdx.x % 4 * 2;
                    const unsigned w323 = lw_pair_f16(p0[r319 * 16 + t320 * 2 + 0], p0[r319 * 16 + t320 * 2 + 1]);
                    const float v324 = 0x1.998p-3f;
                    const float v325 = 0x1.998p-3f;
                    const unsigned w326 = lw_pair_f16(v324, v325);
                    const unsigned w327 = lw_mul_pairs(w323, w326);
                    const unsigned w328 = lw_pair_f16(s4_rows[r319], s4_rows[r319]);
                    const unsigned w329 = lw_sub_pairs(w327, w328);
                    const float v330 = lw_first(w329);
                    const float v331 = lw_second(w329);
                    const unsigned w332 = lw_pair_f16(lw_exp_f16(v330), lw_exp_f16(v331));
                    const float v333 = lw_first(w332);
                    const float v334 = lw_second(w332);
                    const unsigned w335 = lw_pair_f16(lw_times(v333, over232_high[r319], over232_low[r319]), lw_times(v334, over232_high[r319], over232_low[r319]));
                    kept318[r319][t320] = w335;
                }
            }
        } else {
            #pragma unroll
            for (int r336 = 0; r336 < 2; ++r336) {
                const int i338 = at10 + r336 * 8 + (int)threadIdx.y * 16 + (int)threadIdx.x / 4;
                #pragma unroll
                for (int t337 = 0; t337 < 8; ++t337) {
                    const int i339 = first235 + t337 * 8 + (int)threadIdx.x % 4 * 2;
                    const unsigned w340 = lw_pair_f16(p0[r336 * 16 + t337 * 2 + 0], p0[r336 * 16 + t337 * 2 + 1]);
                    const float v341 = 0x1.998p-3f;
                    const float v342 = 0x1.998p-3f;
                    const unsigned w343 = lw_pair_f16(v341, v342);
                    const unsigned w344 = lw_mul_pairs(w340, w343);
                    const unsigned w345 = lw_pair_f16(s4_rows[r336], s4_rows[r336]);
                    const unsigned w346 = lw_sub_pairs(w344, w345);
                    const float v347 = lw_first(w346);
                    const float v348 = lw_second(w346);
                    const unsigned w349 = lw_pair_f16(lw_exp_f16(v347), lw_exp_f16(v348));
                    const float v350 = lw_first(w349);
                    const float v351 = lw_second(w349);
                    const unsigned w352 = lw_pair_f16(lw_times(v350, over232_high[r336], over232_low[r336]), lw_times(v351, over232_high[r336], over232_low[r336]));
                    const unsigned w353 = ((i338 < n31 && i339 + 0 < n14 ? w352 : 0u) & 0xffffu) | ((i338 < n31 && i339 + 1 < n14 ? w352 : 0u) & 0xffff0000u);
                    kept318[r336][t337] = w353;
                }
            }
        }
        lw_wait_groups<1>();
        __syncthreads();
        #pragma unroll
        for (int k354 = 0; k354 < 64; k354 += 16) {
            unsigned left_now[1][4];
            #pragma unroll
            for (int g355 = 0; g355 < 1; ++g355) {
                left_now[g355][0] = kept318[g355 * 2 + 0][k354 / 8 + 0];
                left_now[g355][1] = kept318[g355 * 2 + 1][k354 / 8 + 0];
                left_now[g355][2] = kept318[g355 * 2 + 0][k354 / 8 + 1];
                left_now[g355][3] = kept318[g355 * 2 + 1][k354 / 8 + 1];
            }
            #pragma unroll
            for (int h356 = 0; h356 < 4; ++h356) {
                unsigned right_now[4];
                lw_words4_across(right_now, &s11_sums_right[0][k354 + (int)threadIdx.x / 8 % 2 * 8 + (int)threadIdx.x % 8][h356 * 16 + (int)threadIdx.x / 16 * 8]);
                #pragma unroll
                for (int g357 = 0; g357 < 1; ++g357) {
                    lw_mma_f16(s11_sums[(g357 * 2 + 0) * 16 + h356 * 4 + 0], s11_sums[(g357 * 2 + 0) * 16 + h356 * 4 + 1], s11_sums[(g357 * 2 + 1) * 16 + h356 * 4 + 0], s11_sums[(g357 * 2 + 1) * 16 + h356 * 4 + 1], left_now[g357], right_now + 0);
                    lw_mma_f16(s11_sums[(g357 * 2 + 0) * 16 + h356 * 4 + 2], s11_sums[(g357 * 2 + 0) * 16 + h356 * 4 + 3], s11_sums[(g357 * 2 + 1) * 16 + h356 * 4 + 2], s11_sums[(g357 * 2 + 1) * 16 + h356 * 4 + 3], left_now[g357], right_now + 2);
                }
            }
        }
    }
    #pragma unroll
    for (int r358 = 0; r358 < 2; ++r358) {
        const int i360 = at10 + r358 * 8 + (int)threadIdx.y * 16 + (int)threadIdx.x / 4;
        #pragma unroll
        for (int g359 = 0; g359 < 8; ++g359) {
            const int i361 = at11 + g359 * 8 + (int)threadIdx.x % 4 * 2;
            if (n266 % 2 == 0 && n363 % 2 == 0 && i360 < n31 && i361 + 2 <= n266) {
                lw_pack<unsigned short, 2> pack364;
                #pragma unroll
                for (int e365 = 0; e365 < 2; ++e365) {
                    const float v366 = lw_from_f16(lw_to_f16((float)s11_sums[r358 * 16 + g359 * 2 + e365]));
                    pack364.at[e365] = lw_to_f16(v366);
                }
                *(lw_pack<unsigned short, 2>*)&y0[i361 + i360 * n266 + i9 * n363] = pack364;
            } else {
                #pragma unroll
                for (int e367 = 0; e367 < 2; ++e367) {
                    if (i360 < n31 && i361 + e367 < n266) {
                        const float v368 = lw_from_f16(lw_to_f16((float)s11_sums[r358 * 16 + g359 * 2 + e367]));
                        y0[(i361 + e367) + i360 * n266 + i9 * n363] = lw_to_f16(v368);
                    }
                }
            }
        }
    }
}
