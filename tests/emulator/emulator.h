// CUDA source on the CPU: one fiber per thread, one block at a time, warps in a chosen order, each as far as it goes.
//
// Shared memory holds NaNs and nonsense before each block. Reported: threads that wait at different places or for threads
// that left, lanes outside the masks of their warp's operations, and memory that is nobody's (signals of guard pages).
#pragma once
#define LW_EMULATED 1
#define __global__
#define __device__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __restrict__ __restrict
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ static __attribute__((section("lw_shared_memory"), aligned(16)))
#define LW_SHARED(name) unsigned char* const name = emulator::rows

extern "C" {
void* mmap(void*, unsigned long, int, int, int, long) noexcept;
void* memcpy(void*, const void*, unsigned long) noexcept;
void* memset(void*, int, unsigned long) noexcept;
int snprintf(char*, unsigned long, const char*, ...) noexcept;
int _setjmp(void*) noexcept __attribute__((returns_twice));
void longjmp(void*, int) noexcept __attribute__((noreturn));
int sigaction(int, const void*, void*) noexcept;
int sigemptyset(void*) noexcept;
float expf(float) noexcept;
float sqrtf(float) noexcept;
float fabsf(float) noexcept;
float fmaf(float, float, float) noexcept;
float rintf(float) noexcept;
float truncf(float) noexcept;
float floorf(float) noexcept;
float ceilf(float) noexcept;
float copysignf(float, float) noexcept;
double sqrt(double) noexcept;
double fabs(double) noexcept;
double fma(double, double, double) noexcept;
double rint(double) noexcept;
double trunc(double) noexcept;
double floor(double) noexcept;
double ceil(double) noexcept;
double copysign(double, double) noexcept;
extern char __start_lw_shared_memory[] __attribute__((weak));
extern char __stop_lw_shared_memory[] __attribute__((weak));
}

struct dim3 { unsigned x, y, z; };
static dim3 threadIdx, blockIdx, blockDim, gridDim;

template <class To, class From> static inline To lw_same_bits(From x) {
    static_assert(sizeof(To) == sizeof(From), "bits of the same width");
    To y;
    memcpy(&y, &x, sizeof y);
    return y;
}
static inline int __float_as_int(float x) { return lw_same_bits<int>(x); }
static inline unsigned __float_as_uint(float x) { return lw_same_bits<unsigned>(x); }
static inline float __int_as_float(int x) { return lw_same_bits<float>(x); }
static inline float __uint_as_float(unsigned x) { return lw_same_bits<float>(x); }
static inline long long __double_as_longlong(double x) { return lw_same_bits<long long>(x); }
static inline double __longlong_as_double(long long x) { return lw_same_bits<double>(x); }
static inline int __float2int_rn(float x) {
    return x != x ? 0 : x >= 0x1p31f ? 0x7fffffff : x < -0x1p31f ? -0x7fffffff - 1 : (int)rintf(x);
}
static inline long long __double2ll_rn(double x) {
    return x != x || x >= 0x1p63 || x < -0x1p63 ? -0x7fffffffffffffffll - 1 : (long long)rint(x);
}
static inline float lw_from_f16(unsigned short bits) { return (float)lw_same_bits<_Float16>(bits); }
static inline unsigned short lw_to_f16(float x) { return lw_same_bits<unsigned short>((_Float16)x); }
static inline unsigned short lw_to_f16(double x) { return lw_same_bits<unsigned short>((_Float16)x); }

namespace emulator {
enum State { READY, AT_BARRIER, IN_WARP, LEFT };
struct Fiber { void* stack; State state; unsigned mask; int operation; int line; dim3 thread; bool odd, odd_in_warp; };
const unsigned long STACK = 65536;
const int MOST = 1024, WARP = 32, SHARED = 232448;
static char* stacks;
static Fiber fibers[MOST];
static int count, current;
static void* scheduler;
static char message[256];
static bool failed;
static unsigned long long slots[MOST / WARP][2][WARP];  // two, as a lane may be one exchange ahead
static unsigned char turn[MOST];
__attribute__((aligned(128))) static unsigned char rows[SHARED];
struct Copy { void* to; const void* from; int size, group; };
const int MOST_COPIES = 256;
static Copy copies[MOST][MOST_COPIES];
static int copied[MOST], groups[MOST];
static void (*body)(void*);
static void* body_arguments;
static long rescue[64];  // a jmp_buf

#if !defined(__x86_64__)
#error "the emulator switches fibers on x86-64 alone"
#endif
extern "C" void lw_switch(void** save, void* to);
asm(R"(
.text
.local lw_switch
.type lw_switch,@function
lw_switch:
    pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
    ret
)");

#ifdef LW_RACES  // ThreadSanitizer sees each fiber as a thread
extern "C" {
void* __tsan_get_current_fiber(void);
void* __tsan_create_fiber(unsigned);
void __tsan_switch_to_fiber(void*, unsigned);
void __tsan_acquire(void*);
void __tsan_release(void*);
}
#define UNSEEN __attribute__((no_sanitize("thread")))
static void *seen[MOST], *seen_scheduler;
// Two of each, in turn: whoever comes late to one must not learn what others did before the next.
static char order_of_barrier[2], order_of_warp[MOST / WARP][2], order_of_kernel;
#define ENTER(i) do { if (!seen_scheduler) seen_scheduler = __tsan_get_current_fiber(); \
    if (!seen[i]) seen[i] = __tsan_create_fiber(0); __tsan_switch_to_fiber(seen[i], 0); } while (0)
#define RETURN() __tsan_switch_to_fiber(seen_scheduler, 1)  // the scheduler does not learn what the thread did
#define RELEASE(x) __tsan_release(&x)
#define ACQUIRE(x) __tsan_acquire(&x)
#else
#define UNSEEN
#define ENTER(i)
#define RETURN()
#define RELEASE(x)
#define ACQUIRE(x)
#endif

UNSEEN __attribute__((noinline)) static void wait(State state) {
    Fiber& f = fibers[current];
    f.state = state;
    lw_switch(&f.stack, scheduler);
    asm volatile("" ::: "memory");
}
UNSEEN static void fail(const char* format, int a = 0, int b = 0) {
    if (!failed) snprintf(message, sizeof message, format, a, b, blockIdx.x, fibers[current].thread.x, fibers[current].thread.y);
    failed = true;
    for (;;) wait(LEFT);
}
UNSEEN static void entry() {
    body(body_arguments);
    RELEASE(order_of_kernel);
    for (;;) wait(LEFT);
}
UNSEEN static inline int lane() { return current % WARP; }

// Whether all lanes of a warp's operation have come to it.
UNSEEN static bool met(int warp, const Fiber& f) {
    for (int k = 0; k < WARP; ++k) {
        if (!(f.mask >> k & 1)) continue;
        int other = warp * WARP + k;
        if (other >= count || fibers[other].state == LEFT) {
            snprintf(message, sizeof message, "lane %d of mask 0x%x is not there (block %u, thread %u, %u)", k, f.mask,
                     blockIdx.x, f.thread.x, f.thread.y);
            failed = true;
            return false;
        }
        const Fiber& o = fibers[other];
        if (o.state != IN_WARP || o.mask != f.mask || o.operation != f.operation) return false;
    }
    return true;
}
UNSEEN static bool run_warp(int warp, bool reverse) {
    int low = warp * WARP, high = low + WARP < count ? low + WARP : count;
    bool any = false;
    for (bool again = true; again && !failed;) {
        again = false;
        for (int k = low; k < high && !failed; ++k) {
            int i = reverse ? high - 1 - (k - low) : k;
            Fiber& f = fibers[i];
            if (f.state == IN_WARP && met(warp, f))
                for (int l = 0; l < WARP; ++l)
                    if (f.mask >> l & 1) fibers[low + l].state = READY;
            if (f.state != READY || failed) continue;
            current = i;
            threadIdx = f.thread;
            ENTER(i);
            lw_switch(&scheduler, f.stack);
            RETURN();
            any = again = true;
        }
    }
    return any;
}
UNSEEN static int run_block(int order) {
    unsigned seed = order * 2654435761u + 1;
    int warps = (count + WARP - 1) / WARP;
    for (int i = 0; i < count; ++i) {
        void** top = (void**)(stacks + (i + 1) * STACK);
        *--top = 0;
        *--top = (void*)entry;
        for (int k = 0; k < 6; ++k) *--top = 0;
        fibers[i] = {top, READY, 0, 0, 0, {i % blockDim.x, i / blockDim.x, 0}, false, false};
        copied[i] = groups[i] = 0;
    }
    for (;;) {
        seed = seed * 1664525u + 1013904223u;
        int turned = order >= 2 ? (seed >> 8) % warps : 0;
        bool reverse = order == 1 || (order >= 2 && (seed >> 5 & 1)), any = false;
        for (int k = 0; k < warps; ++k) {
            any |= run_warp(((reverse ? warps - 1 - k : k) + turned) % warps, reverse);
            if (failed) return 1;
        }
        int left = 0, waiting = 0, line = 0;
        for (int i = 0; i < count; ++i) {
            left += fibers[i].state == LEFT;
            if (fibers[i].state != AT_BARRIER) continue;
            if (waiting++ && fibers[i].line != line) {
                snprintf(message, sizeof message, "threads wait for each other at lines %d and %d (block %u)", line,
                         fibers[i].line, blockIdx.x);
                return 2;
            }
            line = fibers[i].line;
        }
        if (left == count) {
            ACQUIRE(order_of_kernel);
            return 0;
        }
        if (left && waiting && left + waiting == count) {
            snprintf(message, sizeof message, "%d threads left while %d wait for them at line %d (block %u)", left, waiting,
                     line, blockIdx.x);
            return 3;
        }
        if (waiting == count)
            for (int i = 0; i < count; ++i) fibers[i].state = READY;
        else if (!any) {
            snprintf(message, sizeof message, "%d threads left, %d of %d wait at line %d, others for lanes (block %u)", left,
                     waiting, count, line, blockIdx.x);
            return 4;
        }
    }
}
UNSEEN static void barrier(int line) {
    fibers[current].line = line;
    bool odd = fibers[current].odd ^= true;
    (void)odd;
    RELEASE(order_of_barrier[odd]);
    wait(AT_BARRIER);
    ACQUIRE(order_of_barrier[odd]);
}
UNSEEN static inline void meet(unsigned mask, int operation) {
    fibers[current].mask = mask;
    fibers[current].operation = operation;
    if (!(mask >> lane() & 1)) fail("lane %d is not of its own mask 0x%x (block %u, thread %u, %u)", lane(), mask);
    wait(IN_WARP);
}
UNSEEN static void warp_barrier(unsigned mask, int line) {
    int warp = current / WARP;
    bool odd = fibers[current].odd_in_warp ^= true;
    (void)warp, (void)odd;
    RELEASE(order_of_warp[warp][odd]);
    meet(mask, line);
    ACQUIRE(order_of_warp[warp][odd]);
}
template <class T> UNSEEN static inline T exchange(unsigned mask, T x, int from, int operation) {
    int warp = current / WARP, now = turn[current] ^= 1;
    unsigned long long bits = 0;
    memcpy(&bits, &x, sizeof x);
    slots[warp][now][lane()] = bits;
    meet(mask, operation);
    if (!(mask >> from & 1)) fail("lane %d, which is read, is not of the mask 0x%x (block %u, thread %u, %u)", from, mask);
    T y;
    memcpy(&y, &slots[warp][now][from], sizeof y);
    return y;
}

// Copies to shared memory that a thread goes on without: what they go to is nonsense until their group was waited for.
UNSEEN static void copy(void* to, const void* from, int size) {
    int past = (int)(((unsigned long)to | (unsigned long)from) % size);
    if (past) fail("a copy of %d bytes begins %d past a multiple of them (block %u, thread %u, %u)", size, past);
    if (copied[current] == MOST_COPIES) fail("%d copies are under way, and %d more (block %u, thread %u, %u)", MOST_COPIES, 1);
    memset(to, 0xFF, size);
    copies[current][copied[current]++] = {to, from, size, groups[current]};
}
UNSEEN static void end_group() { ++groups[current]; }
UNSEEN static void wait_groups(int newest) {
    int left = 0;
    for (int k = 0; k < copied[current]; ++k) {
        Copy c = copies[current][k];
        if (c.group < groups[current] - newest) memcpy(c.to, c.from, c.size);
        else copies[current][left++] = c;
    }
    copied[current] = left;
}

struct Action { void (*handler)(int); unsigned long rest[32]; };
static void on_signal(int number) {
    snprintf(message, sizeof message, "%s (signal %d, block %u, thread %u, %u)",
             number == 4 ? "an access that is not aligned" : "memory that is nobody's", number, blockIdx.x, threadIdx.x,
             threadIdx.y);
    longjmp(rescue, 1);
}
template <class T> struct Bare { typedef T type; };
template <class T> struct Bare<const T> { typedef T type; };
template <int... I> struct Numbers {};
template <class... A> struct Call {
    void (*function)(A...);
    void** arguments;
    template <int... I> void go(Numbers<I...>) { function(*(typename Bare<A>::type*)arguments[I]...); }
    UNSEEN static void run(void* self) { ((Call*)self)->go(Numbers<__integer_pack(sizeof...(A))...>{}); }
};
template <class... A>
UNSEEN static int launch(void (*function)(A...), unsigned grid, unsigned x, unsigned y, long shared, int order, void** arguments,
                  char* text) {
    count = x * y;
    if (count < 1 || count > MOST || shared > SHARED) {
        snprintf(text, sizeof message, "no such launch: %d threads, %ld bytes", count, shared);
        return 9;
    }
    if (!stacks) stacks = (char*)mmap(0, STACK * MOST, 3, 0x22 | 0x4000, -1, 0);
    Call<A...> call{function, arguments};
    body = Call<A...>::run;
    body_arguments = &call;
    gridDim = {grid, 1, 1};
    blockDim = {x, y, 1};
    failed = false;
    static Action ours, before[3];
    ours.handler = on_signal;
    sigemptyset(ours.rest);
    ours.rest[16] = 0x40000000;  // SA_NODEFER
    sigaction(11, &ours, &before[0]);
    sigaction(7, &ours, &before[1]);
    sigaction(4, &ours, &before[2]);
    volatile int status = 0;
    if (_setjmp(rescue)) {
        status = 5;
    } else {
        for (unsigned k = 0; k < grid && !status; ++k) {
            blockIdx = {order == 1 ? grid - 1 - k : k, 0, 0};
            memset(rows, 0xFF, shared);
            if (__start_lw_shared_memory)
                memset(__start_lw_shared_memory, 0xFF, __stop_lw_shared_memory - __start_lw_shared_memory);
            status = run_block(order);
        }
    }
    sigaction(11, &before[0], 0);
    sigaction(7, &before[1], 0);
    sigaction(4, &before[2], 0);
    if (status) memcpy(text, message, sizeof message);
    return status;
}
}  // namespace emulator

#define __syncthreads() emulator::barrier(__LINE__)
#define __syncwarp() emulator::warp_barrier(0xffffffffu, __LINE__)
template <class T> static inline T __shfl_xor_sync(unsigned mask, T x, int by) {
    return emulator::exchange(mask, x, emulator::lane() ^ by, -1);
}
template <class T> static inline T __shfl_sync(unsigned mask, T x, int from) {
    return emulator::exchange(mask, x, from % emulator::WARP, -4);
}
template <class T> static inline T __shfl_up_sync(unsigned mask, T x, int by) {
    int from = emulator::lane() - by;
    return emulator::exchange(mask, x, from < 0 ? emulator::lane() : from, -2);
}
UNSEEN static inline unsigned __ballot_sync(unsigned mask, int set) {
    int warp = emulator::current / emulator::WARP, now = emulator::turn[emulator::current] ^= 1;
    emulator::slots[warp][now][emulator::lane()] = set != 0;
    emulator::meet(mask, -3);
    unsigned found = 0;
    for (int k = 0; k < emulator::WARP; ++k)
        if (mask >> k & 1) found |= (unsigned)emulator::slots[warp][now][k] << k;
    return found;
}
// Maximum and minimum as a GPU has them: NaN where either is, and -0.0 less than 0.0.
static inline float lw_max(float x, float y) {
    return x != x ? x : y != y ? y : x != y ? (x > y ? x : y) : __builtin_signbit(x) ? y : x;
}
static inline float lw_min(float x, float y) {
    return x != x ? x : y != y ? y : x != y ? (x < y ? x : y) : __builtin_signbit(x) ? x : y;
}
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __ffs(unsigned x) { return __builtin_ffs((int)x); }
static inline int __clzll(unsigned long long x) { return x ? __builtin_clzll(x) : 64; }
// Atomic operations order nothing but themselves, as on a GPU; after each the other lanes of the warp go on first. Those that
// CUDA has, and no others.
template <class T> static inline T lw_after_atomic(T old) {
    emulator::wait(emulator::READY);
    return old;
}
template <class T> static inline T lw_cas(T* at, T expected, T x) {
    __atomic_compare_exchange_n(at, &expected, x, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return expected;
}
template <class T> static inline T lw_most(T* at, T x, bool greatest) {
    T old = __atomic_load_n(at, __ATOMIC_RELAXED);
    while (greatest ? x > old : x < old) {
        T seen = lw_cas(at, old, x);
        if (seen == old) break;
        old = seen;
    }
    return old;
}
#define LW_ATOMICS(T) \
    static inline T atomicCAS(T* at, T expected, T x) { return lw_after_atomic(lw_cas(at, expected, x)); } \
    static inline T atomicExch(T* at, T x) { return lw_after_atomic(__atomic_exchange_n(at, x, __ATOMIC_RELAXED)); } \
    static inline T atomicAdd(T* at, T x) { return lw_after_atomic(__atomic_fetch_add(at, x, __ATOMIC_RELAXED)); }
template <class T, class Bits> static inline T lw_float_add(T* at, T x) {
    Bits old = __atomic_load_n((Bits*)at, __ATOMIC_RELAXED), seen;
    while ((seen = lw_cas((Bits*)at, old, lw_same_bits<Bits>(lw_same_bits<T>(old) + x))) != old) old = seen;
    return lw_after_atomic(lw_same_bits<T>(old));
}
static inline float atomicAdd(float* at, float x) { return lw_float_add<float, unsigned>(at, x); }
static inline double atomicAdd(double* at, double x) { return lw_float_add<double, unsigned long long>(at, x); }
#define LW_COMPARED(T) \
    static inline T atomicMax(T* at, T x) { return lw_after_atomic(lw_most(at, x, true)); } \
    static inline T atomicMin(T* at, T x) { return lw_after_atomic(lw_most(at, x, false)); } \
    static inline T atomicOr(T* at, T x) { return lw_after_atomic(__atomic_fetch_or(at, x, __ATOMIC_RELAXED)); }
LW_ATOMICS(int)
LW_ATOMICS(unsigned)
LW_ATOMICS(unsigned long long)
LW_COMPARED(int)
LW_COMPARED(unsigned)
LW_COMPARED(long long)
LW_COMPARED(unsigned long long)
#define LW_LAUNCHED(name) extern "C" int launch_##name(unsigned grid, unsigned x, unsigned y, long shared, int order, \
                                                       void** arguments, char* text) { \
    return emulator::launch(name, grid, x, y, shared, order, arguments, text); }
