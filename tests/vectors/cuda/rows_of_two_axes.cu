// kernel_0<<<floordiv(n + 7, 8), 32 * 8>>> (3 blocks now): f32[n, m, k] -> f32[n, m, k]

template <class T, int N> struct alignas(sizeof(T) * N) lw_pack { T at[N]; };

__device__ __forceinline__ void lw_add(float& sum, float& lost, float x) {
    const float next = sum + x;
    const float part = next - sum;
    lost += (sum - (next - part)) + (x - part);
    sum = next;
}
__device__ __forceinline__ float lw_added(float sum, float lost) { return lost - lost == 0 && lost != 0 ? sum + lost : sum; }

extern "C" __global__ void __launch_bounds__(256, 1) kernel_0(
        const float* __restrict__ x0,
        float* y0,
        long long size_n,
        long long size_m,
        long long size_k,
        long long* error) {
    const int n0 = (int)(size_n);
    const long long n4 = size_k * size_m;
    const int n5 = (int)(n4);
    const int at1 = (int)blockIdx.x * 8 + (int)threadIdx.y;
    const bool v2 = at1 < n0;
    const int at3 = v2 ? at1 : n0 - 1;
    float tx0[16];
    const bool n6 = n5 % 4 == 0;
    const int n7 = n6 ? (int)threadIdx.x * 4 : (int)threadIdx.x;
    const int n8 = n6 ? 1 : 32;
    const int n9 = n7 < n5 ? n6 ? (n5 - n7 + 127) / 128 * 4 : (n5 - n7 + 31) / 32 : 0;
    lw_pack<float, 4> pack10[4];
    if (n6) {
        #pragma unroll
        for (int u11 = 0; u11 < 4; ++u11) {
            if (u11 * 4 < n9) {
                const int at12 = u11 * 128 + n7;
                pack10[u11] = *(const lw_pack<float, 4>*)&x0[at12 + at3 * n5];
            }
        }
    } else {
        #pragma unroll
        for (int u13 = 0; u13 < 4; ++u13) {
            #pragma unroll
            for (int e14 = 0; e14 < 4; ++e14) {
                if (u13 * 4 + e14 < n9) {
                    const int at15 = u13 * 128 + n7 + e14 * n8;
                    pack10[u13].at[e14] = x0[at15 + at3 * n5];
                }
            }
        }
    }
    #pragma unroll
    for (int u16 = 0; u16 < 4; ++u16) {
        #pragma unroll
        for (int e17 = 0; e17 < 4; ++e17) {
            if (u16 * 4 + e17 < n9) {
                const int at18 = u16 * 128 + n7 + e17 * n8;
                const float v19 = pack10[u16].at[e17];
                tx0[u16 * 4 + e17] = v19;
            }
        }
    }
    float acc20[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    float acc21[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    #pragma unroll
    for (int u22 = 0; u22 < 4; ++u22) {
        #pragma unroll
        for (int e23 = 0; e23 < 4; ++e23) {
            if (u22 * 4 + e23 < n9) {
                const int at24 = u22 * 128 + n7 + e23 * n8;
                const float v25 = tx0[u22 * 4 + e23];
                const float v26 = v25 * v25;
                lw_add(acc20[e23], acc21[e23], v26);
            }
        }
    }
    for (int at27 = 512 + (int)threadIdx.x; at27 < n5; at27 += 32) {
        const float v28 = x0[at27 + at3 * n5];
        const float v29 = v28 * v28;
        lw_add(acc20[0], acc21[0], v29);
    }
    float all30 = lw_added(acc20[0], acc21[0]);
    all30 = all30 + lw_added(acc20[1], acc21[1]);
    all30 = all30 + lw_added(acc20[2], acc21[2]);
    all30 = all30 + lw_added(acc20[3], acc21[3]);
    #pragma unroll
    for (int d31 = 16; d31 > 0; d31 /= 2) {
        float v32 = __shfl_xor_sync(0xffffffffu, all30, d31);
        all30 = all30 + v32;
    }
    const float v33 = all30;
    #pragma unroll
    for (int u34 = 0; u34 < 4; ++u34) {
        lw_pack<float, 4> pack35;
        #pragma unroll
        for (int e36 = 0; e36 < 4; ++e36) {
            if (u34 * 4 + e36 < n9) {
                const int at37 = u34 * 128 + n7 + e36 * n8;
                const float v38 = tx0[u34 * 4 + e36];
                const float v39 = (float)n4;
                const float v40 = v33 / v39;
                const float v41 = sqrtf(v40);
                const float v42 = v38 / v41;
                pack35.at[e36] = v42;
            }
        }
        if (n6) {
            if (u34 * 4 < n9) {
                const int at43 = u34 * 128 + n7;
                if (v2) {
                    *(lw_pack<float, 4>*)&y0[at43 + at3 * n5] = pack35;
                }
            }
        } else {
            #pragma unroll
            for (int e44 = 0; e44 < 4; ++e44) {
                if (u34 * 4 + e44 < n9) {
                    const int at45 = u34 * 128 + n7 + e44 * n8;
                    if (v2) {
                        y0[at45 + at3 * n5] = pack35.at[e44];
                    }
                }
            }
        }
    }
    for (int at46 = 512 + (int)threadIdx.x; at46 < n5; at46 += 32) {
        if (v2) {
            const float v47 = x0[at46 + at3 * n5];
            const float v48 = (float)n4;
            const float v49 = v33 / v48;
            const float v50 = sqrtf(v49);
            const float v51 = v47 / v50;
            y0[at46 + at3 * n5] = v51;
        }
    }
}
