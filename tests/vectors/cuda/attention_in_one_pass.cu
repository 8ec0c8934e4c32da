// kernel_0<<<floordiv(m + 63, 64)*floordiv(u + 63, 64)*n, 16 * 16>>> (64 blocks now): f32[n, m, k], f32[n, q, k], f32[n, q, u] -> f32[n, m, u]

__device__ __forceinline__ long long lw_size_divide(long long a, long long b) {
    return b == 0 ? 0 : a / b - (a % b != 0 && (a % b ^ b) < 0);
}

template <class T, int N> struct alignas(sizeof(T) * N) lw_pack { T at[N]; };

#ifndef LW_EMULATED
__device__ __forceinline__ float lw_max(float x, float y) {
    float found;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(found) : "f"(x), "f"(y));
    return found;
}
#endif

__device__ __forceinline__ void lw_add(float& sum, float& lost, float x) {
    const float next = sum + x;
    const float part = next - sum;
    lost += (sum - (next - part)) + (x - part);
    sum = next;
}
__device__ __forceinline__ float lw_added(float sum, float lost) { return lost - lost == 0 && lost != 0 ? sum + lost : sum; }

extern "C" __global__ void __launch_bounds__(256, 2) kernel_0(
        const float* __restrict__ x0,
        const float* __restrict__ x1,
        const float* __restrict__ x2,
        float* y0,
        long long size_n,
        long long size_m,
        long long size_k,
        long long size_q,
        long long size_u,
        long long* error) {
    const long long n0 = size_u + 63ll;
    const long long n1 = lw_size_divide(n0, 64ll);
    const int n2 = (int)(n1);
    const long long n5 = size_m + 63ll;
    const long long n6 = lw_size_divide(n5, 64ll);
    const int n7 = (int)(n6);
    const int n16 = (int)(size_q);
    const int n18 = (int)(size_k);
    const int n28 = (int)(size_m);
    const long long n29 = size_k * size_m;
    const int n30 = (int)(n29);
    const long long n42 = size_k * size_q;
    const int n43 = (int)(n42);
    const int n100 = (int)(size_u);
    const long long n101 = size_q * size_u;
    const int n102 = (int)(n101);
    const long long n130 = size_m * size_u;
    const int n131 = (int)(n130);
    const int i3 = (int)((unsigned int)(int)blockIdx.x % (unsigned int)n2);
    const int i4 = (int)((unsigned int)(int)blockIdx.x / (unsigned int)n2);
    const int i8 = (int)((unsigned int)i4 % (unsigned int)n7);
    const int i9 = (int)((unsigned int)i4 / (unsigned int)n7);
    const int at10 = i8 * 64;
    const int at11 = i3 * 64;
    float r10_sums[16];
    __shared__ __align__(16) unsigned char lw_near[20480];
    __shared__ __align__(16) float lw_kept[64][68];
    // one pass: maximum, sum and products as they run
    float s3_rows[4] = {__uint_as_float(0xff800000u), __uint_as_float(0xff800000u), __uint_as_float(0xff800000u), __uint_as_float(0xff800000u)};
    float reference[4] = {0, 0, 0, 0};
    float acc12[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    float acc13[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    #pragma unroll
    for (int k14 = 0; k14 < 16; ++k14) {
        r10_sums[k14] = 0.0f;
    }
    for (int first15 = 0; first15 < n16; first15 += 64) {
        float p0[16];
        #pragma unroll
        for (int k17 = 0; k17 < 16; ++k17) {
            p0[k17] = 0.0f;
        }
         {
            float (*const left)[16][68] = (float (*)[16][68])(lw_near + 0);
            float left_next[4];
            float (*const right)[16][68] = (float (*)[16][68])(lw_near + 8704);
            float right_next[4];
            int stage19 = 0;
            for (int first20 = -16; first20 < n18; first20 += 16) {
                const bool more21 = first20 + 16 < n18;
                if (more21) {
                    #pragma unroll
                    for (int u22 = 0; u22 < 1; ++u22) {
                        const int at23 = u22 * 256 + (int)threadIdx.y * 16 + (int)threadIdx.x;
                        const int at24 = at23 % 4 * 4;
                        const int at25 = at23 / 4;
                        const int i26 = at10 + at25;
                        const int k27 = first20 + 16 + at24;
                        if (n18 % 4 == 0 && n30 % 4 == 0 && i26 < n28 && k27 + 4 <= n18) {
                            lw_pack<float, 4> pack31;
                            pack31 = *(const lw_pack<float, 4>*)&x0[k27 + i26 * n18 + i9 * n30];
                            #pragma unroll
                            for (int e32 = 0; e32 < 4; ++e32) {
                                const float v33 = pack31.at[e32];
                                left_next[u22 * 4 + e32] = v33;
                            }
                        } else {
                            #pragma unroll
                            for (int e34 = 0; e34 < 4; ++e34) {
                                left_next[u22 * 4 + e34] = 0;
                                if (i26 < n28 && (k27 + e34) < n18) {
                                    const float v35 = x0[(k27 + e34) + i26 * n18 + i9 * n30];
                                    left_next[u22 * 4 + e34] = v35;
                                }
                            }
                        }
                    }
                    #pragma unroll
                    for (int u36 = 0; u36 < 1; ++u36) {
                        const int at37 = u36 * 256 + (int)threadIdx.y * 16 + (int)threadIdx.x;
                        const int at38 = at37 % 4 * 4;
                        const int at39 = at37 / 4;
                        const int i40 = first15 + at39;
                        const int k41 = first20 + 16 + at38;
                        if (n18 % 4 == 0 && n43 % 4 == 0 && i40 < n16 && k41 + 4 <= n18) {
                            lw_pack<float, 4> pack44;
                            pack44 = *(const lw_pack<float, 4>*)&x1[k41 + i40 * n18 + i9 * n43];
                            #pragma unroll
                            for (int e45 = 0; e45 < 4; ++e45) {
                                const float v46 = pack44.at[e45];
                                right_next[u36 * 4 + e45] = v46;
                            }
                        } else {
                            #pragma unroll
                            for (int e47 = 0; e47 < 4; ++e47) {
                                right_next[u36 * 4 + e47] = 0;
                                if (i40 < n16 && (k41 + e47) < n18) {
                                    const float v48 = x1[(k41 + e47) + i40 * n18 + i9 * n43];
                                    right_next[u36 * 4 + e47] = v48;
                                }
                            }
                        }
                    }
                }
                if (first20 >= 0) {
                    #pragma unroll 4
                    for (int k49 = 0; k49 < 16; ++k49) {
                        lw_pack<float, 4> left_now[1];
                        #pragma unroll
                        for (int g50 = 0; g50 < 1; ++g50) {
                            left_now[g50] = *(const lw_pack<float, 4>*)&left[stage19][k49][g50 * 64 + (int)threadIdx.y * 4];
                        }
                        lw_pack<float, 4> right_now[1];
                        #pragma unroll
                        for (int g51 = 0; g51 < 1; ++g51) {
                            right_now[g51] = *(const lw_pack<float, 4>*)&right[stage19][k49][g51 * 64 + (int)threadIdx.x * 4];
                        }
                        #pragma unroll
                        for (int r52 = 0; r52 < 4; ++r52) {
                            #pragma unroll
                            for (int c53 = 0; c53 < 4; ++c53) {
                                p0[r52 * 4 + c53] = fmaf(left_now[r52 / 4].at[r52 % 4], right_now[c53 / 4].at[c53 % 4], p0[r52 * 4 + c53]);
                            }
                        }
                    }
                }
                stage19 = 1 - stage19;
                if (more21) {
                    #pragma unroll
                    for (int u54 = 0; u54 < 1; ++u54) {
                        const int at56 = u54 * 256 + (int)threadIdx.y * 16 + (int)threadIdx.x;
                        const int at57 = at56 % 4 * 4;
                        const int at58 = at56 / 4;
                        #pragma unroll
                        for (int e55 = 0; e55 < 4; ++e55) {
                            left[stage19][at57 + e55][at58] = left_next[u54 * 4 + e55];
                        }
                    }
                    #pragma unroll
                    for (int u59 = 0; u59 < 1; ++u59) {
                        const int at61 = u59 * 256 + (int)threadIdx.y * 16 + (int)threadIdx.x;
                        const int at62 = at61 % 4 * 4;
                        const int at63 = at61 / 4;
                        #pragma unroll
                        for (int e60 = 0; e60 < 4; ++e60) {
                            right[stage19][at62 + e60][at63] = right_next[u59 * 4 + e60];
                        }
                    }
                }
                __syncthreads();
            }
        }
        float acc64[4] = {__uint_as_float(0xff800000u), __uint_as_float(0xff800000u), __uint_as_float(0xff800000u), __uint_as_float(0xff800000u)};
        #pragma unroll
        for (int r65 = 0; r65 < 4; ++r65) {
            #pragma unroll
            for (int c66 = 0; c66 < 4; ++c66) {
                const int i67 = at10 + r65 / 4 * 64 + (int)threadIdx.y * 4 + r65 % 4;
                const int i68 = first15 + c66 / 4 * 64 + (int)threadIdx.x * 4 + c66 % 4;
                if (i67 < n28 && i68 < n16) {
                    const float v69 = p0[r65 * 4 + c66] * 0x1.99999ap-3f;
                    acc64[r65] = lw_max(acc64[r65], v69);
                }
            }
        }
        #pragma unroll
        for (int r70 = 0; r70 < 4; ++r70) {
            #pragma unroll
            for (int d71 = 8; d71 > 0; d71 /= 2) {
                const float v72 = __shfl_xor_sync(0xffffffffu, acc64[r70], d71);
                acc64[r70] = lw_max(acc64[r70], v72);
            }
        }
        #pragma unroll
        for (int r73 = 0; r73 < 4; ++r73) {
            const float v75 = s3_rows[r73];
            s3_rows[r73] = lw_max(s3_rows[r73], acc64[r73]);
            const float v76 = s3_rows[r73] == __uint_as_float(0xff800000u) ? 0.0f : s3_rows[r73];
            const float v77 = v75 == __uint_as_float(0xff800000u) ? 0.0f : expf(reference[r73] - v76);
            reference[r73] = v76;
            if (v77 != 1) {
                acc12[r73] *= v77;
                acc13[r73] *= v77;
                #pragma unroll
                for (int c74 = 0; c74 < 4; ++c74) {
                    r10_sums[r73 * 4 + c74] *= v77;
                }
            }
        }
        float weight[16];
        #pragma unroll
        for (int r78 = 0; r78 < 4; ++r78) {
            #pragma unroll
            for (int c79 = 0; c79 < 4; ++c79) {
                const int i80 = at10 + r78 / 4 * 64 + (int)threadIdx.y * 4 + r78 % 4;
                const int i81 = first15 + c79 / 4 * 64 + (int)threadIdx.x * 4 + c79 % 4;
                if (i80 < n28 && i81 < n16) {
                    const float v82 = p0[r78 * 4 + c79] * 0x1.99999ap-3f;
                    const float v83 = v82 - reference[r78];
                    const float v84 = expf(v83);
                    weight[r78 * 4 + c79] = v84;
                    lw_add(acc12[r78], acc13[r78], weight[r78 * 4 + c79]);
                }
            }
        }
        #pragma unroll
        for (int a85 = 0; a85 < 4; ++a85) {
            #pragma unroll
            for (int g86 = 0; g86 < 1; ++g86) {
                lw_pack<float, 4> whole;
                #pragma unroll
                for (int e87 = 0; e87 < 4; ++e87) {
                    const int at88 = g86 * 4 + e87;
                    whole.at[e87] = 0;
                    const int i89 = at10 + at88 / 4 * 64 + (int)threadIdx.y * 4 + at88 % 4;
                    const int i90 = first15 + a85 / 4 * 64 + (int)threadIdx.x * 4 + a85 % 4;
                    if (i89 < n28 && i90 < n16) {
                        whole.at[e87] = weight[at88 * 4 + a85];
                    }
                }
                *(lw_pack<float, 4>*)&lw_kept[a85 / 4 * 64 + (int)threadIdx.x * 4 + a85 % 4][g86 * 64 + (int)threadIdx.y * 4] = whole;
            }
        }
         {
            float (*const right_stages)[16][68] = (float (*)[16][68])(lw_near + 0);
            float right_stages_next[4];
            int stage91 = 0;
            for (int first92 = -16; first92 < 64; first92 += 16) {
                const bool more93 = first92 + 16 < 64;
                if (more93) {
                    #pragma unroll
                    for (int u94 = 0; u94 < 1; ++u94) {
                        const int at95 = u94 * 256 + (int)threadIdx.y * 16 + (int)threadIdx.x;
                        const int at96 = at95 % 16 * 4;
                        const int at97 = at95 / 16;
                        const int i98 = at11 + at96;
                        const int k99 = first15 + first92 + 16 + at97;
                        if (n100 % 4 == 0 && n102 % 4 == 0 && i98 + 4 <= n100 && k99 < n16) {
                            lw_pack<float, 4> pack103;
                            pack103 = *(const lw_pack<float, 4>*)&x2[i98 + k99 * n100 + i9 * n102];
                            #pragma unroll
                            for (int e104 = 0; e104 < 4; ++e104) {
                                const float v105 = pack103.at[e104];
                                right_stages_next[u94 * 4 + e104] = v105;
                            }
                        } else {
                            #pragma unroll
                            for (int e106 = 0; e106 < 4; ++e106) {
                                right_stages_next[u94 * 4 + e106] = 0;
                                if ((i98 + e106) < n100 && k99 < n16) {
                                    const float v107 = x2[(i98 + e106) + k99 * n100 + i9 * n102];
                                    right_stages_next[u94 * 4 + e106] = v107;
                                }
                            }
                        }
                    }
                }
                if (first92 >= 0) {
                    float (*const left)[68] = (float (*)[68])&lw_kept[first92][0];
                    auto* const right = right_stages[stage91];
                    #pragma unroll 4
                    for (int k108 = 0; k108 < 16; ++k108) {
                        lw_pack<float, 4> left_now[1];
                        #pragma unroll
                        for (int g109 = 0; g109 < 1; ++g109) {
                            left_now[g109] = *(const lw_pack<float, 4>*)&left[k108][g109 * 64 + (int)threadIdx.y * 4];
                        }
                        lw_pack<float, 4> right_now[1];
                        #pragma unroll
                        for (int g110 = 0; g110 < 1; ++g110) {
                            right_now[g110] = *(const lw_pack<float, 4>*)&right[k108][g110 * 64 + (int)threadIdx.x * 4];
                        }
                        #pragma unroll
                        for (int r111 = 0; r111 < 4; ++r111) {
                            #pragma unroll
                            for (int c112 = 0; c112 < 4; ++c112) {
                                r10_sums[r111 * 4 + c112] = fmaf(left_now[r111 / 4].at[r111 % 4], right_now[c112 / 4].at[c112 % 4], r10_sums[r111 * 4 + c112]);
                            }
                        }
                    }
                }
                stage91 = 1 - stage91;
                if (more93) {
                    #pragma unroll
                    for (int u113 = 0; u113 < 1; ++u113) {
                        const int at115 = u113 * 256 + (int)threadIdx.y * 16 + (int)threadIdx.x;
                        const int at116 = at115 % 16 * 4;
                        const int at117 = at115 / 16;
                        lw_pack<float, 4> whole;
                        #pragma unroll
                        for (int e114 = 0; e114 < 4; ++e114) {
                            whole.at[e114] = right_stages_next[u113 * 4 + e114];
                        }
                        *(lw_pack<float, 4>*)&right_stages[stage91][at117][at116] = whole;
                    }
                }
                __syncthreads();
            }
        }
    }
    float s7_rows[4];
    float (*const table118)[17] = (float (*)[17])lw_near;
    #pragma unroll
    for (int r119 = 0; r119 < 4; ++r119) {
        float all120 = lw_added((acc12 + r119)[0], (acc13 + r119)[0]);
        table118[r119 / 4 * 64 + (int)threadIdx.y * 4 + r119 % 4][(int)threadIdx.x] = all120;
    }
    __syncthreads();
    #pragma unroll
    for (int r119 = 0; r119 < 4; ++r119) {
        float all121 = table118[r119 / 4 * 64 + (int)threadIdx.y * 4 + r119 % 4][0];
        for (int k122 = 1; k122 < 16; ++k122) {
            all121 = all121 + table118[r119 / 4 * 64 + (int)threadIdx.y * 4 + r119 % 4][k122];
        }
        const float v123 = all121;
        s7_rows[r119] = v123;
    }
    __syncthreads();
    #pragma unroll
    for (int r124 = 0; r124 < 4; ++r124) {
        #pragma unroll
        for (int c125 = 0; c125 < 4; ++c125) {
            r10_sums[r124 * 4 + c125] /= s7_rows[r124];
        }
    }
    #pragma unroll
    for (int r126 = 0; r126 < 4; ++r126) {
        const int i128 = at10 + r126 / 4 * 64 + (int)threadIdx.y * 4 + r126 % 4;
        #pragma unroll
        for (int g127 = 0; g127 < 1; ++g127) {
            const int i129 = at11 + g127 * 64 + (int)threadIdx.x * 4;
            if (n100 % 4 == 0 && n131 % 4 == 0 && i128 < n28 && i129 + 4 <= n100) {
                lw_pack<float, 4> pack132;
                #pragma unroll
                for (int e133 = 0; e133 < 4; ++e133) {
                    pack132.at[e133] = r10_sums[r126 * 4 + g127 * 4 + e133];
                }
                *(lw_pack<float, 4>*)&y0[i129 + i128 * n100 + i9 * n131] = pack132;
            } else {
                #pragma unroll
                for (int e134 = 0; e134 < 4; ++e134) {
                    if (i128 < n28 && i129 + e134 < n100) {
                        y0[(i129 + e134) + i128 * n100 + i9 * n131] = r10_sums[r126 * 4 + g127 * 4 + e134];
                    }
                }
            }
        }
    }
}
