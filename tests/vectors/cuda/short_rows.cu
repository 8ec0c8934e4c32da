// kernel_0<<<floordiv(n + 31, 32), 8 * 32>>> (16 blocks now): f32[n, m] -> f32[n]

template <class T, int N> struct alignas(sizeof(T) * N) lw_pack { T at[N]; };

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
    const int n6 = (int)(size_m);
    const int at1 = (int)blockIdx.x * 32 + (int)threadIdx.y;
    const bool v2 = at1 < n0;
    const int at3 = v2 ? at1 : n0 - 1;
    float acc4[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    float acc5[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    const int n7 = n6 % 4 == 0 ? n6 - n6 % 4 : 0;
    #pragma unroll 4
    for (int at8 = (int)threadIdx.x * 4; at8 < n7; at8 += 8 * 4) {
        lw_pack<float, 4> pack9;
        pack9 = *(const lw_pack<float, 4>*)&x0[at8 + at3 * n6];
        #pragma unroll
        for (int e10 = 0; e10 < 4; ++e10) {
            const float v11 = pack9.at[e10];
            lw_add(acc4[e10], acc5[e10], v11);
        }
    }
    for (int at12 = n7 + (int)threadIdx.x; at12 < n6; at12 += 8) {
        const float v13 = x0[at12 + at3 * n6];
        lw_add(acc4[0], acc5[0], v13);
    }
    float all14 = lw_added(acc4[0], acc5[0]);
    all14 = all14 + lw_added(acc4[1], acc5[1]);
    all14 = all14 + lw_added(acc4[2], acc5[2]);
    all14 = all14 + lw_added(acc4[3], acc5[3]);
    #pragma unroll
    for (int d15 = 4; d15 > 0; d15 /= 2) {
        float v16 = __shfl_xor_sync(0xffffffffu, all14, d15);
        all14 = all14 + v16;
    }
    const float v17 = all14;
    if (v2 && threadIdx.x == 0) {
        y0[at3] = v17;
    }
}
