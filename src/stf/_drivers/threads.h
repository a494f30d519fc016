/* What C needs that several threads run: atomics, a clock, and how to wait a moment. */

#ifndef STF_THREADS_H
#define STF_THREADS_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CACHE_LINE = 64 }; /* bytes of a line of the cache, which takes long to go from core to core */

/* Loads and stores are in one order for all threads. ATOMIC_STORE_LATE is for who does not look for an answer, and costs
   less: what was written before it is seen by who sees it. */
#ifdef _MSC_VER
#include <windows.h>
#define ATOMIC_LOAD8(p) (*(volatile uint8_t *)(p))
#define ATOMIC_STORE8(p, v) (_ReadWriteBarrier(), *(volatile uint8_t *)(p) = (uint8_t)(v))
#define ATOMIC_LOAD(p) ((int64_t)InterlockedCompareExchange64((volatile LONG64 *)(p), 0, 0))
#define ATOMIC_STORE(p, v) ((void)InterlockedExchange64((volatile LONG64 *)(p), (LONG64)(v)))
#define ATOMIC_STORE_LATE(p, v) ATOMIC_STORE((p), (v))
#define ATOMIC_SWAP(p, v) ((int64_t)InterlockedExchange64((volatile LONG64 *)(p), (LONG64)(v)))
#define ATOMIC_ADD(p, v) ((int64_t)InterlockedExchangeAdd64((volatile LONG64 *)(p), (v)))
#define CPU_RELAX() YieldProcessor()
#define CPU_YIELD() SwitchToThread()
static void stf_pause(void) { Sleep(0); }
static int stf_swap_if(int64_t *p, int64_t from, int64_t to) {
    return InterlockedCompareExchange64((volatile LONG64 *)p, to, from) == from;
}
#else
#include <sched.h>
#define ATOMIC_LOAD8(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define ATOMIC_STORE8(p, v) __atomic_store_n((p), (uint8_t)(v), __ATOMIC_RELEASE)
#define ATOMIC_LOAD(p) __atomic_load_n((p), __ATOMIC_SEQ_CST) /* as cheap as others, on most machines */
#define ATOMIC_STORE(p, v) __atomic_store_n((p), (v), __ATOMIC_SEQ_CST)
#define ATOMIC_STORE_LATE(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)
#define ATOMIC_SWAP(p, v) __atomic_exchange_n((p), (v), __ATOMIC_SEQ_CST)
#define ATOMIC_ADD(p, v) __atomic_fetch_add((p), (v), __ATOMIC_SEQ_CST)
#if defined(__x86_64__) || defined(__i386__)
#define CPU_RELAX() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define CPU_RELAX() __asm__ __volatile__("yield")
#else
#define CPU_RELAX() ((void)0)
#endif
#define CPU_YIELD() sched_yield()
static void stf_pause(void) {
    struct timespec pause = {0, 50000};
    nanosleep(&pause, NULL);
}
static int stf_swap_if(int64_t *p, int64_t from, int64_t to) {
    return __atomic_compare_exchange_n(p, &from, to, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}
#endif

/* The time in ns, since some time. */
static int64_t stf_now(void) {
    struct timespec now;
#ifdef CLOCK_MONOTONIC
    clock_gettime(CLOCK_MONOTONIC, &now);
#else
    timespec_get(&now, TIME_UTC);
#endif
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

#endif
