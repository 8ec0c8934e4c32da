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
    const int n10 = (int)(size_k);
    const int at1 = (int)blockIdx.x * 8 + (int)threadIdx.y;
    const bool v2 = at1 < n0;
    const int at3 = v2 ? at1 : n0 - 1;
    float tx0[16];
    const bool n6 = n5 % 4 == 0;
    const int n7 = n6 ? (int)threadIdx.x * 4 : (int)threadIdx.x;
    const int n8 = n6 ? 1 : 32;
    const int n9 = n7 < n5 ? n6 ? (n5 - n7 + 127) / 128 * 4 : (n5 - n7 + 31) / 32 : 0;
    lw_pack<float, 4> pack11[4];
    if (n6 && n10 % 4 == 0) {
        #pragma unroll
        for (int u12 = 0; u12 < 4; ++u12) {
            if (u12 * 4 < n9) {
                const int at13 = u12 * 128 + n7;
                const int i14 = (int)((unsigned int)at13 % (unsigned int)n10);
                const int i15 = (int)((unsigned int)at13 / (unsigned int)n10);
                pack11[u12] = *(const lw_pack<float, 4>*)&x0[i14 + i15 * n10 + at3 * n5];
            }
        }
    } else {
        #pragma unroll
        for (int u16 = 0; u16 < 4; ++u16) {
            #pragma unroll
            for (int e17 = 0; e17 < 4; ++e17) {
                if (u16 * 4 + e17 < n9) {
                    const int at18 = u16 * 128 + n7 + e17 * n8;
                    const int i19 = (int)((unsigned int)at18 % (unsigned int)n10);
                    const int i20 = (int)((unsigned int)at18 / (unsigned int)n10);
                    pack11[u16].at[e17] = x0[i19 + i20 * n10 + at3 * n5];
                }
            }
        }
    }
    #pragma unroll
    for (int u21 = 0; u21 < 4; ++u21) {
        #pragma unroll
        for (int e22 = 0; e22 < 4; ++e22) {
            if (u21 * 4 + e22 < n9) {
                const int at23 = u21 * 128 + n7 + e22 * n8;
                const int i24 = (int)((unsigned int)at23 % (unsigned int)n10);
                const int i25 = (int)((unsigned int)at23 / (unsigned int)n10);
                const float v26 = pack11[u21].at[e22];
                tx0[u21 * 4 + e22] = v26;
            }
        }
    }
    float acc27[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    float acc28[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    #pragma unroll
    for (int u29 = 0; u29 < 4; ++u29) {
        #pragma unroll
        for (int e30 = 0; e30 < 4; ++e30) {
            if (u29 * 4 + e30 < n9) {
                const int at31 = u29 * 128 + n7 + e30 * n8;
                const int i32 = (int)((unsigned int)at31 % (unsigned int)n10);
                const int i33 = (int)((unsigned int)at31 / (unsigned int)n10);
                const float v34 = tx0[u29 * 4 + e30];
                const float v35 = v34 * v34;
                lw_add(acc27[e30], acc28[e30], v35);
            }
        }
    }
    for (int at36 = 512 + (int)threadIdx.x; at36 < n5; at36 += 32) {
        const int i37 = (int)((unsigned int)at36 % (unsigned int)n10);
        const int i38 = (int)((unsigned int)at36 / (unsigned int)n10);
        const float v39 = x0[i37 + i38 * n10 + at3 * n5];
        const float v40 = v39 * v39;
        lw_add(acc27[0], acc28[0], v40);
    }
    float all41 = lw_added(acc27[0], acc28[0]);
    all41 = all41 + lw_added(acc27[1], acc28[1]);
    all41 = all41 + lw_added(acc27[2], acc28[2]);
    all41 = all41 + lw_added(acc27[3], acc28[3]);
    #pragma unroll
    for (int d42 = 16; d42 > 0; d42 /= 2) {
        float v43 = __shfl_xor_sync(0xffffffffu, all41, d42);
        all41 = all41 + v43;
    }
    const float v44 = all41;
    #pragma unroll
    for (int u45 = 0; u45 < 4; ++u45) {
        lw_pack<float, 4> pack46;
        #pragma unroll
        for (int e47 = 0; e47 < 4; ++e47) {
            if (u45 * 4 + e47 < n9) {
                const int at48 = u45 * 128 + n7 + e47 * n8;
                const int i49 = (int)((unsigned int)at48 % (unsigned int)n10);
                const int i50 = (int)((unsigned int)at48 / (unsigned int)n10);
                const float v51 = tx0[u45 * 4 + e47];
                const float v52 = (float)n4;
                const float v53 = v44 / v52;
                const float v54 = sqrtf(v53);
                const float v55 = v51 / v54;
                pack46.at[e47] = v55;
            }
        }
        if (n6 && n10 % 4 == 0) {
            if (u45 * 4 < n9) {
                const int at56 = u45 * 128 + n7;
                const int i57 = (int)((unsigned int)at56 % (unsigned int)n10);
                const int i58 = (int)((unsigned int)at56 / (unsigned int)n10);
                if (v2) {
                    *(lw_pack<float, 4>*)&y0[i57 + i58 * n10 + at3 * n5] = pack46;
                }
            }
        } else {
            #pragma unroll
            for (int e59 = 0; e59 < 4; ++e59) {
                if (u45 * 4 + e59 < n9) {
                    const int at60 = u45 * 128 + n7 + e59 * n8;
                    const int i61 = (int)((unsigned int)at60 % (unsigned int)n10);
                    const int i62 = (int)((unsigned int)at60 / (unsigned int)n10);
                    if (v2) {
                        y0[i61 + i62 * n10 + at3 * n5] = pack46.at[e59];
                    }
                }
            }
        }
    }
    for (int at63 = 512 + (int)threadIdx.x; at63 < n5; at63 += 32) {
        const int i64 = (int)((unsigned int)at63 % (unsigned int)n10);
        const int i65 = (int)((unsigned int)at63 / (unsigned int)n10);
        if (v2) {
            const float v66 = x0[i64 + i65 * n10 + at3 * n5];
            const float v67 = (float)n4;
            const float v68 = v44 / v67;
            const float v69 = sqrtf(v68);
            const float v70 = v66 / v69;
            y0[i64 + i65 * n10 + at3 * n5] = v70;
        }
    }
}
