// kernel_0<<<floordiv(m + 31, 32), 32 * 8>>> (4 blocks now): f32[n, m] -> f32[m]

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
    const int n0 = (int)(size_m);
    const int n6 = (int)(size_n);
    const int at1 = (int)blockIdx.x * 32 + (int)threadIdx.x;
    const bool v2 = at1 < n0;
    const int at3 = v2 ? at1 : n0 - 1;
    float acc4[1] = {0.0f};
    float acc5[1] = {0.0f};
    for (int at7 = (int)threadIdx.y; at7 < n6; at7 += 8) {
        const float v8 = x0[at3 + at7 * n0];
        lw_add(acc4[0], acc5[0], v8);
    }
    float all9 = lw_added(acc4[0], acc5[0]);
    __shared__ float part10[32][9];
    part10[threadIdx.x][threadIdx.y] = all9;
    __syncthreads();
    float all11 = part10[threadIdx.x][0];
    for (int k12 = 1; k12 < 8; ++k12) {
        all11 = all11 + part10[threadIdx.x][k12];
    }
    const float v13 = all11;
    if (v2 && threadIdx.y == 0) {
        y0[at3] = v13;
    }
}
