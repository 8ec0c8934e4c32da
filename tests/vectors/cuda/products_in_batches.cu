// kernel_0<<<floordiv(m + 31, 32)*floordiv(q + 31, 32)*n, 16 * 16>>> (4 blocks now): i64[n, m, k], i64[n, q, k] -> i64[n, m, q]

__device__ __forceinline__ long long lw_size_divide(long long a, long long b) {
    return b == 0 ? 0 : a / b - (a % b != 0 && (a % b ^ b) < 0);
}

template <class T, int N> struct alignas(sizeof(T) * N) lw_pack { T at[N]; };

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
    const int n23 = (int)(size_m);
    const long long n24 = size_k * size_m;
    const int n25 = (int)(n24);
    const int n37 = (int)(size_q);
    const long long n38 = size_k * size_q;
    const int n39 = (int)(n38);
    const long long n64 = size_m * size_q;
    const int n65 = (int)(n64);
    const int i3 = (int)((unsigned int)(int)blockIdx.x % (unsigned int)n2);
    const int i4 = (int)((unsigned int)(int)blockIdx.x / (unsigned int)n2);
    const int i8 = (int)((unsigned int)i4 % (unsigned int)n7);
    const int i9 = (int)((unsigned int)i4 / (unsigned int)n7);
    const int at10 = i8 * 32;
    const int at11 = i3 * 32;
    long long s0_sums[4];
    __shared__ __align__(16) long long left[2][16][34];
    long long left_next[2];
    __shared__ __align__(16) long long right[2][16][34];
    long long right_next[2];
    #pragma unroll
    for (int k13 = 0; k13 < 4; ++k13) {
        s0_sums[k13] = 0ll;
    }
    int stage14 = 0;
    for (int first15 = -16; first15 < n12; first15 += 16) {
        const bool more16 = first15 + 16 < n12;
        if (more16) {
            #pragma unroll
            for (int u17 = 0; u17 < 1; ++u17) {
                const int at18 = u17 * 256 + (int)threadIdx.y * 16 + (int)threadIdx.x;
                const int at19 = at18 % 8 * 2;
                const int at20 = at18 / 8;
                const int i21 = at10 + at20;
                const int k22 = first15 + 16 + at19;
                if (n12 % 2 == 0 && n25 % 2 == 0 && i21 < n23 && k22 + 2 <= n12) {
                    lw_pack<long long, 2> pack26;
                    pack26 = *(const lw_pack<long long, 2>*)&x0[k22 + i21 * n12 + i9 * n25];
                    #pragma unroll
                    for (int e27 = 0; e27 < 2; ++e27) {
                        const long long v28 = pack26.at[e27];
                        left_next[u17 * 2 + e27] = v28;
                    }
                } else {
                    #pragma unroll
                    for (int e29 = 0; e29 < 2; ++e29) {
                        left_next[u17 * 2 + e29] = 0;
                        if (i21 < n23 && (k22 + e29) < n12) {
                            const long long v30 = x0[(k22 + e29) + i21 * n12 + i9 * n25];
                            left_next[u17 * 2 + e29] = v30;
                        }
                    }
                }
            }
            #pragma unroll
            for (int u31 = 0; u31 < 1; ++u31) {
                const int at32 = u31 * 256 + (int)threadIdx.y * 16 + (int)threadIdx.x;
                const int at33 = at32 % 8 * 2;
                const int at34 = at32 / 8;
                const int i35 = at11 + at34;
                const int k36 = first15 + 16 + at33;
                if (n12 % 2 == 0 && n39 % 2 == 0 && i35 < n37 && k36 + 2 <= n12) {
                    lw_pack<long long, 2> pack40;
                    pack40 = *(const lw_pack<long long, 2>*)&x1[k36 + i35 * n12 + i9 * n39];
                    #pragma unroll
                    for (int e41 = 0; e41 < 2; ++e41) {
                        const long long v42 = pack40.at[e41];
                        right_next[u31 * 2 + e41] = v42;
                    }
                } else {
                    #pragma unroll
                    for (int e43 = 0; e43 < 2; ++e43) {
                        right_next[u31 * 2 + e43] = 0;
                        if (i35 < n37 && (k36 + e43) < n12) {
                            const long long v44 = x1[(k36 + e43) + i35 * n12 + i9 * n39];
                            right_next[u31 * 2 + e43] = v44;
                        }
                    }
                }
            }
        }
        if (first15 >= 0) {
            #pragma unroll 4
            for (int k45 = 0; k45 < 16; ++k45) {
                lw_pack<long long, 2> left_now[1];
                #pragma unroll
                for (int g46 = 0; g46 < 1; ++g46) {
                    left_now[g46] = *(const lw_pack<long long, 2>*)&left[stage14][k45][g46 * 32 + (int)threadIdx.y * 2];
                }
                lw_pack<long long, 2> right_now[1];
                #pragma unroll
                for (int g47 = 0; g47 < 1; ++g47) {
                    right_now[g47] = *(const lw_pack<long long, 2>*)&right[stage14][k45][g47 * 32 + (int)threadIdx.x * 2];
                }
                #pragma unroll
                for (int r48 = 0; r48 < 2; ++r48) {
                    #pragma unroll
                    for (int c49 = 0; c49 < 2; ++c49) {
                        s0_sums[r48 * 2 + c49] = (long long)((unsigned long long)s0_sums[r48 * 2 + c49] + (unsigned long long)(long long)((unsigned long long)left_now[r48 / 2].at[r48 % 2] * (unsigned long long)right_now[c49 / 2].at[c49 % 2]));
                    }
                }
            }
        }
        stage14 = 1 - stage14;
        if (more16) {
            #pragma unroll
            for (int u50 = 0; u50 < 1; ++u50) {
                const int at52 = u50 * 256 + (int)threadIdx.y * 16 + (int)threadIdx.x;
                const int at53 = at52 % 8 * 2;
                const int at54 = at52 / 8;
                #pragma unroll
                for (int e51 = 0; e51 < 2; ++e51) {
                    left[stage14][at53 + e51][at54] = left_next[u50 * 2 + e51];
                }
            }
            #pragma unroll
            for (int u55 = 0; u55 < 1; ++u55) {
                const int at57 = u55 * 256 + (int)threadIdx.y * 16 + (int)threadIdx.x;
                const int at58 = at57 % 8 * 2;
                const int at59 = at57 / 8;
                #pragma unroll
                for (int e56 = 0; e56 < 2; ++e56) {
                    right[stage14][at58 + e56][at59] = right_next[u55 * 2 + e56];
                }
            }
        }
        __syncthreads();
    }
    #pragma unroll
    for (int r60 = 0; r60 < 2; ++r60) {
        const int i62 = at10 + r60 / 2 * 32 + (int)threadIdx.y * 2 + r60 % 2;
        #pragma unroll
        for (int g61 = 0; g61 < 1; ++g61) {
            const int i63 = at11 + g61 * 32 + (int)threadIdx.x * 2;
            if (n37 % 2 == 0 && n65 % 2 == 0 && i62 < n23 && i63 + 2 <= n37) {
                lw_pack<long long, 2> pack66;
                #pragma unroll
                for (int e67 = 0; e67 < 2; ++e67) {
                    const long long v68 = s0_sums[r60 * 2 + g61 * 2 + e67];
                    const long long v69 = (long long)((unsigned long long)v68 * (unsigned long long)2ll);
                    pack66.at[e67] = v69;
                }
                *(lw_pack<long long, 2>*)&y0[i63 + i62 * n37 + i9 * n65] = pack66;
            } else {
                #pragma unroll
                for (int e70 = 0; e70 < 2; ++e70) {
                    if (i62 < n23 && i63 + e70 < n37) {
                        const long long v71 = s0_sums[r60 * 2 + g61 * 2 + e70];
                        const long long v72 = (long long)((unsigned long long)v71 * (unsigned long long)2ll);
                        y0[(i63 + e70) + i62 * n37 + i9 * n65] = v72;
                    }
                }
            }
        }
    }
}
