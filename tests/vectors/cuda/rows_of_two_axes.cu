// kernel_0<<<n, 256 * 1>>> (20 blocks now): f32[n, m, k] -> f32[n, m, k]

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
    const long long n0 = size_k * size_m;
    const int n1 = (int)(n0);
    float tx0[4];
    const bool n2 = n1 % 4 == 0;
    const int n3 = n2 ? (int)threadIdx.x * 4 : (int)threadIdx.x;
    const int n4 = n2 ? 1 : 256;
    const int n5 = n3 < n1 ? n2 ? (n1 - n3 + 1023) / 1024 * 4 : (n1 - n3 + 255) / 256 : 0;
    lw_pack<float, 4> pack6[1];
    if (n2) {
        #pragma unroll
        for (int u7 = 0; u7 < 1; ++u7) {
            if (u7 * 4 < n5) {
                const int at8 = u7 * 1024 + n3;
                pack6[u7] = *(const lw_pack<float, 4>*)&x0[at8 + (int)blockIdx.x * n1];
            }
        }
    } else {
        #pragma unroll
        for (int u9 = 0; u9 < 1; ++u9) {
            #pragma unroll
            for (int e10 = 0; e10 < 4; ++e10) {
                if (u9 * 4 + e10 < n5) {
                    const int at11 = u9 * 1024 + n3 + e10 * n4;
                    pack6[u9].at[e10] = x0[at11 + (int)blockIdx.x * n1];
                }
            }
        }
    }
    #pragma unroll
    for (int u12 = 0; u12 < 1; ++u12) {
        #pragma unroll
        for (int e13 = 0; e13 < 4; ++e13) {
            const bool there14 = u12 * 4 + e13 < n5;
            const int at15 = u12 * 1024 + n3 + e13 * n4;
            const float v16 = pack6[u12].at[e13];
            tx0[u12 * 4 + e13] = v16;
        }
    }
    float acc17[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    float acc18[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    #pragma unroll
    for (int u19 = 0; u19 < 1; ++u19) {
        #pragma unroll
        for (int e20 = 0; e20 < 4; ++e20) {
            const bool there21 = u19 * 4 + e20 < n5;
            const int at22 = u19 * 1024 + n3 + e20 * n4;
            const float v23 = tx0[u19 * 4 + e20];
            const float v24 = v23 * v23;
            if (there21) {
                acc17[e20] = acc17[e20] + v24;
            }
        }
    }
    for (int at25 = 1024 + (int)threadIdx.x; at25 < n1; at25 += 256) {
        const float v26 = x0[at25 + (int)blockIdx.x * n1];
        const float v27 = v26 * v26;
        lw_add(acc17[0], acc18[0], v27);
    }
    float all28 = lw_added(acc17[0], acc18[0]);
    all28 = all28 + lw_added(acc17[1], acc18[1]);
    all28 = all28 + lw_added(acc17[2], acc18[2]);
    all28 = all28 + lw_added(acc17[3], acc18[3]);
    #pragma unroll
    for (int d29 = 16; d29 > 0; d29 /= 2) {
        float v30 = __shfl_xor_sync(0xffffffffu, all28, d29);
        all28 = all28 + v30;
    }
    __shared__ float part31[1][8];
    if (threadIdx.x % 32 == 0) part31[threadIdx.y][threadIdx.x / 32] = all28;
    __syncthreads();
    float all32 = part31[threadIdx.y][0];
    for (int k33 = 1; k33 < 8; ++k33) {
        all32 = all32 + part31[threadIdx.y][k33];
    }
    const float v34 = all32;
    const float v35 = (float)n0;
    const float v36 = v34 / v35;
    const float v37 = sqrtf(v36);
    const float v38 = 1 / v37;
    const bool v39 = lw_is_near(v37);
    bool rare40 = !(v39);
    #pragma unroll
    for (int u41 = 0; u41 < 1; ++u41) {
        lw_pack<float, 4> pack42;
        #pragma unroll
        for (int e43 = 0; e43 < 4; ++e43) {
            const bool there44 = u41 * 4 + e43 < n5;
            const int at45 = u41 * 1024 + n3 + e43 * n4;
            const float v46 = tx0[u41 * 4 + e43];
            const float v47 = lw_over(v46, v37, v38, there44, rare40);
            pack42.at[e43] = v47;
        }
        if (n2) {
            if (u41 * 4 < n5) {
                const int at48 = u41 * 1024 + n3;
                *(lw_pack<float, 4>*)&y0[at48 + (int)blockIdx.x * n1] = pack42;
            }
        } else {
            #pragma unroll
            for (int e49 = 0; e49 < 4; ++e49) {
                if (u41 * 4 + e49 < n5) {
                    const int at50 = u41 * 1024 + n3 + e49 * n4;
                    y0[at50 + (int)blockIdx.x * n1] = pack42.at[e49];
                }
            }
        }
    }
    if (rare40) {
        #pragma unroll
        for (int u51 = 0; u51 < 1; ++u51) {
            lw_pack<float, 4> pack52;
            #pragma unroll
            for (int e53 = 0; e53 < 4; ++e53) {
                const bool there54 = u51 * 4 + e53 < n5;
                const int at55 = u51 * 1024 + n3 + e53 * n4;
                const float v56 = tx0[u51 * 4 + e53];
                const float v57 = v56 / v37;
                pack52.at[e53] = v57;
            }
            if (n2) {
                if (u51 * 4 < n5) {
                    const int at58 = u51 * 1024 + n3;
                    *(lw_pack<float, 4>*)&y0[at58 + (int)blockIdx.x * n1] = pack52;
                }
            } else {
                #pragma unroll
                for (int e59 = 0; e59 < 4; ++e59) {
                    if (u51 * 4 + e59 < n5) {
                        const int at60 = u51 * 1024 + n3 + e59 * n4;
                        y0[at60 + (int)blockIdx.x * n1] = pack52.at[e59];
                    }
                }
            }
        }
    }
    for (int at61 = 1024 + (int)threadIdx.x; at61 < n1; at61 += 256) {
        const float v62 = x0[at61 + (int)blockIdx.x * n1];
        const float v63 = v62 / v37;
        y0[at61 + (int)blockIdx.x * n1] = v63;
    }
}
