// kernel_0_0<<<floordiv(m + 31, 32)*max(1, min(floordiv(n + 127, 128), min(256, floordiv(200000, max(1, m))))), 32 * 8>>> (12 blocks now): f32[n, m] -> f32[m]
// kernel_0_1<<<floordiv(m + 31, 32), 32 * 8>>> (4 blocks now): f32[n, m] -> f32[m]

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

extern "C" __global__ void __launch_bounds__(256) kernel_0_0(
        const float* __restrict__ x0,
        float* y0,
        float* r0_part0,
        long long size_n,
        long long size_m,
        long long* error) {
    const long long n0 = size_m + 31ll;
    const long long n1 = lw_size_divide(n0, 32ll);
    const int n2 = (int)(n1);
    const int n5 = (int)(size_m);
    const long long n10 = size_n + 127ll;
    const long long n11 = lw_size_divide(n10, 128ll);
    const long long n12 = (1ll > size_m ? 1ll : size_m);
    const long long n13 = lw_size_divide(200000ll, n12);
    const long long n14 = (256ll < n13 ? 256ll : n13);
    const long long n15 = (n11 < n14 ? n11 : n14);
    const long long n16 = (1ll > n15 ? 1ll : n15);
    const int n17 = (int)(n16);
    const int n20 = (int)(size_n);
    const int at3 = (int)blockIdx.x % n2;
    const int at4 = (int)blockIdx.x / n2;
    const int at6 = at3 * 32 + (int)threadIdx.x;
    const bool v7 = at6 < n5;
    const int at8 = v7 ? at6 : n5 - 1;
    const int at9 = at8;
    float acc18[1] = {0.0f};
    float acc19[1] = {0.0f};
    for (int at21 = (at4 * 8 + (int)threadIdx.y); at21 < n20; at21 += (n17 * 8) * 8) {
        lw_pack<float, 1> pack22[8];
        #pragma unroll
        for (int u23 = 0; u23 < 8; ++u23) {
            const int at24 = at21 + u23 * (n17 * 8);
            const int at25 = at24 < n20 ? at24 : n20 - 1;
            pack22[u23] = *(const lw_pack<float, 1>*)&x0[at8 + at25 * n5];
        }
        #pragma unroll
        for (int u26 = 0; u26 < 8; ++u26) {
            const int at27 = at21 + u26 * (n17 * 8);
            if (at27 < n20) {
                const float v28 = pack22[u26].at[0];
                lw_add(acc18[0], acc19[0], v28);
            }
        }
    }
    float all29 = lw_added(acc18[0], acc19[0]);
    __shared__ float part30[32][9];
    part30[threadIdx.x][threadIdx.y] = all29;
    __syncthreads();
    float all31 = part30[threadIdx.x][0];
    for (int k32 = 1; k32 < 8; ++k32) {
        all31 = all31 + part30[threadIdx.x][k32];
    }
    if (v7 && threadIdx.y == 0) {
        r0_part0[at4 * n5 + at9] = all31;
    }
}

extern "C" __global__ void __launch_bounds__(256) kernel_0_1(
        const float* __restrict__ x0,
        float* y0,
        float* r0_part0,
        long long size_n,
        long long size_m,
        long long* error) {
    const int n0 = (int)(size_m);
    const long long n5 = size_n + 127ll;
    const long long n6 = lw_size_divide(n5, 128ll);
    const long long n7 = (1ll > size_m ? 1ll : size_m);
    const long long n8 = lw_size_divide(200000ll, n7);
    const long long n9 = (256ll < n8 ? 256ll : n8);
    const long long n10 = (n6 < n9 ? n6 : n9);
    const long long n11 = (1ll > n10 ? 1ll : n10);
    const int n12 = (int)(n11);
    const int at1 = (int)blockIdx.x * 32 + (int)threadIdx.x;
    const bool v2 = at1 < n0;
    const int at3 = v2 ? at1 : n0 - 1;
    const int at4 = at3;
    float all13 = 0.0f;
    for (int k14 = (int)threadIdx.y; k14 < n12; k14 += 64) {
        float next15[8];
        #pragma unroll
        for (int u16 = 0; u16 < 8; ++u16) {
            const int k17 = k14 + u16 * 8 < n12 ? k14 + u16 * 8 : n12 - 1;
            const int at18 = k17 * n0 + at4;
            next15[u16] = r0_part0[at18];
        }
        #pragma unroll
        for (int u16 = 0; u16 < 8; ++u16) {
            if (k14 + u16 * 8 < n12) {
                all13 = all13 + next15[u16];
            }
        }
    }
    __shared__ float part19[32][9];
    part19[threadIdx.x][threadIdx.y] = all13;
    __syncthreads();
    float all20 = part19[threadIdx.x][0];
    for (int k21 = 1; k21 < 8; ++k21) {
        all20 = all20 + part19[threadIdx.x][k21];
    }
    const float v22 = all20;
    if (v2 && threadIdx.y == 0) {
        y0[at3] = v22;
    }
}
