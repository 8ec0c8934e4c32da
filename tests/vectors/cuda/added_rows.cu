// kernel_0_0<<<floordiv(n*q + 2047, 2048), 256 * 1>>> (2 blocks now): f32[n, q], f32[p, q], i64[p] -> f32[n, q]
// kernel_0_1<<<max(1, min(256, floordiv(n*q + 255, 256))), 256 * 1>>> (10 blocks now): f32[n, q], f32[p, q], i64[p] -> f32[n, q]

template <class T, int N> struct alignas(sizeof(T) * N) lw_pack { T at[N]; };

__device__ __forceinline__ long long lw_size_divide(long long a, long long b) {
    return b == 0 ? 0 : a / b - (a % b != 0 && (a % b ^ b) < 0);
}

__device__ __forceinline__ void lw_report(long long* error, long long site, long long index, long long axis,
                                          long long size) {
    if (atomicCAS((unsigned long long*)error, 0ull, (unsigned long long)site) == 0) {
        error[1] = index;
        error[2] = axis;
        error[3] = size;
    }
}

extern "C" __global__ void __launch_bounds__(256) kernel_0_0(
        const float* __restrict__ x0,
        const float* __restrict__ x1,
        const long long* __restrict__ x2,
        float* y0,
        long long size_n,
        long long size_q,
        long long size_p,
        long long* error) {
    const long long n0 = size_n * size_q;
    const int n1 = (int)(n0);
    const int n3 = (int)(size_q);
    const int at2 = (int)blockIdx.x * 2048;
    if (n3 % 4 == 0 && at2 + 2048 <= n1) {
        lw_pack<float, 4> pack4[2];
        #pragma unroll
        for (int u5 = 0; u5 < 2; ++u5) {
            const int at6 = at2 + (u5 * 256 + (int)threadIdx.x) * 4;
            const int i7 = (int)((unsigned int)at6 % (unsigned int)n3);
            const int i8 = (int)((unsigned int)at6 / (unsigned int)n3);
            pack4[u5] = *(const lw_pack<float, 4>*)&x0[i7 + i8 * n3];
        }
        #pragma unroll
        for (int u9 = 0; u9 < 2; ++u9) {
            const int at10 = at2 + (u9 * 256 + (int)threadIdx.x) * 4;
            const int i11 = (int)((unsigned int)at10 % (unsigned int)n3);
            const int i12 = (int)((unsigned int)at10 / (unsigned int)n3);
            lw_pack<float, 4> pack13;
            #pragma unroll
            for (int e14 = 0; e14 < 4; ++e14) {
                const float v15 = pack4[u9].at[e14];
                pack13.at[e14] = v15;
            }
            *(lw_pack<float, 4>*)&y0[i11 + i12 * n3] = pack13;
        }
    } else {
        const int n17 = at2 + 2048 < n1 ? at2 + 2048 : n1;
        for (int at16 = at2 + (int)threadIdx.x; at16 < n17; at16 += 256) {
            const int i18 = (int)((unsigned int)at16 % (unsigned int)n3);
            const int i19 = (int)((unsigned int)at16 / (unsigned int)n3);
            const float v20 = x0[i18 + i19 * n3];
            y0[i18 + i19 * n3] = v20;
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) kernel_0_1(
        const float* __restrict__ x0,
        const float* __restrict__ x1,
        const long long* __restrict__ x2,
        float* y0,
        long long size_n,
        long long size_q,
        long long size_p,
        long long* error) {
    const long long n1 = size_n * size_q + -1ll;
    const long long n2 = size_n * size_q + 255ll;
    const long long n3 = lw_size_divide(n2, 256ll);
    const long long n4 = (256ll < n3 ? 256ll : n3);
    const long long n5 = (1ll > n4 ? 1ll : n4) * 8ll;
    const long long n6 = lw_size_divide(n1, n5) + 1ll;
    const int n7 = (int)(n6);
    const long long n10 = size_p * size_q;
    const int n11 = (int)(n10);
    const int n16 = (int)(size_q);
    const int v0 = threadIdx.x % 32;
    const int n8 = ((int)blockIdx.x * 8 + (int)threadIdx.x / 32) * n7;
    const int n9 = n8 + n7;
    for (int at12 = 0; at12 < n11; at12 += 32) {
        const int at13 = at12 + v0;
        int at14 = -1;
        float v15 = 0;
        if (at13 < n11) {
            const int i17 = (int)((unsigned int)at13 % (unsigned int)n16);
            const int i18 = (int)((unsigned int)at13 / (unsigned int)n16);
            const long long v19 = x2[i18];
            const bool v20 = v19 < 0ll;
            const long long v21 = (long long)((unsigned long long)v19 + (unsigned long long)size_n);
            const long long v22 = v20 ? v21 : v19;
            const bool v23 = (unsigned long long)v22 < (unsigned long long)size_n;
            if (!v23) lw_report(error, 2, v22, 0, size_n);
            const long long v24 = v23 ? v22 : 0ll;
            const int v25 = i17 + (int)v24 * n16;
            if (n8 <= v25 && v25 < n9) {
                at14 = v25;
                const float v26 = x1[i17 + i18 * n16];
                v15 = v26;
            }
        }
        unsigned todo27 = __ballot_sync(0xffffffffu, at14 >= 0);
        for (; todo27 != 0; todo27 &= todo27 - 1) {
            if (v0 == __ffs(todo27) - 1) {
                const float v28 = y0[at14];
                const float v29 = v28 + v15;
                y0[at14] = v29;
            }
            __syncwarp();
        }
    }
}
