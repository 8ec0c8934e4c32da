// kernel_0<<<floordiv(n + 31, 32)*floordiv(p + 31, 32), 32 * 8>>> (4 blocks now): f16[n, m], f16[m, p] -> f16[n, p]

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

#ifndef LW_EMULATED
__device__ __forceinline__ float lw_min(float x, float y) {
    float found;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(found) : "f"(x), "f"(y));
    return found;
}
#endif

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
    const int n17 = (int)(size_n);
    const int n25 = (int)(size_p);
    const int i3 = (int)((unsigned int)(int)blockIdx.x % (unsigned int)n2);
    const int i4 = (int)((unsigned int)(int)blockIdx.x / (unsigned int)n2);
    const int at5 = i4 * 32;
    const int at6 = i3 * 32;
    float s0_sums[4];
    const unsigned short* const x0_bits = x0;
    const unsigned short* const x1_bits = x1;
    LW_SHARED(lw_shared);
    unsigned short (*left)[32][40] = (unsigned short (*)[32][40])(lw_shared + 0ll);
    unsigned short (*right)[32][40] = (unsigned short (*)[32][40])(lw_shared + 10240ll);
    #pragma unroll
    for (int k8 = 0; k8 < 4; ++k8) {
        s0_sums[k8] = 0.0f;
    }
    #pragma unroll
    for (int u9 = 0; u9 < 3; ++u9) {
        if (u9 * 32 < n7) {
            #pragma unroll
            for (int u11 = 0; u11 < 1; ++u11) {
                const int at12 = u11 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                const int at13 = at12 % 8 * 4;
                const int at14 = at12 / 8;
                const int i15 = at5 + at14;
                const int k16 = u9 * 32 + at13;
                if (n7 % 4 == 0 && i15 < n17 && k16 + 4 <= n7) {
                    lw_copy<8>(&left[u9][at14][at13], &x0_bits[k16 + i15 * n7]);
                } else {
                    #pragma unroll
                    for (int e18 = 0; e18 < 4; ++e18) {
                        if (i15 < n17 && (k16 + e18) < n7) {
                            left[u9][at14][at13 + e18] = x0_bits[(k16 + e18) + i15 * n7];
                        } else {
                            left[u9][at14][at13 + e18] = 0;
                        }
                    }
                }
            }
            #pragma unroll
            for (int u19 = 0; u19 < 1; ++u19) {
                const int at20 = u19 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                const int at21 = at20 % 8 * 4;
                const int at22 = at20 / 8;
                const int i23 = at6 + at21;
                const int k24 = u9 * 32 + at22;
                if (n25 % 4 == 0 && i23 + 4 <= n25 && k24 < n7) {
                    lw_copy<8>(&right[u9][at22][at21], &x1_bits[i23 + k24 * n25]);
                } else {
                    #pragma unroll
                    for (int e26 = 0; e26 < 4; ++e26) {
                        if ((i23 + e26) < n25 && k24 < n7) {
                            right[u9][at22][at21 + e26] = x1_bits[(i23 + e26) + k24 * n25];
                        } else {
                            right[u9][at22][at21 + e26] = 0;
                        }
                    }
                }
            }
        }
        lw_end_group();
    }
    int stage27 = 0;
    for (int first10 = 0; first10 < n7; first10 += 32) {
        lw_wait_groups<2>();
        __syncthreads();
        const int stage28 = stage27 == 0 ? 3 : stage27 - 1;
        const int first29 = first10 + 96;
        if (first29 < n7) {
            #pragma unroll
            for (int u30 = 0; u30 < 1; ++u30) {
                const int at31 = u30 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                const int at32 = at31 % 8 * 4;
                const int at33 = at31 / 8;
                const int i34 = at5 + at33;
                const int k35 = first29 + at32;
                if (n7 % 4 == 0 && i34 < n17 && k35 + 4 <= n7) {
                    lw_copy<8>(&left[stage28][at33][at32], &x0_bits[k35 + i34 * n7]);
                } else {
                    #pragma unroll
                    for (int e36 = 0; e36 < 4; ++e36) {
                        if (i34 < n17 && (k35 + e36) < n7) {
                            left[stage28][at33][at32 + e36] = x0_bits[(k35 + e36) + i34 * n7];
                        } else {
                            left[stage28][at33][at32 + e36] = 0;
                        }
                    }
                }
            }
            #pragma unroll
            for (int u37 = 0; u37 < 1; ++u37) {
                const int at38 = u37 * 256 + (int)threadIdx.y * 32 + (int)threadIdx.x;
                const int at39 = at38 % 8 * 4;
                const int at40 = at38 / 8;
                const int i41 = at6 + at39;
                const int k42 = first29 + at40;
                if (n25 % 4 == 0 && i41 + 4 <= n25 && k42 < n7) {
                    lw_copy<8>(&right[stage28][at40][at39], &x1_bits[i41 + k42 * n25]);
                } else {
                    #pragma unroll
                    for (int e43 = 0; e43 < 4; ++e43) {
                        if ((i41 + e43) < n25 && k42 < n7) {
                            right[stage28][at40][at39 + e43] = x1_bits[(i41 + e43) + k42 * n25];
                        } else {
                            right[stage28][at40][at39 + e43] = 0;
                        }
                    }
                }
            }
        }
        lw_end_group();
        #pragma unroll
        for (int k44 = 0; k44 < 32; k44 += 16) {
            unsigned left_now[1][4];
            #pragma unroll
            for (int g45 = 0; g45 < 1; ++g45) {
                lw_words4(left_now[g45], &left[stage27][(int)threadIdx.y % 2 * 16 + g45 * 16 + (int)threadIdx.x / 8 % 2 * 8 + (int)threadIdx.x % 8][k44 + (int)threadIdx.x / 16 * 8]);
            }
            unsigned right_now[1][2];
            #pragma unroll
            for (int g46 = 0; g46 < 1; ++g46) {
                lw_words2_across(right_now[g46], &right[stage27][k44 + (int)threadIdx.x / 8 % 2 * 8 + (int)threadIdx.x % 8][(int)threadIdx.y / 2 * 8 + g46 * 8 + 0]);
            }
            #pragma unroll
            for (int r47 = 0; r47 < 1; ++r47) {
                #pragma unroll
                for (int c48 = 0; c48 < 1; ++c48) {
                    lw_mma_f16(s0_sums[(r47 * 2 + 0) * 2 + c48 * 2 + 0], s0_sums[(r47 * 2 + 0) * 2 + c48 * 2 + 1], s0_sums[(r47 * 2 + 1) * 2 + c48 * 2 + 0], s0_sums[(r47 * 2 + 1) * 2 + c48 * 2 + 1], left_now[r47], right_now[c48]);
                }
            }
        }
        stage27 = stage27 == 3 ? 0 : stage27 + 1;
    }
    __syncthreads();
    #pragma unroll
    for (int r49 = 0; r49 < 2; ++r49) {
        const int i51 = at5 + r49 / 1 * 8 + (int)threadIdx.y % 2 * 16 + (int)threadIdx.x / 4 + r49 % 1;
        #pragma unroll
        for (int g50 = 0; g50 < 1; ++g50) {
            const int i52 = at6 + g50 * 8 + (int)threadIdx.y / 2 * 8 + (int)threadIdx.x % 4 * 2;
            if (n25 % 2 == 0 && i51 < n17 && i52 + 2 <= n25) {
                lw_pack<unsigned short, 2> pack53;
                #pragma unroll
                for (int e54 = 0; e54 < 2; ++e54) {
                    const float v55 = s0_sums[r49 * 2 + g50 * 2 + e54];
                    const float v56 = lw_from_f16(lw_to_f16((float)v55));
                    const float v57 = lw_min(v56, 9.0f);
                    pack53.at[e54] = lw_to_f16(v57);
                }
                *(lw_pack<unsigned short, 2>*)&y0[i52 + i51 * n25] = pack53;
            } else {
                #pragma unroll
                for (int e58 = 0; e58 < 2; ++e58) {
                    if (i51 < n17 && i52 + e58 < n25) {
                        const float v59 = s0_sums[r49 * 2 + g50 * 2 + e58];
                        const float v60 = lw_from_f16(lw_to_f16((float)v59));
                        const float v61 = lw_min(v60, 9.0f);
                        y0[(i52 + e58) + i51 * n25] = lw_to_f16(v61);
                    }
                }
            }
        }
    }
}
