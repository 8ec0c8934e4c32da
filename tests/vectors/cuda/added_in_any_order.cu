// kernel_0_0<<<floordiv(n*q + 2047, 2048), 256 * 1>>> (1 blocks now): f32[n, q], f32[p, q], i64[p] -> f32[n, q]
// kernel_0_1<<<max(1, min(1024, floordiv(p*q - 1, max(1024, 2*min(0, n*q))) + 1)), 256 * 1>>> (2 blocks now): f32[n, q], f32[p, q], i64[p] -> f32[n, q]
// kernel_0_2<<<max(1, min(1024, floordiv(p*q - 1, max(1024, 2*min(0, n*q))) + 1)), 256 * 1>>> (2 blocks now): f32[n, q], f32[p, q], i64[p] -> f32[n, q]
// kernel_0_3<<<max(1, min(1024, floordiv(p*q - 1, max(1024, 2*min(0, n*q))) + 1)), 256 * 1>>> (2 blocks now): f32[n, q], f32[p, q], i64[p] -> f32[n, q]
// kernel_0_4<<<max(1, min(1024, floordiv(p*q - 1, max(1024, 2*min(0, n*q))) + 1)), 256 * 1>>> (2 blocks now): f32[n, q], f32[p, q], i64[p] -> f32[n, q]

template <class T, int N> struct alignas(sizeof(T) * N) lw_pack { T at[N]; };

// 0: -0.0; 1: 0.0; 2 and more: abs(x) < 2^(this - 1023); 2048: not finite
__device__ __forceinline__ unsigned lw_magnitude(double x) {
    const unsigned long long bits = (unsigned long long)__double_as_longlong(x);
    const unsigned exponent = (unsigned)(bits >> 52) & 0x7ffu;
    return bits == 0x8000000000000000ull ? 0u : bits == 0 ? 1u : exponent == 0 ? 2u : exponent + 1u;
}
__device__ __forceinline__ double lw_scaled(double x, int by) {  // x 2^by, in two steps that no exponent is too small for
    const int half = by / 2;
    const double first = __longlong_as_double((long long)(half + 1023) << 52);
    return x * first * __longlong_as_double((long long)(by - half + 1023) << 52);
}
// Terms below 2^(magnitude - 1023) as multiples of a power of two, with so many bits; what is left in as many more.
__device__ __forceinline__ long long lw_whole(double x, unsigned magnitude, int bits) {
    return __double2ll_rn(lw_scaled(x, bits + 1023 - (int)magnitude));
}
__device__ __forceinline__ long long lw_rest(double x, unsigned magnitude, int bits) {
    const double scaled = lw_scaled(x, bits + 1023 - (int)magnitude);
    return __double2ll_rn(lw_scaled(scaled - rint(scaled), bits));
}
__device__ __forceinline__ unsigned long long lw_not_finite(double x) { return x != x ? 4ull : x > 0 ? 1ull : 2ull; }
__device__ __forceinline__ double lw_sum(unsigned long long whole, unsigned long long rest, unsigned magnitude, int bits) {
    if (magnitude == 2048u)
        return __longlong_as_double(whole == 1 ? 0x7ff0000000000000ll : whole == 2 ? (long long)0xfff0000000000000ull
                                                                                   : 0x7ff8000000000000ll);
    return lw_scaled((double)(long long)whole + lw_scaled((double)(long long)rest, -bits), (int)magnitude - bits - 1023);
}

__device__ __forceinline__ void lw_report(long long* error, long long site, long long index, long long axis,
                                          long long size) {
    if (atomicCAS((unsigned long long*)error, 0ull, (unsigned long long)site) == 0) {
        error[1] = index;
        error[2] = axis;
        error[3] = size;
    }
}

extern "C" __global__ void __launch_bounds__(256) kernel_0_0(
        const float* __restrict__ x0,
        const float* __restrict__ x1,
        const long long* __restrict__ x2,
        float* y0,
        unsigned* y0_magnitude,
        unsigned long long* y0_whole,
        long long size_n,
        long long size_q,
        long long size_p,
        long long* error) {
    const long long n0 = size_n * size_q;
    const int n1 = (int)(n0);
    const int n3 = (int)(size_q);
    const int at2 = (int)blockIdx.x * 2048;
    if (n3 % 4 == 0 && at2 + 2048 <= n1) {
        lw_pack<float, 4> pack4[2];
        #pragma unroll
        for (int u5 = 0; u5 < 2; ++u5) {
            const int at6 = at2 + (u5 * 256 + (int)threadIdx.x) * 4;
            const int i7 = (int)((unsigned int)at6 % (unsigned int)n3);
            const int i8 = (int)((unsigned int)at6 / (unsigned int)n3);
            pack4[u5] = *(const lw_pack<float, 4>*)&x0[i7 + i8 * n3];
        }
        #pragma unroll
        for (int u9 = 0; u9 < 2; ++u9) {
            const int at10 = at2 + (u9 * 256 + (int)threadIdx.x) * 4;
            const int i11 = (int)((unsigned int)at10 % (unsigned int)n3);
            const int i12 = (int)((unsigned int)at10 / (unsigned int)n3);
            lw_pack<float, 4> pack13;
            #pragma unroll
            for (int e14 = 0; e14 < 4; ++e14) {
                const float v15 = pack4[u9].at[e14];
                pack13.at[e14] = v15;
            }
            *(lw_pack<float, 4>*)&y0[i11 + i12 * n3] = pack13;
        }
    } else {
        const int n17 = at2 + 2048 < n1 ? at2 + 2048 : n1;
        for (int at16 = at2 + (int)threadIdx.x; at16 < n17; at16 += 256) {
            const int i18 = (int)((unsigned int)at16 % (unsigned int)n3);
            const int i19 = (int)((unsigned int)at16 / (unsigned int)n3);
            const float v20 = x0[i18 + i19 * n3];
            y0[i18 + i19 * n3] = v20;
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) kernel_0_1(
        const float* __restrict__ x0,
        const float* __restrict__ x1,
        const long long* __restrict__ x2,
        float* y0,
        unsigned* y0_magnitude,
        unsigned long long* y0_whole,
        long long size_n,
        long long size_q,
        long long size_p,
        long long* error) {
    const long long n0 = size_p * size_q;
    const int n1 = (int)(n0);
    const long long n2 = size_n * size_q;
    const int n3 = (int)(n2);
    const int n5 = (int)(size_q);
    #pragma unroll 4
    for (int at4 = (int)blockIdx.x * 256 + (int)threadIdx.x; at4 < n1; at4 += (int)gridDim.x * 256) {
        const int i6 = (int)((unsigned int)at4 % (unsigned int)n5);
        const int i7 = (int)((unsigned int)at4 / (unsigned int)n5);
        const long long v8 = x2[i7];
        const bool v9 = v8 < 0ll;
        const long long v10 = (long long)((unsigned long long)v8 + (unsigned long long)size_n);
        const long long v11 = v9 ? v10 : v8;
        const bool v12 = (unsigned long long)v11 < (unsigned long long)size_n;
        if (!v12) lw_report(error, 2, v11, 0, size_n);
        const long long v13 = v12 ? v11 : 0ll;
        const int at14 = i6 + (int)v13 * n5;
        if (at14 < n3) {
            atomicExch(&y0_magnitude[at14], 0u);
            atomicExch(&y0_whole[at14], 0ull);
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) kernel_0_2(
        const float* __restrict__ x0,
        const float* __restrict__ x1,
        const long long* __restrict__ x2,
        float* y0,
        unsigned* y0_magnitude,
        unsigned long long* y0_whole,
        long long size_n,
        long long size_q,
        long long size_p,
        long long* error) {
    const long long n0 = size_p * size_q;
    const int n1 = (int)(n0);
    const long long n2 = size_n * size_q;
    const int n3 = (int)(n2);
    const int n5 = (int)(size_q);
    #pragma unroll 4
    for (int at4 = (int)blockIdx.x * 256 + (int)threadIdx.x; at4 < n1; at4 += (int)gridDim.x * 256) {
        const int i6 = (int)((unsigned int)at4 % (unsigned int)n5);
        const int i7 = (int)((unsigned int)at4 / (unsigned int)n5);
        const long long v8 = x2[i7];
        const bool v9 = v8 < 0ll;
        const long long v10 = (long long)((unsigned long long)v8 + (unsigned long long)size_n);
        const long long v11 = v9 ? v10 : v8;
        const bool v12 = (unsigned long long)v11 < (unsigned long long)size_n;
        if (!v12) lw_report(error, 2, v11, 0, size_n);
        const long long v13 = v12 ? v11 : 0ll;
        const int at14 = i6 + (int)v13 * n5;
        if (at14 < n3) {
            const float v15 = x1[i6 + i7 * n5];
            const double v16 = (double)v15;
            const unsigned v17 = (unsigned)lw_magnitude(v16);
            atomicMax((unsigned*)&y0_magnitude[at14], (unsigned)v17);
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) kernel_0_3(
        const float* __restrict__ x0,
        const float* __restrict__ x1,
        const long long* __restrict__ x2,
        float* y0,
        unsigned* y0_magnitude,
        unsigned long long* y0_whole,
        long long size_n,
        long long size_q,
        long long size_p,
        long long* error) {
    const long long n0 = size_p * size_q;
    const int n1 = (int)(n0);
    const long long n2 = size_n * size_q;
    const int n3 = (int)(n2);
    const int n6 = (int)(size_q);
    const int v4 = __clzll(size_p) - 2;
    #pragma unroll 4
    for (int at5 = (int)blockIdx.x * 256 + (int)threadIdx.x; at5 < n1; at5 += (int)gridDim.x * 256) {
        const int i7 = (int)((unsigned int)at5 % (unsigned int)n6);
        const int i8 = (int)((unsigned int)at5 / (unsigned int)n6);
        const long long v9 = x2[i8];
        const bool v10 = v9 < 0ll;
        const long long v11 = (long long)((unsigned long long)v9 + (unsigned long long)size_n);
        const long long v12 = v10 ? v11 : v9;
        const bool v13 = (unsigned long long)v12 < (unsigned long long)size_n;
        if (!v13) lw_report(error, 2, v12, 0, size_n);
        const long long v14 = v13 ? v12 : 0ll;
        const int at15 = i7 + (int)v14 * n6;
        if (at15 < n3) {
            const float v16 = x1[i7 + i8 * n6];
            const double v17 = (double)v16;
            const unsigned v18 = y0_magnitude[at15];
            if (v18 < 2048u) {
                const unsigned long long v19 = (unsigned long long)lw_whole(v17, v18, v4);
                atomicAdd((unsigned long long*)&y0_whole[at15], (unsigned long long)v19);
            } else {
                if (lw_magnitude(v17) == 2048u) atomicOr(&y0_whole[at15], lw_not_finite(v17));
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) kernel_0_4(
        const float* __restrict__ x0,
        const float* __restrict__ x1,
        const long long* __restrict__ x2,
        float* y0,
        unsigned* y0_magnitude,
        unsigned long long* y0_whole,
        long long size_n,
        long long size_q,
        long long size_p,
        long long* error) {
    const long long n0 = size_p * size_q;
    const int n1 = (int)(n0);
    const long long n2 = size_n * size_q;
    const int n3 = (int)(n2);
    const int n6 = (int)(size_q);
    const int v4 = __clzll(size_p) - 2;
    #pragma unroll 4
    for (int at5 = (int)blockIdx.x * 256 + (int)threadIdx.x; at5 < n1; at5 += (int)gridDim.x * 256) {
        const int i7 = (int)((unsigned int)at5 % (unsigned int)n6);
        const int i8 = (int)((unsigned int)at5 / (unsigned int)n6);
        const long long v9 = x2[i8];
        const bool v10 = v9 < 0ll;
        const long long v11 = (long long)((unsigned long long)v9 + (unsigned long long)size_n);
        const long long v12 = v10 ? v11 : v9;
        const bool v13 = (unsigned long long)v12 < (unsigned long long)size_n;
        if (!v13) lw_report(error, 2, v12, 0, size_n);
        const long long v14 = v13 ? v12 : 0ll;
        const int at15 = i7 + (int)v14 * n6;
        if (at15 < n3) {
            const unsigned v16 = atomicExch(&y0_magnitude[at15], 0u);
            if (v16 != 0u) {
                const float v17 = y0[at15];
                const float v18 = (float)((double)v17 + lw_sum(y0_whole[at15], 0ull, v16, v4));
                y0[at15] = v18;
            }
        }
    }
}
