// kernel_0<<<1, 256 * 1>>> (1 blocks now):  -> weak_i64[]
// kernel_1<<<floordiv(n + 255, 256), 256 * 1>>> (2 blocks now): weak_i64[], f32[n] -> i64[n]

extern "C" __global__ void __launch_bounds__(256) kernel_0(
        long long* y0,
        long long* error) {
    if (threadIdx.x == 0) {
        const long long v0 = 0ll;
        y0[0] = v0;
    }
}

extern "C" __global__ void __launch_bounds__(256) kernel_1(
        const long long* __restrict__ x0,
        const float* __restrict__ x1,
        long long* y0,
        long long size_n,
        long long* error) {
    const int n0 = (int)(size_n);
    const int at1 = (int)blockIdx.x * 256 + (int)threadIdx.x;
    if (at1 < n0) {
        const float v2 = x1[at1];
        const long long v3 = x0[0];
        float w4 = v2;
        long long w5 = v3;
        #pragma unroll 4
        for (;;) {
            const float v6 = w4 * w4;
            const bool v7 = v6 < 4.0f;
            const bool v8 = w5 < 60ll;
            const bool v9 = v7 && v8;
            if (!(v9)) break;
            const float v10 = v6 + v2;
            const long long v11 = (long long)((unsigned long long)w5 + (unsigned long long)1ll);
            const float v12 = v10;
            const long long v13 = v11;
            w4 = v12;
            w5 = v13;
        }
        y0[at1] = w5;
    }
}
