// kernel_0_0<<<floordiv(m + 127, 128)*max(1, min(256, floordiv(n + 511, 512))), 32 * 8>>> (4700 blocks now): f32[n, m] -> f32[m]
// kernel_0_1<<<floordiv(m + 31, 32), 32 * 8>>> (100 blocks now): f32[n, m] -> f32[m]

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
        float* s0_part0,
        long long size_n,
        long long size_m,
        long long* error) {
    const long long n0 = size_m + 127ll;
    const long long n1 = lw_size_divide(n0, 128ll);
    const int n2 = (int)(n1);
    const int n6 = (int)(size_m);
    const long long n8 = size_n + 511ll;
    const long long n9 = lw_size_divide(n8, 512ll);
    const long long n10 = (256ll < n9 ? 256ll : n9);
    const long long n11 = (1ll > n10 ? 1ll : n10);
    const int n12 = (int)(n11);
    const int n17 = (int)(size_n);
    const int at3 = (int)blockIdx.x % n2;
    const int at4 = (int)blockIdx.x / n2;
    const int at5 = at3 * 128;
    const bool wide7 = n6 % 4 == 0;
    float acc13[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    float acc14[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    if (wide7) {
        const int at15 = at5 + (int)threadIdx.x * 4;
        const int at16 = at15 < n6 ? at15 : n6 - 4;
        for (int at18 = (at4 * 8 + (int)threadIdx.y); at18 < n17; at18 += (n12 * 8) * 4) {
            lw_pack<float, 4> pack19[4];
            #pragma unroll
            for (int u20 = 0; u20 < 4; ++u20) {
                const int at21 = at18 + u20 * (n12 * 8);
                const int at22 = at21 < n17 ? at21 : n17 - 1;
                pack19[u20] = *(const lw_pack<float, 4>*)&x0[at16 + at22 * n6];
            }
            #pragma unroll
            for (int u23 = 0; u23 < 4; ++u23) {
                const int at24 = at18 + u23 * (n12 * 8);
                if (at24 < n17) {
                    #pragma unroll
                    for (int e25 = 0; e25 < 4; ++e25) {
                        const float v26 = pack19[u23].at[e25];
                        lw_add(acc13[e25], acc14[e25], v26);
                    }
                }
            }
        }
    } else {
        for (int at27 = (at4 * 8 + (int)threadIdx.y); at27 < n17; at27 += (n12 * 8)) {
            #pragma unroll
            for (int e28 = 0; e28 < 4; ++e28) {
                const int at29 = at5 + e28 * 32 + (int)threadIdx.x;
                const int at30 = at29 < n6 ? at29 : n6 - 1;
                const float v31 = x0[at30 + at27 * n6];
                lw_add(acc13[e28], acc14[e28], v31);
            }
        }
    }
    __shared__ float part32[128][9];
    #pragma unroll
    for (int e33 = 0; e33 < 4; ++e33) {
        const int k34 = wide7 ? (int)threadIdx.x * 4 + e33 : e33 * 32 + (int)threadIdx.x;
        part32[k34][threadIdx.y] = lw_added(acc13[e33], acc14[e33]);
    }
    __syncthreads();
    const int k35 = (int)threadIdx.y * 32 + (int)threadIdx.x;
    if (k35 < 128 && at5 + k35 < n6) {
        float all36 = part32[k35][0];
        for (int k37 = 1; k37 < 8; ++k37) {
            all36 = all36 + part32[k35][k37];
        }
        s0_part0[at4 * n6 + at5 + k35] = all36;
    }
}

extern "C" __global__ void __launch_bounds__(256) kernel_0_1(
        const float* __restrict__ x0,
        float* y0,
        float* s0_part0,
        long long size_n,
        long long size_m,
        long long* error) {
    const int n0 = (int)(size_m);
    const long long n5 = size_n + 511ll;
    const long long n6 = lw_size_divide(n5, 512ll);
    const long long n7 = (256ll < n6 ? 256ll : n6);
    const long long n8 = (1ll > n7 ? 1ll : n7);
    const int n9 = (int)(n8);
    const int at1 = (int)blockIdx.x * 32 + (int)threadIdx.x;
    const bool v2 = at1 < n0;
    const int at3 = v2 ? at1 : n0 - 1;
    const int at4 = at3;
    float all10 = 0.0f;
    for (int k11 = (int)threadIdx.y; k11 < n9; k11 += 64) {
        float next12[8];
        #pragma unroll
        for (int u13 = 0; u13 < 8; ++u13) {
            const int k14 = k11 + u13 * 8 < n9 ? k11 + u13 * 8 : n9 - 1;
            const int at15 = k14 * n0 + at4;
            next12[u13] = s0_part0[at15];
        }
        #pragma unroll
        for (int u13 = 0; u13 < 8; ++u13) {
            if (k11 + u13 * 8 < n9) {
                all10 = all10 + next12[u13];
            }
        }
    }
    __shared__ float part16[32][9];
    part16[threadIdx.x][threadIdx.y] = all10;
    __syncthreads();
    float all17 = part16[threadIdx.x][0];
    for (int k18 = 1; k18 < 8; ++k18) {
        all17 = all17 + part16[threadIdx.x][k18];
    }
    const float v19 = all17;
    if (v2 && threadIdx.y == 0) {
        const float v20 = v19 + 1.0f;
        y0[at3] = v20;
    }
}
