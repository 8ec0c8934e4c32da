// kernel_0<<<floordiv(m*n + 2047, 2048), 256 * 1>>> (2 blocks now): f32[m], f32[n, m] -> f32[n, m]

template <class T, int N> struct alignas(sizeof(T) * N) lw_pack { T at[N]; };

extern "C" __global__ void __launch_bounds__(256) kernel_0(
        const float* __restrict__ x0,
        const float* __restrict__ x1,
        float* y0,
        long long size_m,
        long long size_n,
        long long* error) {
    const long long n0 = size_m * size_n;
    const int n1 = (int)(n0);
    const int n3 = (int)(size_m);
    const int at2 = (int)blockIdx.x * 2048;
    if (n3 % 4 == 0 && at2 + 2048 <= n1) {
        lw_pack<float, 4> pack4[2];
        lw_pack<float, 4> pack5[2];
        #pragma unroll
        for (int u6 = 0; u6 < 2; ++u6) {
            const int at7 = at2 + (u6 * 256 + (int)threadIdx.x) * 4;
            const int i8 = (int)((unsigned int)at7 % (unsigned int)n3);
            const int i9 = (int)((unsigned int)at7 / (unsigned int)n3);
            pack4[u6] = *(const lw_pack<float, 4>*)&x1[i8 + i9 * n3];
            pack5[u6] = *(const lw_pack<float, 4>*)&x0[i8];
        }
        #pragma unroll
        for (int u10 = 0; u10 < 2; ++u10) {
            const int at11 = at2 + (u10 * 256 + (int)threadIdx.x) * 4;
            const int i12 = (int)((unsigned int)at11 % (unsigned int)n3);
            const int i13 = (int)((unsigned int)at11 / (unsigned int)n3);
            lw_pack<float, 4> pack14;
            #pragma unroll
            for (int e15 = 0; e15 < 4; ++e15) {
                const float v16 = pack4[u10].at[e15];
                const float v17 = pack5[u10].at[e15];
                const float v18 = v16 * v17;
                const float v19 = v18 + 1.0f;
                pack14.at[e15] = v19;
            }
            *(lw_pack<float, 4>*)&y0[i12 + i13 * n3] = pack14;
        }
    } else {
        const int n21 = at2 + 2048 < n1 ? at2 + 2048 : n1;
        for (int at20 = at2 + (int)threadIdx.x; at20 < n21; at20 += 256) {
            const int i22 = (int)((unsigned int)at20 % (unsigned int)n3);
            const int i23 = (int)((unsigned int)at20 / (unsigned int)n3);
            const float v24 = x1[i22 + i23 * n3];
            const float v25 = x0[i22];
            const float v26 = v24 * v25;
            const float v27 = v26 + 1.0f;
            y0[i22 + i23 * n3] = v27;
        }
    }
}
