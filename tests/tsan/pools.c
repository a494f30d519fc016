/* Random tasks in chains, put by one thread and run by several, for ThreadSanitizer: `make tsan`, or pools PROGRAMS SEED.

   Each task adds to a number of its own those of earlier tasks that it waits for, without any atomics. So two tasks that
   the pool does not order are a race, which the sanitizer tells, or a wrong sum, which this program tells itself. The
   main thread does what Python does: it waits for numbers, is told, calls threads, and makes calls itself for a while.
   Beside that, threads help it with a job, whose items are counted without atomics, too. */

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdint.h>
#include <time.h>

typedef sem_t *stf_lock;
#define POOL_NEW_LOCK() new_lock()
#define POOL_FREE_LOCK(lock) (sem_destroy(lock), free(lock))
#define POOL_ACQUIRE(lock) ((void)sem_wait(lock))
#define POOL_RELEASE(lock) ((void)sem_post(lock))
#define POOL_ACQUIRE_FOR(lock, us) acquire_for((lock), (us))

#include <stdlib.h>

static sem_t *new_lock(void) {
    sem_t *lock = malloc(sizeof(sem_t));
    sem_init(lock, 0, 1);
    return lock;
}

static int acquire_for(sem_t *lock, long us) {
    struct timespec end;
    timespec_get(&end, TIME_UTC);
    end.tv_nsec += us * 1000;
    if (end.tv_nsec >= 1000000000) end.tv_sec++, end.tv_nsec -= 1000000000;
    return sem_timedwait(lock, &end) == 0;
}

#include "../../src/stf/_drivers/pools.h"

#include <stdio.h>

enum { CHAINS = 6, TASKS = 120, WAITS = 3, THREADS = 4, ITEMS = 40 };

static stf_pool pool;
static stf_chain chains[CHAINS];
static int64_t issued[CHAINS];
static int64_t values[TASKS], wanted[TASKS], number_of[TASKS], chain_of[TASKS];
static stf_sleeper sleepers[THREADS];
static sem_t told; /* a thread has found that the main one is needed */
static int64_t left; /* tasks that were put, and not let go */
static uint64_t state;

static uint64_t draw(uint64_t below) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state % below;
}

static int64_t reached_by(int64_t chain) { return stf_number_of(chains + chain); }

static int add(int64_t *slots) {
    int64_t sum = 1;
    for (int64_t i = 0; i < slots[2]; i++) sum += values[slots[3 + i]] % 1000003;
    for (volatile int64_t i = 0; i < slots[0]; i++) continue; /* a hostile delay */
    values[slots[1]] += sum;
    return 0;
}

static int64_t items[ITEMS], next_item, items_done;

static void do_items(const int64_t *called) {
    int64_t item;
    while (ATOMIC_LOAD(called) == 0 && (item = ATOMIC_ADD(&next_item, 1)) < ITEMS) {
        items[item]++;
        ATOMIC_ADD(&items_done, 1);
    }
}

static void help(void *what, const int64_t *called, int (*has_work)(void *), void *work) {
    (void)what;
    do_items(called);
    for (int looks = 0; looks < 50 && ATOMIC_LOAD(called) == 0 && !has_work(work); looks++) sched_yield();
}

static stf_job job = {.help = help};

/* Do a job with those that come; it is over when nobody is there. Return whether each item was done once. */
static int do_job(void) {
    static const int64_t never = 0;
    memset(items, 0, sizeof items);
    ATOMIC_STORE(&items_done, 0);
    ATOMIC_STORE(&next_item, 0);
    stf_share(&pool, &job, (int64_t)draw(THREADS + 1));
    if (draw(2)) sched_yield();
    do_items(&never);
    while (ATOMIC_LOAD(&items_done) < ITEMS) sched_yield();
    while (!stf_end_job(&pool, &job)) sched_yield();
    for (int i = 0; i < ITEMS; i++)
        if (items[i] != 1) return 0;
    return 1;
}

static void *serve(void *mine) {
    stf_sleeper *me = mine;
    while (stf_rest_in(&pool, me)) sem_post(&told);
    return NULL;
}

/* What Python does when it is needed. */
static void collect(void) {
    stf_task *task;
    while (stf_asks(&pool) && (task = stf_take_asked(&pool)) != NULL) {
        task->body(task->slots);
        POOL_ACQUIRE(pool.lock);
        stf_finish(&pool, task);
        POOL_RELEASE(pool.lock);
    }
    while (stf_next_reached(&pool) != NULL) continue;
    for (; (task = stf_next_done(&pool)) != NULL; left--) {
        free(task->slots);
        free(task->object); /* which holds its fate */
        free(task);
    }
}

static void wait_for(int64_t chain, int64_t number) {
    while (!stf_want(&pool, chains + chain, number)) {
        stf_change_waiting(&pool, 1);
        sem_wait(&told);
        stf_change_waiting(&pool, -1);
        collect();
    }
    stf_want_only(&pool, chains + chain, 0);
}

static void put(int64_t number) {
    int64_t chain = (int64_t)draw(CHAINS), used = 0, sum = 1;
    stf_task *task = stf_new_task(WAITS);
    int *fate = calloc(1, sizeof(int));
    task->slots = malloc((3 + WAITS) * sizeof(int64_t));
    task->body = add, task->fate = fate, task->object = fate, task->is_timed = number % 7 == 0;
    task->cost_ns = (int64_t)draw(30000);
    task->slots[0] = draw(4) ? 0 : (int64_t)draw(3000);
    task->slots[1] = number;
    for (int64_t i = 0, count = number ? (int64_t)draw(WAITS + 1) : 0; i < count; i++) {
        int64_t other = (int64_t)draw((uint64_t)number);
        if (chain_of[other] != chain) stf_follow(task, chains + chain_of[other], number_of[other]);
        task->slots[3 + used++] = other;
        sum += wanted[other] % 1000003;
    }
    task->slots[2] = used;
    chain_of[number] = chain, number_of[number] = ++issued[chain], wanted[number] = sum;
    if (draw(8) == 0 && reached_by(chain) == issued[chain] - 1) { /* a number that the stream gets to without a task */
        ATOMIC_STORE_LATE(&chains[chain].reached, issued[chain]);
        number_of[number] = ++issued[chain];
    }
    stf_put(&pool, chains + chain, number_of[number], task);
    left++;
}

int main(int argc, char **argv) {
    int programs = argc > 1 ? atoi(argv[1]) : 200;
    state = 88172645463325252u + (argc > 2 ? (uint64_t)atoi(argv[2]) : 0);
    sem_init(&told, 0, 0);
    pool.lock = POOL_NEW_LOCK();
    pool.given = calloc(POOL_ROOM, sizeof(stf_task *)), pool.done = calloc(POOL_ROOM, sizeof(stf_task *));
    for (int i = 0; i < CHAINS; i++) chains[i].stream = chains + i;
    for (int program = 0; program < programs; program++) {
        pthread_t threads[THREADS];
        int count = 1 + (int)draw(THREADS);
        memset(values, 0, sizeof values);
        for (int i = 0; i < count; i++) {
            memset(sleepers + i, 0, sizeof(stf_sleeper));
            sleepers[i].lock = POOL_NEW_LOCK();
            POOL_ACQUIRE(sleepers[i].lock);
            pthread_create(threads + i, NULL, serve, sleepers + i);
        }
        for (int64_t number = 0; number < TASKS; number++) {
            put(number);
            if (draw(20) == 0) stf_ask(&pool);
            if (draw(10) == 0) collect();
            if (draw(30) == 0 && !do_job()) {
                printf("a job of program %d is wrong\n", program);
                return 1;
            }
            if (draw(30) == 0) {
                int64_t chain = (int64_t)draw(CHAINS);
                wait_for(chain, issued[chain]);
            }
        }
        for (int i = 0; i < CHAINS; i++) wait_for(i, issued[i]);
        for (collect(); left > 0; collect()) sched_yield();
        for (int i = 0; i < count; i++) {
            stf_call(sleepers + i);
            pthread_join(threads[i], NULL);
            POOL_FREE_LOCK(sleepers[i].lock);
        }
        if (memcmp(values, wanted, sizeof wanted) != 0) {
            printf("program %d is wrong\n", program);
            return 1;
        }
    }
    printf("%d programs of pools, none wrong\n", programs);
    return 0;
}
