// kernel_0_0<<<floordiv(m + 127, 128)*max(1, min(floordiv(n + 127, 128), min(256, floordiv(200000, max(1, m))))), 32 * 8>>> (1550 blocks now): f32[n, m] -> f32[m]
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
    const long long n8 = size_n + 127ll;
    const long long n9 = lw_size_divide(n8, 128ll);
    const long long n10 = (1ll > size_m ? 1ll : size_m);
    const long long n11 = lw_size_divide(200000ll, n10);
    const long long n12 = (256ll < n11 ? 256ll : n11);
    const long long n13 = (n9 < n12 ? n9 : n12);
    const long long n14 = (1ll > n13 ? 1ll : n13);
    const int n15 = (int)(n14);
    const int n20 = (int)(size_n);
    const int at3 = (int)blockIdx.x % n2;
    const int at4 = (int)blockIdx.x / n2;
    const int at5 = at3 * 128;
    const bool wide7 = n6 % 4 == 0;
    float acc16[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    float acc17[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    if (wide7) {
        const int at18 = at5 + (int)threadIdx.x * 4;
        const int at19 = at18 < n6 ? at18 : n6 - 4;
        for (int at21 = (at4 * 8 + (int)threadIdx.y); at21 < n20; at21 += (n15 * 8) * 4) {
            lw_pack<float, 4> pack22[4];
            #pragma unroll
            for (int u23 = 0; u23 < 4; ++u23) {
                const int at24 = at21 + u23 * (n15 * 8);
                const int at25 = at24 < n20 ? at24 : n20 - 1;
                pack22[u23] = *(const lw_pack<float, 4>*)&x0[at19 + at25 * n6];
            }
            #pragma unroll
            for (int u26 = 0; u26 < 4; ++u26) {
                const int at27 = at21 + u26 * (n15 * 8);
                if (at27 < n20) {
                    #pragma unroll
                    for (int e28 = 0; e28 < 4; ++e28) {
                        const float v29 = pack22[u26].at[e28];
                        lw_add(acc16[e28], acc17[e28], v29);
                    }
                }
            }
        }
    } else {
        for (int at30 = (at4 * 8 + (int)threadIdx.y); at30 < n20; at30 += (n15 * 8)) {
            #pragma unroll
            for (int e31 = 0; e31 < 4; ++e31) {
                const int at32 = at5 + e31 * 32 + (int)threadIdx.x;
                const int at33 = at32 < n6 ? at32 : n6 - 1;
                const float v34 = x0[at33 + at30 * n6];
                lw_add(acc16[e31], acc17[e31], v34);
            }
        }
    }
    __shared__ float part35[128][9];
    #pragma unroll
    for (int e36 = 0; e36 < 4; ++e36) {
        const int k37 = wide7 ? (int)threadIdx.x * 4 + e36 : e36 * 32 + (int)threadIdx.x;
        part35[k37][threadIdx.y] = lw_added(acc16[e36], acc17[e36]);
    }
    __syncthreads();
    const int k38 = (int)threadIdx.y * 32 + (int)threadIdx.x;
    if (k38 < 128 && at5 + k38 < n6) {
        float all39 = part35[k38][0];
        for (int k40 = 1; k40 < 8; ++k40) {
            all39 = all39 + part35[k38][k40];
        }
        s0_part0[at4 * n6 + at5 + k38] = all39;
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
            next15[u16] = s0_part0[at18];
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
        const float v23 = v22 + 1.0f;
        y0[at3] = v23;
    }
}
