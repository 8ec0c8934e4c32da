// kernel_0<<<floordiv(m + 31, 32)*floordiv(q + 31, 32)*n, 16 * 16>>> (4 blocks now): i64[n, m, k], i64[n, q, k] -> i64[n, m, q]

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

extern "C" __global__ void __launch_bounds__(256, 1) kernel_0(
        const long long* __restrict__ x0,
        const long long* __restrict__ x1,
        long long* y0,
        long long size_n,
        long long size_m,
        long long size_k,
        long long size_q,
        long long* error) {
    const long long n0 = size_q + 31ll;
    const long long n1 = lw_size_divide(n0, 32ll);
    const int n2 = (int)(n1);
    const long long n5 = size_m + 31ll;
    const long long n6 = lw_size_divide(n5, 32ll);
    const int n7 = (int)(n6);
    const int n12 = (int)(size_k);
    const int n22 = (int)(size_m);
    const long long n23 = size_k * size_m;
    const int n24 = (int)(n23);
    const int n31 = (int)(size_q);
    const long long n32 = size_k * size_q;
    const int n33 = (int)(n32);
    const long long n58 = size_m * size_q;
    const int n59 = (int)(n58);
    const int i3 = (int)((unsigned int)(int)blockIdx.x % (unsigned int)n2);
    const int i4 = (int)((unsigned int)(int)blockIdx.x / (unsigned int)n2);
    const int i8 = (int)((unsigned int)i4 % (unsigned int)n7);
    const int i9 = (int)((unsigned int)i4 / (unsigned int)n7);
    const int at10 = i8 * 32;
    const int at11 = i3 * 32;
    long long s0_sums[4];
    LW_SHARED(lw_shared);
    long long (*left)[16][34] = (long long (*)[16][34])(lw_shared + 0ll);
    long long (*right)[16][34] = (long long (*)[16][34])(lw_shared + 17408ll);
    #pragma unroll
    for (int k13 = 0; k13 < 4; ++k13) {
        s0_sums[k13] = 0ll;
    }
    #pragma unroll
    for (int u14 = 0; u14 < 3; ++u14) {
        if (u14 * 16 < n12) {
            #pragma unroll
            for (int u16 = 0; u16 < 2; ++u16) {
                const int at17 = u16 * 256 + (int)threadIdx.y * 16 + (int)threadIdx.x;
                const int at18 = at17 % 16 * 1;
                const int at19 = at17 / 16;
                const int i20 = at10 + at19;
                const int k21 = u14 * 16 + at18;
                if (i20 < n22 && (k21) < n12) {
                    lw_copy<8>(&left[u14][at18][at19], &x0[(k21) + i20 * n12 + i9 * n24]);
                } else {
                    left[u14][at18][at19] = 0;
                }
            }
            #pragma unroll
            for (int u25 = 0; u25 < 2; ++u25) {
                const int at26 = u25 * 256 + (int)threadIdx.y * 16 + (int)threadIdx.x;
                const int at27 = at26 % 16 * 1;
                const int at28 = at26 / 16;
                const int i29 = at11 + at28;
                const int k30 = u14 * 16 + at27;
                if (i29 < n31 && (k30) < n12) {
                    lw_copy<8>(&right[u14][at27][at28], &x1[(k30) + i29 * n12 + i9 * n33]);
                } else {
                    right[u14][at27][at28] = 0;
                }
            }
        }
        lw_end_group();
    }
    int stage34 = 0;
    for (int first15 = 0; first15 < n12; first15 += 16) {
        lw_wait_groups<2>();
        __syncthreads();
        const int stage35 = stage34 == 0 ? 3 : stage34 - 1;
        const int first36 = first15 + 48;
        if (first36 < n12) {
            #pragma unroll
            for (int u37 = 0; u37 < 2; ++u37) {
                const int at38 = u37 * 256 + (int)threadIdx.y * 16 + (int)threadIdx.x;
                const int at39 = at38 % 16 * 1;
                const int at40 = at38 / 16;
                const int i41 = at10 + at40;
                const int k42 = first36 + at39;
                if (i41 < n22 && (k42) < n12) {
                    lw_copy<8>(&left[stage35][at39][at40], &x0[(k42) + i41 * n12 + i9 * n24]);
                } else {
                    left[stage35][at39][at40] = 0;
                }
            }
            #pragma unroll
            for (int u43 = 0; u43 < 2; ++u43) {
                const int at44 = u43 * 256 + (int)threadIdx.y * 16 + (int)threadIdx.x;
                const int at45 = at44 % 16 * 1;
                const int at46 = at44 / 16;
                const int i47 = at11 + at46;
                const int k48 = first36 + at45;
                if (i47 < n31 && (k48) < n12) {
                    lw_copy<8>(&right[stage35][at45][at46], &x1[(k48) + i47 * n12 + i9 * n33]);
                } else {
                    right[stage35][at45][at46] = 0;
                }
            }
        }
        lw_end_group();
        #pragma unroll 4
        for (int k49 = 0; k49 < 16; ++k49) {
            lw_pack<long long, 2> left_now[1];
            #pragma unroll
            for (int g50 = 0; g50 < 1; ++g50) {
                left_now[g50] = *(const lw_pack<long long, 2>*)&left[stage34][k49][g50 * 32 + (int)threadIdx.y * 2];
            }
            lw_pack<long long, 2> right_now[1];
            #pragma unroll
            for (int g51 = 0; g51 < 1; ++g51) {
                right_now[g51] = *(const lw_pack<long long, 2>*)&right[stage34][k49][g51 * 32 + (int)threadIdx.x * 2];
            }
            #pragma unroll
            for (int r52 = 0; r52 < 2; ++r52) {
                #pragma unroll
                for (int c53 = 0; c53 < 2; ++c53) {
                    s0_sums[r52 * 2 + c53] = (long long)((unsigned long long)s0_sums[r52 * 2 + c53] + (unsigned long long)(long long)((unsigned long long)left_now[r52 / 2].at[r52 % 2] * (unsigned long long)right_now[c53 / 2].at[c53 % 2]));
                }
            }
        }
        stage34 = stage34 == 3 ? 0 : stage34 + 1;
    }
    __syncthreads();
    #pragma unroll
    for (int r54 = 0; r54 < 2; ++r54) {
        const int i56 = at10 + r54 / 2 * 32 + (int)threadIdx.y * 2 + r54 % 2;
        #pragma unroll
        for (int g55 = 0; g55 < 1; ++g55) {
            const int i57 = at11 + g55 * 32 + (int)threadIdx.x * 2;
            if (n31 % 2 == 0 && n59 % 2 == 0 && i56 < n22 && i57 + 2 <= n31) {
                lw_pack<long long, 2> pack60;
                #pragma unroll
                for (int e61 = 0; e61 < 2; ++e61) {
                    const long long v62 = s0_sums[r54 * 2 + g55 * 2 + e61];
                    const long long v63 = (long long)((unsigned long long)v62 * (unsigned long long)2ll);
                    pack60.at[e61] = v63;
                }
                *(lw_pack<long long, 2>*)&y0[i57 + i56 * n31 + i9 * n59] = pack60;
            } else {
                #pragma unroll
                for (int e64 = 0; e64 < 2; ++e64) {
                    if (i56 < n22 && i57 + e64 < n31) {
                        const long long v65 = s0_sums[r54 * 2 + g55 * 2 + e64];
                        const long long v66 = (long long)((unsigned long long)v65 * (unsigned long long)2ll);
                        y0[(i57 + e64) + i56 * n31 + i9 * n59] = v66;
                    }
                }
            }
        }
    }
}
