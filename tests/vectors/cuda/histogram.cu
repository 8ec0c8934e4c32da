// kernel_0_0<<<floordiv(n*q + 2047, 2048), 256 * 1>>> (1 blocks now): i32[n, q], i32[p, q], i64[p] -> i32[n, q]
// kernel_0_1<<<max(1, min(1024, floordiv(p*q - 1, max(1024, 2*min(2048, n*q))) + 1)), 256 * 1>>> (2 blocks now): i32[n, q], i32[p, q], i64[p] -> i32[n, q]

template <class T, int N> struct alignas(sizeof(T) * N) lw_pack { T at[N]; };

__device__ __forceinline__ void lw_report(long long* error, long long site, long long index, long long axis,
                                          long long size) {
    if (atomicCAS((unsigned long long*)error, 0ull, (unsigned long long)site) == 0) {
        error[1] = index;
        error[2] = axis;
        error[3] = size;
    }
}

extern "C" __global__ void __launch_bounds__(256) kernel_0_0(
        const int* __restrict__ x0,
        const int* __restrict__ x1,
        const long long* __restrict__ x2,
        int* y0,
        long long size_n,
        long long size_q,
        long long size_p,
        long long* error) {
    const long long n0 = size_n * size_q;
    const int n1 = (int)(n0);
    const int n3 = (int)(size_q);
    const int at2 = (int)blockIdx.x * 2048;
    if (n3 % 4 == 0 && at2 + 2048 <= n1) {
        lw_pack<int, 4> pack4[2];
        #pragma unroll
        for (int u5 = 0; u5 < 2; ++u5) {
            const int at6 = at2 + (u5 * 256 + (int)threadIdx.x) * 4;
            const int i7 = (int)((unsigned int)at6 % (unsigned int)n3);
            const int i8 = (int)((unsigned int)at6 / (unsigned int)n3);
            pack4[u5] = *(const lw_pack<int, 4>*)&x0[i7 + i8 * n3];
        }
        #pragma unroll
        for (int u9 = 0; u9 < 2; ++u9) {
            const int at10 = at2 + (u9 * 256 + (int)threadIdx.x) * 4;
            const int i11 = (int)((unsigned int)at10 % (unsigned int)n3);
            const int i12 = (int)((unsigned int)at10 / (unsigned int)n3);
            lw_pack<int, 4> pack13;
            #pragma unroll
            for (int e14 = 0; e14 < 4; ++e14) {
                const int v15 = pack4[u9].at[e14];
                pack13.at[e14] = v15;
            }
            *(lw_pack<int, 4>*)&y0[i11 + i12 * n3] = pack13;
        }
    } else {
        const int n17 = at2 + 2048 < n1 ? at2 + 2048 : n1;
        for (int at16 = at2 + (int)threadIdx.x; at16 < n17; at16 += 256) {
            const int i18 = (int)((unsigned int)at16 % (unsigned int)n3);
            const int i19 = (int)((unsigned int)at16 / (unsigned int)n3);
            const int v20 = x0[i18 + i19 * n3];
            y0[i18 + i19 * n3] = v20;
        }
    }
}

extern "C" __global__ void __launch_bounds__(256) kernel_0_1(
        const int* __restrict__ x0,
        const int* __restrict__ x1,
        const long long* __restrict__ x2,
        int* y0,
        long long size_n,
        long long size_q,
        long long size_p,
        long long* error) {
    const long long n0 = size_p * size_q;
    const int n1 = (int)(n0);
    const long long n2 = size_n * size_q;
    const int n3 = (int)(n2);
    const int n7 = (int)(size_q);
    __shared__ unsigned part4[2048];
    if (n3 <= 2048) {
        for (int k5 = (int)threadIdx.x; k5 < n3; k5 += 256) {
            part4[k5] = 0;
        }
    }
    __syncthreads();
    #pragma unroll 4
    for (int at6 = (int)blockIdx.x * 256 + (int)threadIdx.x; at6 < n1; at6 += (int)gridDim.x * 256) {
        const int i8 = (int)((unsigned int)at6 % (unsigned int)n7);
        const int i9 = (int)((unsigned int)at6 / (unsigned int)n7);
        const long long v10 = x2[i9];
        const bool v11 = v10 < 0ll;
        const long long v12 = (long long)((unsigned long long)v10 + (unsigned long long)size_n);
        const long long v13 = v11 ? v12 : v10;
        const bool v14 = (unsigned long long)v13 < (unsigned long long)size_n;
        if (!v14) lw_report(error, 2, v13, 0, size_n);
        const long long v15 = v14 ? v13 : 0ll;
        const int at16 = i8 + (int)v15 * n7;
        if (at16 < n3) {
            const int v17 = x1[i8 + i9 * n7];
            if (n3 <= 2048) atomicAdd((unsigned*)&part4[at16], (unsigned)v17);
            else atomicAdd((unsigned*)&y0[at16], (unsigned)v17);
        }
    }
    __syncthreads();
    if (n3 <= 2048) {
        for (int k18 = (int)threadIdx.x; k18 < n3; k18 += 256) {
            if (part4[k18] != 0) atomicAdd((unsigned*)&y0[k18], (unsigned)part4[k18]);
        }
    }
}
