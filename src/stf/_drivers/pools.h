/* Compiled bodies that threads run without Python, each after those that it waits for: see pools.py, which tells the story.

   It stands alone, so that tests/tsan can compile it with ThreadSanitizer. */

#ifndef STF_POOLS_H
#define STF_POOLS_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef PY_VERSION_HEX
#include <pythread.h>
typedef PyThread_type_lock stf_lock;
#define POOL_NEW_LOCK() PyThread_allocate_lock()
#define POOL_FREE_LOCK(lock) PyThread_free_lock(lock)
#define POOL_ACQUIRE(lock) ((void)PyThread_acquire_lock((lock), 1))
#define POOL_RELEASE(lock) PyThread_release_lock(lock)
#endif /* else who includes it says what these are */

#ifdef _MSC_VER
#include <windows.h>
#define POOL_LOAD(p) ((int64_t)InterlockedCompareExchange64((volatile LONG64 *)(p), 0, 0))
#define POOL_STORE(p, v) ((void)InterlockedExchange64((volatile LONG64 *)(p), (LONG64)(v)))
#define POOL_SWAP(p, v) ((int64_t)InterlockedExchange64((volatile LONG64 *)(p), (LONG64)(v)))
#define POOL_RELAX() YieldProcessor()
#define POOL_YIELD() SwitchToThread()
#else
#include <sched.h>
#define POOL_LOAD(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
#define POOL_STORE(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)
#define POOL_SWAP(p, v) __atomic_exchange_n((p), (v), __ATOMIC_ACQ_REL)
#if defined(__x86_64__) || defined(__i386__)
#define POOL_RELAX() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define POOL_RELAX() __asm__ __volatile__("yield")
#else
#define POOL_RELAX() ((void)0)
#endif
#define POOL_YIELD() sched_yield()
#endif

#ifdef __linux__
extern int sched_getcpu(void);
#define POOL_CORE() sched_getcpu()
#else
#define POOL_CORE() (-1)
#endif

enum { POOL_LOOKS = 64, POOL_YIELDS = 16 }; /* between yields, of one thread that finds nothing to do; until it sleeps */
enum { POOL_CALL_NS = 20000 };              /* of work, for which a thread is called beside one that runs tasks */
enum { POOL_LINE = 64 };                    /* bytes of a line of the cache, which takes long to go from core to core */
enum { POOL_BEGUN = 1 };                    /* the fate of a task whose body has begun, as the engine knows it */

typedef int (*stf_compiled)(int64_t *slots); /* 0 if all went well */

struct stf_task;

typedef struct stf_edge { /* a task that waits for another one */
    struct stf_task *task;
    struct stf_edge *next;
} stf_edge;

typedef struct stf_chain { /* the tasks of a stream that are not done, the oldest first: each waits for the one before */
    struct stf_task *first, *last;
    int64_t *reached;        /* the number that the stream has got to */
    int64_t wanted;          /* the least number that somebody waits for whom Python must call; 0: nobody does */
    int64_t is_held;         /* what comes next on the stream waits until the chain is empty */
    struct stf_chain *next;  /* of those that have got so far */
    int64_t is_listed;
    void *stream;
} stf_chain;

typedef struct stf_task {
    stf_compiled body;
    int64_t *slots;
    int *fate; /* says when it has begun; it belongs to `object` */
    void *object;
    stf_chain *chain;
    struct stf_task *next, *before; /* in the chain; `next` also among those that are done */
    struct stf_task *next_ready;
    stf_edge *after; /* the tasks that wait for it */
    stf_edge *edges; /* room for its own */
    int64_t left;    /* tasks that it waits for */
    int64_t number;  /* that its stream gets to with it; 0: not known yet */
    int64_t cost_ns; /* about how long it takes */
    int64_t is_timed, took_ns;
} stf_task;

typedef struct stf_sleeper { /* a thread that runs tasks, and is called by others */
    stf_lock lock;
    int64_t is_called;  /* by who has the GIL */
    int64_t is_posted;  /* the lock is released */
    int64_t is_asleep;  /* among `sleepers` */
    struct stf_sleeper *next;
} stf_sleeper;

typedef struct {
    stf_lock lock;
    stf_task *ready, *last_ready;
    stf_task *done, *last_done; /* of whom Python was not told yet */
    stf_chain *reached;         /* which have got to what somebody waits for */
    stf_sleeper *sleepers;
    int64_t has_reached; /* `reached` is not empty, and no thread is on its way to Python */
    int64_t count;       /* of tasks that are not done */
    int64_t ready_ns;    /* about how long those take that are ready */
    int64_t running;     /* threads that run tasks */
    int64_t waiting;     /* threads that wait for a number, and leave their cores to others */
    int64_t asks;        /* Python looks at each task before it begins, until all are done */
    int64_t padding[POOL_LINE / 8];
    int64_t looking; /* threads that look for a task */
    int64_t bell;    /* what they look at: a line of the cache that is written once for each task */
    int64_t core;    /* where the last task was put from while they look; -1: the system does not say */
    int64_t more_padding[POOL_LINE / 8];
} stf_pool;

static int64_t stf_clock(void) {
    struct timespec now;
    timespec_get(&now, TIME_UTC);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* -- a task (all with the lock of the pool, but for its making) --------------------------------------------------- */

/* Return a task with so many slots that may wait for so many others; NULL if there is no memory. */
static stf_task *stf_new_task(size_t slots, size_t waits) {
    stf_task *task = (stf_task *)malloc(sizeof(stf_task) + (waits + 1) * sizeof(stf_edge) + slots * sizeof(int64_t));
    if (task == NULL) return NULL;
    memset(task, 0, sizeof(stf_task));
    task->edges = (stf_edge *)(task + 1);
    task->slots = (int64_t *)(task->edges + waits + 1);
    return task;
}

static void stf_follow(stf_task *task, stf_task *before) {
    stf_edge *edge = task->edges++;
    edge->task = task, edge->next = before->after;
    before->after = edge;
    task->left++;
}

/* Return the first task with which a stream gets to a number; NULL if there is none. */
static stf_task *stf_task_of(stf_chain *chain, int64_t number) {
    stf_task *found = NULL, *task = chain->last;
    while (task != NULL && task->number == 0) task = task->before;
    for (; task != NULL && task->number >= number; task = task->before)
        if (task->number) found = task;
    return found;
}

static void stf_post(stf_sleeper *sleeper) {
    if (!POOL_SWAP(&sleeper->is_posted, 1)) POOL_RELEASE(sleeper->lock);
}

/* Let a thread come for the tasks that are ready, unless one looks already, or those that run tasks will soon be there:
   who puts tasks has a core, too, and to call a thread takes as long as some tasks. Return whether one comes. */
static int stf_call_one(stf_pool *pool) {
    stf_sleeper *sleeper = pool->sleepers;
    if (POOL_LOAD(&pool->looking)) {
        POOL_STORE(&pool->core, (int64_t)POOL_CORE());
        POOL_STORE(&pool->bell, pool->bell + 1);
        return 1;
    }
    if (pool->running && !pool->waiting && pool->ready_ns < POOL_CALL_NS) return 1;
    if (sleeper == NULL) return 0;
    pool->sleepers = sleeper->next;
    sleeper->is_asleep = 0;
    stf_post(sleeper);
    return 1;
}

/* A thread begins to wait, or has waited. */
static void stf_change_waiting(stf_pool *pool, int change) {
    POOL_ACQUIRE(pool->lock);
    pool->waiting += change;
    if (change > 0 && pool->ready != NULL) stf_call_one(pool);
    POOL_RELEASE(pool->lock);
}

static void stf_make_ready(stf_pool *pool, stf_task *task) {
    task->next_ready = NULL;
    pool->ready_ns += task->cost_ns;
    if (pool->ready == NULL)
        POOL_STORE(&pool->ready, task);
    else
        pool->last_ready->next_ready = task;
    pool->last_ready = task;
}

/* Put a task, which follows what it waits for in other chains, at the end of its own; return whether it will be run. */
static int stf_put(stf_pool *pool, stf_chain *chain, stf_task *task) {
    task->chain = chain;
    task->before = chain->last;
    if (chain->last == NULL) {
        POOL_STORE(&chain->first, task);
    } else {
        chain->last->next = task;
        stf_follow(task, chain->last);
    }
    chain->last = task;
    pool->count++;
    if (task->left) return 1;
    stf_make_ready(pool, task);
    return stf_call_one(pool);
}

static stf_task *stf_take(stf_pool *pool) {
    stf_task *task = pool->ready;
    if (task != NULL) {
        POOL_STORE(&pool->ready, task->next_ready);
        pool->ready_ns -= task->cost_ns;
    }
    return task;
}

static void stf_list(stf_pool *pool, stf_chain *chain) {
    int is_wanted = chain->wanted && chain->wanted <= *chain->reached;
    if (chain->is_listed || !(is_wanted || (chain->is_held && chain->first == NULL))) return;
    chain->is_listed = 1;
    chain->next = pool->reached;
    POOL_STORE(&pool->reached, chain);
    pool->has_reached = 1;
}

/* Let the last task of a stream be that with which it gets to a number; return whether there is one. */
static int stf_give_number(stf_pool *pool, stf_chain *chain, int64_t number) {
    POOL_ACQUIRE(pool->lock);
    int found = chain->last != NULL;
    if (found) chain->last->number = number;
    POOL_RELEASE(pool->lock);
    return found;
}

/* Return whether a stream has got to a number; if not, Python is told when it does, if that is with a task. */
static int stf_want(stf_pool *pool, stf_chain *chain, int64_t number) {
    POOL_ACQUIRE(pool->lock);
    int is_there = POOL_LOAD(chain->reached) >= number;
    if (!is_there && (chain->wanted == 0 || number < chain->wanted)) chain->wanted = number;
    POOL_RELEASE(pool->lock);
    return is_there;
}

/* Say anew what is waited for: a number, or 0. */
static void stf_want_only(stf_pool *pool, stf_chain *chain, int64_t number) {
    POOL_ACQUIRE(pool->lock);
    chain->wanted = number;
    POOL_RELEASE(pool->lock);
}

/* Return whether a stream has tasks that are not done; then Python is told when they are. */
static int stf_hold(stf_pool *pool, stf_chain *chain) {
    POOL_ACQUIRE(pool->lock);
    int is_held = chain->first != NULL;
    chain->is_held = is_held;
    POOL_RELEASE(pool->lock);
    return is_held;
}

/* Return a stream that has got to what somebody waits for; NULL if there is none. */
static void *stf_next_reached(stf_pool *pool) {
    POOL_ACQUIRE(pool->lock);
    stf_chain *chain = pool->reached;
    if (chain != NULL) {
        POOL_STORE(&pool->reached, chain->next);
        chain->is_listed = 0;
    }
    pool->has_reached = 0;
    POOL_RELEASE(pool->lock);
    return chain == NULL ? NULL : chain->stream;
}

/* Return the tasks that are done and that nobody was told of. */
static stf_task *stf_take_done(stf_pool *pool) {
    POOL_ACQUIRE(pool->lock);
    stf_task *first = pool->done;
    POOL_STORE(&pool->done, (stf_task *)NULL);
    POOL_RELEASE(pool->lock);
    return first;
}

/* Let Python look at each task that has not begun, before it does. */
static void stf_ask(stf_pool *pool) {
    POOL_ACQUIRE(pool->lock);
    POOL_STORE(&pool->asks, (int64_t)(pool->count > 0));
    POOL_RELEASE(pool->lock);
}

/* A task is done: let those go that wait for it. */
static void stf_finish(stf_pool *pool, stf_task *task) {
    stf_chain *chain = task->chain;
    POOL_STORE(&chain->first, task->next);
    if (task->next == NULL)
        chain->last = NULL;
    else
        task->next->before = NULL;
    if (task->number > *chain->reached) POOL_STORE(chain->reached, task->number);
    for (stf_edge *edge = task->after; edge != NULL; edge = edge->next)
        if (--edge->task->left == 0) stf_make_ready(pool, edge->task);
    task->next = NULL;
    if (pool->done == NULL)
        POOL_STORE(&pool->done, task);
    else
        pool->last_done->next = task;
    pool->last_done = task;
    if (--pool->count == 0) POOL_STORE(&pool->asks, 0);
    stf_list(pool, chain);
}

/* -- looks without the lock, which may be late -------------------------------------------------------------------- */

static int stf_asks(stf_pool *pool) { return POOL_LOAD(&pool->asks) != 0; }
static int stf_has_ready(stf_pool *pool) { return POOL_LOAD(&pool->ready) != 0; }
static int stf_has_done(stf_pool *pool) { return POOL_LOAD(&pool->done) != 0; }
static int stf_has_reached(stf_pool *pool) { return POOL_LOAD(&pool->reached) != 0; }
static int64_t stf_number_of(stf_chain *chain) { return POOL_LOAD(chain->reached); }
static int stf_is_empty(stf_chain *chain) { return POOL_LOAD(&chain->first) == 0; }

/* -- threads, without the GIL ------------------------------------------------------------------------------------- */

/* Run tasks as long as there are any; return whether Python is needed, and say whether a task was run. */
static int stf_run(stf_pool *pool, int *has_run) {
    int needed = 0;
    POOL_ACQUIRE(pool->lock);
    pool->running++;
    while (!pool->asks) {
        stf_task *task = stf_take(pool);
        if (task == NULL) break;
        *has_run = 1;
        *task->fate = POOL_BEGUN;
        if (pool->ready != NULL) stf_call_one(pool);
        POOL_RELEASE(pool->lock);
        int64_t start = task->is_timed ? stf_clock() : 0;
        int failed = task->body(task->slots);
        if (task->is_timed) task->took_ns = stf_clock() - start;
        POOL_ACQUIRE(pool->lock);
        if (failed) { /* Python calls it again for its error, and looks what that means for the others */
            POOL_STORE(&pool->asks, 1);
            task->next_ready = pool->ready;
            pool->ready_ns += task->cost_ns;
            if (pool->ready == NULL) pool->last_ready = task;
            POOL_STORE(&pool->ready, task);
            break;
        }
        stf_finish(pool, task);
        if (pool->has_reached) break;
    }
    pool->running--;
    if (pool->has_reached || (pool->asks && pool->ready != NULL)) {
        needed = 1;
        pool->has_reached = 0;
        if (pool->ready != NULL) stf_call_one(pool);
    }
    POOL_RELEASE(pool->lock);
    return needed;
}

/* Let a thread be called, by who has the GIL. */
static void stf_call(stf_sleeper *sleeper) {
    POOL_STORE(&sleeper->is_called, 1);
    stf_post(sleeper);
}

static void stf_sleep_in(stf_pool *pool, stf_sleeper *me) {
    int sleeps = 1;
    if (pool != NULL) {
        POOL_ACQUIRE(pool->lock);
        sleeps = pool->ready == NULL && !pool->has_reached;
        if (sleeps) {
            me->is_asleep = 1;
            me->next = pool->sleepers;
            pool->sleepers = me;
        }
        POOL_RELEASE(pool->lock);
    }
    if (!sleeps) return;
    POOL_ACQUIRE(me->lock);
    POOL_STORE(&me->is_posted, 0);
    if (pool == NULL) return;
    POOL_ACQUIRE(pool->lock);
    if (me->is_asleep) { /* it was called, and not for a task */
        stf_sleeper **link = &pool->sleepers;
        while (*link != me) link = &(*link)->next;
        *link = me->next;
        me->is_asleep = 0;
    }
    POOL_RELEASE(pool->lock);
}

/* Look for a task for some microseconds, unless another thread does, or this one is called; but do not take the core of
   who puts tasks, where others have the rest. */
static void stf_look(stf_pool *pool, stf_sleeper *me) {
    int64_t heard = POOL_LOAD(&pool->bell);
    if (POOL_SWAP(&pool->looking, 1)) return;
    if (!stf_has_ready(pool)) { /* what is put from here on rings */
        for (int yields = 0; yields < POOL_YIELDS; yields++) {
            int core = POOL_CORE();
            if (core >= 0 && core == POOL_LOAD(&pool->core)) break;
            for (int looks = 0; looks < POOL_LOOKS; looks++) {
                if (POOL_LOAD(&pool->bell) != heard || POOL_LOAD(&me->is_called)) yields = POOL_YIELDS, looks = POOL_LOOKS;
                POOL_RELAX();
            }
            POOL_YIELD();
        }
    }
    POOL_STORE(&pool->looking, 0);
}

/* A thread goes that others may have counted on. */
static void stf_leave(stf_pool *pool) {
    POOL_ACQUIRE(pool->lock);
    if (pool->ready != NULL) stf_call_one(pool);
    POOL_RELEASE(pool->lock);
}

/* Run tasks of a pool, which may be NULL, until the thread is called: 0; or until Python is needed: 1. */
static int stf_rest_in(stf_pool *pool, stf_sleeper *me) {
    for (;;) {
        int has_run = 0;
        if (POOL_SWAP(&me->is_called, 0)) {
            if (pool != NULL) stf_leave(pool);
            return 0;
        }
        if (pool != NULL) {
            if (stf_run(pool, &has_run)) return 1;
            if (has_run) {
                stf_look(pool, me);
                if (POOL_LOAD(&pool->ready) != 0 || POOL_LOAD(&me->is_called)) continue;
            }
        }
        stf_sleep_in(pool, me);
    }
}

#endif
