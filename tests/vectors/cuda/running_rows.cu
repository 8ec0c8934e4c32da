// kernel_0<<<n, 256 * 1>>> (5 blocks now): f64[n, m] -> f64[n, m]

extern "C" __global__ void __launch_bounds__(256) kernel_0(
        const double* __restrict__ x0,
        double* y0,
        long long size_n,
        long long size_m,
        long long* error) {
    const int n0 = (int)(size_m);
    double all2 = (-0.0);
    __shared__ double part1[2][1][8];
    const int v5 = threadIdx.x % 32;
    const int v6 = threadIdx.x / 32;
    int turn4 = 0;
    for (int at3 = 0; at3 < n0; at3 += 1024) {
        const int k7 = at3 + (int)threadIdx.x * 4;
        double x8[4] = {(-0.0), (-0.0), (-0.0), (-0.0)};
        #pragma unroll
        for (int e9 = 0; e9 < 4; ++e9) {
            if (k7 + e9 < n0) {
                const int k10 = k7 + e9;
                const double v11 = x0[k10 + (int)blockIdx.x * n0];
                x8[e9] = v11;
            }
        }
        #pragma unroll
        for (int e12 = 1; e12 < 4; ++e12) x8[e12] = x8[e12 - 1] + x8[e12];
        double all13 = x8[3];
        #pragma unroll
        for (int d14 = 1; d14 < 32; d14 *= 2) {
            double v15 = __shfl_up_sync(0xffffffffu, all13, d14);
            if (v5 >= d14) all13 = v15 + all13;
        }
        if (v5 == 31) part1[turn4][threadIdx.y][v6] = all13;
        __syncthreads();
        double all16 = (-0.0);
        for (int k17 = 0; k17 < 8; ++k17) {
            if (k17 == v6) all16 = all2;
            all2 = all2 + part1[turn4][threadIdx.y][k17];
        }
        double v18 = __shfl_up_sync(0xffffffffu, all13, 1);
        if (v5 > 0) all16 = all16 + v18;
        #pragma unroll
        for (int e19 = 0; e19 < 4; ++e19) {
            if (k7 + e19 < n0) {
                const int k20 = k7 + e19;
                const double v21 = all16 + x8[e19];
                const double v22 = v21;
                y0[k20 + (int)blockIdx.x * n0] = v22;
            }
        }
        turn4 = 1 - turn4;
    }
    __syncthreads();
}
