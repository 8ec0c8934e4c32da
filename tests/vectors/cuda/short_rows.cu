// kernel_0<<<floordiv(n + 255, 256), 256 * 1>>> (2 blocks now): f32[n, m] -> f32[n]

__device__ __forceinline__ void lw_add(float& sum, float& lost, float x) {
    const float next = sum + x;
    const float part = next - sum;
    lost += (sum - (next - part)) + (x - part);
    sum = next;
}
__device__ __forceinline__ float lw_added(float sum, float lost) { return lost - lost == 0 && lost != 0 ? sum + lost : sum; }

extern "C" __global__ void __launch_bounds__(256) kernel_0(
        const float* __restrict__ x0,
        float* y0,
        long long size_n,
        long long size_m,
        long long* error) {
    const int n0 = (int)(size_n);
    const int n4 = (int)(size_m);
    const int at1 = (int)blockIdx.x * 256 + (int)threadIdx.x;
    if (at1 < n0) {
        float acc2[1] = {0.0f};
        float acc3[1] = {0.0f};
        for (int at5 = 0; at5 < n4; at5 += 1) {
            const float v6 = x0[at5 + at1 * n4];
            lw_add(acc2[0], acc3[0], v6);
        }
        float all7 = lw_added(acc2[0], acc3[0]);
        const float v8 = all7;
        y0[at1] = v8;
    }
}
