// kernel_0<<<n, 256 * 1>>> (5 blocks now): f64[n, m] -> f64[n, m]

extern "C" __global__ void __launch_bounds__(256) kernel_0(
        const double* __restrict__ x0,
        double* y0,
        long long size_n,
        long long size_m,
        long long* error) {
    const int n0 = (int)(size_m);
    double all2 = (-0.0);
    __shared__ double part1[1][8];
    const int v4 = threadIdx.x % 32;
    const int v5 = threadIdx.x / 32;
    for (int at3 = 0; at3 < n0; at3 += 256) {
        const int k6 = at3 + (int)threadIdx.x;
        double v7 = (-0.0);
        if (k6 < n0) {
            const double v8 = x0[k6 + (int)blockIdx.x * n0];
            v7 = v8;
        }
        #pragma unroll
        for (int d9 = 1; d9 < 32; d9 *= 2) {
            double v10 = __shfl_up_sync(0xffffffffu, v7, d9);
            if (v4 >= d9) v7 = v10 + v7;
        }
        if (v4 == 31) part1[threadIdx.y][v5] = v7;
        __syncthreads();
        for (int k11 = 0; k11 < 8; ++k11) {
            const double v12 = part1[threadIdx.y][k11];
            if (k11 == v5) v7 = all2 + v7;
            all2 = all2 + v12;
        }
        if (k6 < n0) {
            const double v13 = v7;
            y0[k6 + (int)blockIdx.x * n0] = v13;
        }
        __syncthreads();
    }
}
