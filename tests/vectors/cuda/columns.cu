// kernel_0<<<floordiv(m + 31, 32), 32 * 8>>> (4 blocks now): f32[n, m] -> f32[m]

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
    const int n0 = (int)(size_m);
    const int n6 = (int)(size_n);
    const int at1 = (int)blockIdx.x * 32 + (int)threadIdx.x;
    const bool v2 = at1 < n0;
    const int at3 = v2 ? at1 : n0 - 1;
    float acc4[1] = {0.0f};
    float acc5[1] = {0.0f};
    for (int at7 = (int)threadIdx.y; at7 < n6; at7 += 8 * 8) {
        lw_pack<float, 1> pack8[8];
        #pragma unroll
        for (int u9 = 0; u9 < 8; ++u9) {
            const int at10 = at7 + u9 * 8;
            const int at11 = at10 < n6 ? at10 : n6 - 1;
            pack8[u9] = *(const lw_pack<float, 1>*)&x0[at3 + at11 * n0];
        }
        #pragma unroll
        for (int u12 = 0; u12 < 8; ++u12) {
            const int at13 = at7 + u12 * 8;
            if (at13 < n6) {
                const float v14 = pack8[u12].at[0];
                lw_add(acc4[0], acc5[0], v14);
            }
        }
    }
    float all15 = lw_added(acc4[0], acc5[0]);
    __shared__ float part16[32][9];
    part16[threadIdx.x][threadIdx.y] = all15;
    __syncthreads();
    float all17 = part16[threadIdx.x][0];
    for (int k18 = 1; k18 < 8; ++k18) {
        all17 = all17 + part16[threadIdx.x][k18];
    }
    const float v19 = all17;
    if (v2 && threadIdx.y == 0) {
        y0[at3] = v19;
    }
}
