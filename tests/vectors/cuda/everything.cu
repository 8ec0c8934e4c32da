// kernel_0_0<<<max(1, min(1024, floordiv(m*n + 16383, 16384))), 256 * 1>>> (4 blocks now): f32[n, m] -> f32[]
// kernel_0_1<<<1, 256 * 1>>> (1 blocks now): f32[n, m] -> f32[]

template <class T, int N> struct alignas(sizeof(T) * N) lw_pack { T at[N]; };

__device__ __forceinline__ void lw_add(float& sum, float& lost, float x) {
    const float next = sum + x;
    const float part = next - sum;
    lost += (sum - (next - part)) + (x - part);
    sum = next;
}
__device__ __forceinline__ float lw_added(float sum, float lost) { return lost - lost == 0 && lost != 0 ? sum + lost : sum; }

__device__ __forceinline__ long long lw_size_divide(long long a, long long b) {
    return b == 0 ? 0 : a / b - (a % b != 0 && (a % b ^ b) < 0);
}

extern "C" __global__ void __launch_bounds__(256) kernel_0_0(
        const float* __restrict__ x0,
        float* y0,
        float* r1_part0,
        long long size_n,
        long long size_m,
        long long* error) {
    const long long n2 = size_m * size_n;
    const int n3 = (int)(n2);
    float acc0[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    float acc1[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    const int n4 = n3 - n3 % 4;
    #pragma unroll 4
    for (int at5 = ((int)blockIdx.x * 256 + (int)threadIdx.x) * 4; at5 < n4; at5 += ((int)gridDim.x * 256) * 4) {
        lw_pack<float, 4> pack6;
        pack6 = *(const lw_pack<float, 4>*)&x0[at5];
        #pragma unroll
        for (int e7 = 0; e7 < 4; ++e7) {
            const float v8 = pack6.at[e7];
            const float v9 = v8 * v8;
            lw_add(acc0[e7], acc1[e7], v9);
        }
    }
    for (int at10 = n4 + ((int)blockIdx.x * 256 + (int)threadIdx.x); at10 < n3; at10 += ((int)gridDim.x * 256)) {
        const float v11 = x0[at10];
        const float v12 = v11 * v11;
        lw_add(acc0[0], acc1[0], v12);
    }
    float all13 = lw_added(acc0[0], acc1[0]);
    all13 = all13 + lw_added(acc0[1], acc1[1]);
    all13 = all13 + lw_added(acc0[2], acc1[2]);
    all13 = all13 + lw_added(acc0[3], acc1[3]);
    #pragma unroll
    for (int d14 = 16; d14 > 0; d14 /= 2) {
        float v15 = __shfl_xor_sync(0xffffffffu, all13, d14);
        all13 = all13 + v15;
    }
    __shared__ float part16[1][8];
    if (threadIdx.x % 32 == 0) part16[threadIdx.y][threadIdx.x / 32] = all13;
    __syncthreads();
    float all17 = part16[threadIdx.y][0];
    for (int k18 = 1; k18 < 8; ++k18) {
        all17 = all17 + part16[threadIdx.y][k18];
    }
    if (threadIdx.x == 0) r1_part0[blockIdx.x] = all17;
}

extern "C" __global__ void __launch_bounds__(256) kernel_0_1(
        const float* __restrict__ x0,
        float* y0,
        float* r1_part0,
        long long size_n,
        long long size_m,
        long long* error) {
    const long long n0 = size_m * size_n + 16383ll;
    const long long n1 = lw_size_divide(n0, 16384ll);
    const long long n2 = (1024ll < n1 ? 1024ll : n1);
    const long long n3 = (1ll > n2 ? 1ll : n2);
    const int n4 = (int)(n3);
    float all5 = 0.0f;
    for (int k6 = (int)threadIdx.x; k6 < n4; k6 += 256) {
        all5 = all5 + r1_part0[k6];
    }
    #pragma unroll
    for (int d7 = 16; d7 > 0; d7 /= 2) {
        float v8 = __shfl_xor_sync(0xffffffffu, all5, d7);
        all5 = all5 + v8;
    }
    __shared__ float part9[1][8];
    if (threadIdx.x % 32 == 0) part9[threadIdx.y][threadIdx.x / 32] = all5;
    __syncthreads();
    float all10 = part9[threadIdx.y][0];
    for (int k11 = 1; k11 < 8; ++k11) {
        all10 = all10 + part9[threadIdx.y][k11];
    }
    const float v12 = all10;
    if (threadIdx.x == 0) {
        y0[0] = v12;
    }
}
