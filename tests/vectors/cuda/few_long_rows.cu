// kernel_0_0<<<max(1, min(floordiv(1024, max(1, n)), floordiv(m + 8191, 8192)))*n, 256 * 1>>> (27 blocks now): f32[n, m] -> f32[n]
// kernel_0_1<<<n, 256 * 1>>> (3 blocks now): f32[n, m] -> f32[n]

__device__ __forceinline__ long long lw_size_divide(long long a, long long b) {
    return b == 0 ? 0 : a / b - (a % b != 0 && (a % b ^ b) < 0);
}

template <class T, int N> struct alignas(sizeof(T) * N) lw_pack { T at[N]; };

__device__ __forceinline__ void lw_add(float& sum, float& lost, float x) {
    const float next = sum + x;
    const float part = next - sum;
    lost += (sum - (next - part)) + (x - part);
    sum = next;
}
__device__ __forceinline__ float lw_added(float sum, float lost) { return lost - lost == 0 && lost != 0 ? sum + lost : sum; }

extern "C" __global__ void __launch_bounds__(256, 3) kernel_0_0(
        const float* __restrict__ x0,
        float* y0,
        float* r0_part0,
        long long size_n,
        long long size_m,
        long long* error) {
    const long long n0 = (1ll > size_n ? 1ll : size_n);
    const long long n1 = lw_size_divide(1024ll, n0);
    const long long n2 = size_m + 8191ll;
    const long long n3 = lw_size_divide(n2, 8192ll);
    const long long n4 = (n1 < n3 ? n1 : n3);
    const long long n5 = (1ll > n4 ? 1ll : n4);
    const int n6 = (int)(n5);
    const int n11 = (int)(size_m);
    const int at7 = (int)blockIdx.x / n6;
    const int at8 = (int)blockIdx.x % n6;
    float acc9[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    float acc10[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    const int n12 = n11 % 4 == 0 ? n11 - n11 % 4 : 0;
    #pragma unroll 4
    for (int at13 = (at8 * 256 + (int)threadIdx.x) * 4; at13 < n12; at13 += (n6 * 256) * 4) {
        lw_pack<float, 4> pack14;
        pack14 = *(const lw_pack<float, 4>*)&x0[at13 + at7 * n11];
        #pragma unroll
        for (int e15 = 0; e15 < 4; ++e15) {
            const float v16 = pack14.at[e15];
            lw_add(acc9[e15], acc10[e15], v16);
        }
    }
    for (int at17 = n12 + (at8 * 256 + (int)threadIdx.x); at17 < n11; at17 += (n6 * 256)) {
        const float v18 = x0[at17 + at7 * n11];
        lw_add(acc9[0], acc10[0], v18);
    }
    float all19 = lw_added(acc9[0], acc10[0]);
    all19 = all19 + lw_added(acc9[1], acc10[1]);
    all19 = all19 + lw_added(acc9[2], acc10[2]);
    all19 = all19 + lw_added(acc9[3], acc10[3]);
    #pragma unroll
    for (int d20 = 16; d20 > 0; d20 /= 2) {
        float v21 = __shfl_xor_sync(0xffffffffu, all19, d20);
        all19 = all19 + v21;
    }
    __shared__ float part22[1][8];
    if (threadIdx.x % 32 == 0) part22[threadIdx.y][threadIdx.x / 32] = all19;
    __syncthreads();
    float all23 = part22[threadIdx.y][0];
    for (int k24 = 1; k24 < 8; ++k24) {
        all23 = all23 + part22[threadIdx.y][k24];
    }
    if (threadIdx.x == 0) r0_part0[at7 * n6 + at8] = all23;
}

extern "C" __global__ void __launch_bounds__(256, 3) kernel_0_1(
        const float* __restrict__ x0,
        float* y0,
        float* r0_part0,
        long long size_n,
        long long size_m,
        long long* error) {
    const long long n0 = (1ll > size_n ? 1ll : size_n);
    const long long n1 = lw_size_divide(1024ll, n0);
    const long long n2 = size_m + 8191ll;
    const long long n3 = lw_size_divide(n2, 8192ll);
    const long long n4 = (n1 < n3 ? n1 : n3);
    const long long n5 = (1ll > n4 ? 1ll : n4);
    const int n6 = (int)(n5);
    float all7 = 0.0f;
    for (int k8 = (int)threadIdx.x; k8 < n6; k8 += 256) {
        all7 = all7 + r0_part0[(int)blockIdx.x * n6 + k8];
    }
    #pragma unroll
    for (int d9 = 16; d9 > 0; d9 /= 2) {
        float v10 = __shfl_xor_sync(0xffffffffu, all7, d9);
        all7 = all7 + v10;
    }
    __shared__ float part11[1][8];
    if (threadIdx.x % 32 == 0) part11[threadIdx.y][threadIdx.x / 32] = all7;
    __syncthreads();
    float all12 = part11[threadIdx.y][0];
    for (int k13 = 1; k13 < 8; ++k13) {
        all12 = all12 + part11[threadIdx.y][k13];
    }
    const float v14 = all12;
    if (threadIdx.x == 0) {
        y0[(int)blockIdx.x] = v14;
    }
}
