// kernel_0<<<floordiv(n + 7, 8), 32 * 8>>> (3 blocks now): f32[n, m, k] -> f32[n, m, k]

template <class T, int N> struct alignas(sizeof(T) * N) lw_pack { T at[N]; };

__device__ __forceinline__ void lw_add(float& sum, float& lost, float x) {
    const float next = sum + x;
    const float part = next - sum;
    lost += (sum - (next - part)) + (x - part);
    sum = next;
}
__device__ __forceinline__ float lw_added(float sum, float lost) { return lost - lost == 0 && lost != 0 ? sum + lost : sum; }

__device__ __forceinline__ float lw_over(float x, float y, float r, bool there, bool& rare) {
    rare |= there & !(((fabsf(x) >= 0x1p-100f) & (fabsf(x) <= 0x1p+100f)) | (__float_as_int(x) == 0));
    const float first = x * r;
    const float second = fmaf(fmaf(-first, y, x), r, first);
    return fmaf(fmaf(-second, y, x), r, second);
}
__device__ __forceinline__ bool lw_is_near(float y) { return fabsf(y) >= 0x1p-20f && fabsf(y) <= 0x1p+24f; }

extern "C" __global__ void __launch_bounds__(256, 4) kernel_0(
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
            const bool there18 = u16 * 4 + e17 < n9;
            const int at19 = u16 * 128 + n7 + e17 * n8;
            const float v20 = pack10[u16].at[e17];
            tx0[u16 * 4 + e17] = v20;
        }
    }
    float acc21[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    float acc22[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    #pragma unroll
    for (int u23 = 0; u23 < 4; ++u23) {
        #pragma unroll
        for (int e24 = 0; e24 < 4; ++e24) {
            const bool there25 = u23 * 4 + e24 < n9;
            const int at26 = u23 * 128 + n7 + e24 * n8;
            const float v27 = tx0[u23 * 4 + e24];
            const float v28 = v27 * v27;
            if (there25) {
                acc21[e24] = acc21[e24] + v28;
            }
        }
    }
    for (int at29 = 512 + (int)threadIdx.x; at29 < n5; at29 += 32) {
        const float v30 = x0[at29 + at3 * n5];
        const float v31 = v30 * v30;
        lw_add(acc21[0], acc22[0], v31);
    }
    float all32 = lw_added(acc21[0], acc22[0]);
    all32 = all32 + lw_added(acc21[1], acc22[1]);
    all32 = all32 + lw_added(acc21[2], acc22[2]);
    all32 = all32 + lw_added(acc21[3], acc22[3]);
    #pragma unroll
    for (int d33 = 16; d33 > 0; d33 /= 2) {
        float v34 = __shfl_xor_sync(0xffffffffu, all32, d33);
        all32 = all32 + v34;
    }
    const float v35 = all32;
    const float v36 = (float)n4;
    const float v37 = v35 / v36;
    const float v38 = sqrtf(v37);
    const float v39 = 1 / v38;
    const bool v40 = lw_is_near(v38);
    bool rare41 = !(v40);
    #pragma unroll
    for (int u42 = 0; u42 < 4; ++u42) {
        lw_pack<float, 4> pack43;
        #pragma unroll
        for (int e44 = 0; e44 < 4; ++e44) {
            const bool there45 = u42 * 4 + e44 < n9;
            const int at46 = u42 * 128 + n7 + e44 * n8;
            const float v47 = tx0[u42 * 4 + e44];
            const float v48 = lw_over(v47, v38, v39, there45, rare41);
            pack43.at[e44] = v48;
        }
        if (n6) {
            if (u42 * 4 < n9) {
                const int at49 = u42 * 128 + n7;
                if (v2) {
                    *(lw_pack<float, 4>*)&y0[at49 + at3 * n5] = pack43;
                }
            }
        } else {
            #pragma unroll
            for (int e50 = 0; e50 < 4; ++e50) {
                if (u42 * 4 + e50 < n9) {
                    const int at51 = u42 * 128 + n7 + e50 * n8;
                    if (v2) {
                        y0[at51 + at3 * n5] = pack43.at[e50];
                    }
                }
            }
        }
    }
    if (rare41) {
        #pragma unroll
        for (int u52 = 0; u52 < 4; ++u52) {
            lw_pack<float, 4> pack53;
            #pragma unroll
            for (int e54 = 0; e54 < 4; ++e54) {
                const bool there55 = u52 * 4 + e54 < n9;
                const int at56 = u52 * 128 + n7 + e54 * n8;
                const float v57 = tx0[u52 * 4 + e54];
                const float v58 = v57 / v38;
                pack53.at[e54] = v58;
            }
            if (n6) {
                if (u52 * 4 < n9) {
                    const int at59 = u52 * 128 + n7;
                    if (v2) {
                        *(lw_pack<float, 4>*)&y0[at59 + at3 * n5] = pack53;
                    }
                }
            } else {
                #pragma unroll
                for (int e60 = 0; e60 < 4; ++e60) {
                    if (u52 * 4 + e60 < n9) {
                        const int at61 = u52 * 128 + n7 + e60 * n8;
                        if (v2) {
                            y0[at61 + at3 * n5] = pack53.at[e60];
                        }
                    }
                }
            }
        }
    }
    for (int at62 = 512 + (int)threadIdx.x; at62 < n5; at62 += 32) {
        if (v2) {
            const float v63 = x0[at62 + at3 * n5];
            const float v64 = v63 / v38;
            y0[at62 + at3 * n5] = v64;
        }
    }
}
