// kernel_0<<<floordiv(k*m + 1023, 1024), 256 * 1>>> (1 blocks now): f32[n, m], i64[k] -> f32[k, m]

template <class T, int N> struct alignas(sizeof(T) * N) lw_pack { T at[N]; };

__device__ __forceinline__ void lw_report(long long* error, long long site, long long index, long long axis,
                                          long long size) {
    if (atomicCAS((unsigned long long*)error, 0ull, (unsigned long long)site) == 0) {
        error[1] = index;
        error[2] = axis;
        error[3] = size;
    }
}

extern "C" __global__ void __launch_bounds__(256) kernel_0(
        const float* __restrict__ x0,
        const long long* __restrict__ x1,
        float* y0,
        long long size_n,
        long long size_m,
        long long size_k,
        long long* error) {
    const long long n0 = size_k * size_m;
    const int n1 = (int)(n0);
    const int n3 = (int)(size_m);
    const int at2 = (int)blockIdx.x * 1024;
    if (n3 % 4 == 0 && at2 + 1024 <= n1) {
        lw_pack<float, 4> pack4[1] = {};
        #pragma unroll
        for (int u5 = 0; u5 < 1; ++u5) {
            const int at6 = at2 + (u5 * 256 + (int)threadIdx.x) * 4;
            const int i7 = (int)((unsigned int)at6 % (unsigned int)n3);
            const int i8 = (int)((unsigned int)at6 / (unsigned int)n3);
            const long long v9 = x1[i8];
            const bool v10 = v9 < 0ll;
            const long long v11 = (long long)((unsigned long long)v9 + (unsigned long long)size_n);
            const long long v12 = v10 ? v11 : v9;
            const bool v13 = (unsigned long long)v12 < (unsigned long long)size_n;
            if (!v13) lw_report(error, 2, v12, 0, size_n);
            const long long v14 = v13 ? v12 : 0ll;
            if (size_n > 0) pack4[u5] = *(const lw_pack<float, 4>*)&x0[i7 + (int)v14 * n3];
        }
        #pragma unroll
        for (int u15 = 0; u15 < 1; ++u15) {
            const int at16 = at2 + (u15 * 256 + (int)threadIdx.x) * 4;
            const int i17 = (int)((unsigned int)at16 % (unsigned int)n3);
            const int i18 = (int)((unsigned int)at16 / (unsigned int)n3);
            lw_pack<float, 4> pack19;
            #pragma unroll
            for (int e20 = 0; e20 < 4; ++e20) {
                const float v21 = pack4[u15].at[e20];
                const float v22 = v21 + 1.0f;
                pack19.at[e20] = v22;
            }
            *(lw_pack<float, 4>*)&y0[i17 + i18 * n3] = pack19;
        }
    } else {
        const int n24 = at2 + 1024 < n1 ? at2 + 1024 : n1;
        for (int at23 = at2 + (int)threadIdx.x; at23 < n24; at23 += 256) {
            const int i25 = (int)((unsigned int)at23 % (unsigned int)n3);
            const int i26 = (int)((unsigned int)at23 / (unsigned int)n3);
            const long long v27 = x1[i26];
            const bool v28 = v27 < 0ll;
            const long long v29 = (long long)((unsigned long long)v27 + (unsigned long long)size_n);
            const long long v30 = v28 ? v29 : v27;
            const bool v31 = (unsigned long long)v30 < (unsigned long long)size_n;
            if (!v31) lw_report(error, 2, v30, 0, size_n);
            const long long v32 = v31 ? v30 : 0ll;
            const float v33 = size_n > 0 ? x0[i25 + (int)v32 * n3] : 0.0f;
            const float v34 = v33 + 1.0f;
            y0[i25 + i26 * n3] = v34;
        }
    }
}
