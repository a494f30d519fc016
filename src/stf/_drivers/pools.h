/* Compiled bodies that threads run without Python, each after those that it waits for: see pools.py, which tells the story.

   It stands alone, so that tests/tsan can compile it with ThreadSanitizer. */

#ifndef STF_POOLS_H
#define STF_POOLS_H

#include "threads.h"

#ifdef PY_VERSION_HEX
#include <pythread.h>
typedef PyThread_type_lock stf_lock;
#define POOL_NEW_LOCK() PyThread_allocate_lock()
#define POOL_FREE_LOCK(lock) PyThread_free_lock(lock)
#define POOL_ACQUIRE(lock) ((void)PyThread_acquire_lock((lock), 1))
#define POOL_RELEASE(lock) PyThread_release_lock(lock)
#define POOL_ACQUIRE_FOR(lock, us) (PyThread_acquire_lock_timed((lock), (us), 0) == PY_LOCK_ACQUIRED)
#endif /* else who includes it says what these are */

enum { POOL_NAPS = 4, POOL_NAP_US = 50 }; /* of one thread that finds nothing to do, before it sleeps */
enum { POOL_CALL_NS = 20000 };            /* of work, for which a thread is called beside those that are awake */
enum { POOL_ROOM = 8192 };                /* for tasks that Python was not told of: a power of two */
enum { POOL_BEGUN = 1 };                  /* the fate of a task whose body has begun, as the engine knows it */

typedef int (*stf_compiled)(int64_t *slots); /* 0 if all went well */

struct stf_task;
struct stf_chain;

typedef struct stf_edge { /* a task that waits for another one */
    struct stf_task *task;
    struct stf_edge *next;
} stf_edge;

typedef struct { /* what a task waits for: that a stream gets to a number */
    struct stf_chain *chain;
    int64_t number;
    stf_edge edge;
} stf_wait;

typedef struct stf_chain { /* the tasks of a stream that are not done, the oldest first: each waits for the one before */
    int64_t reached;              /* the number that the stream has got to */
    struct stf_task *first, *last;
    int64_t wanted;               /* the least number that somebody waits for whom Python must call; 0: nobody does */
    struct stf_chain *next;       /* of those that have got so far */
    int64_t is_listed;
    void *stream;
    int64_t padding[CACHE_LINE / 8 + 1]; /* chains lie apart: threads write them, and who puts tasks reads them */
} stf_chain;

typedef struct stf_task {
    stf_compiled body; /* who puts the task writes this line of the cache, and threads only read it; */
    int64_t *slots;
    void *object;
    stf_chain *chain;
    int64_t number;    /* that its stream gets to with it */
    int64_t cost_ns;   /* about how long it takes */
    int32_t waits;     /* how many follow the task in memory */
    int32_t is_timed;
    int *fate;         /* says when it has begun; it belongs to `object` */
    struct stf_task *next, *before; /* in the chain; threads write this line */
    struct stf_task *next_ready;
    stf_edge *after;   /* the tasks that wait for it */
    stf_edge edge;     /* its own for the one before */
    int64_t left;      /* tasks that it waits for */
    int64_t took_ns;
    int64_t has_failed;
} stf_task;

/* What several threads do together. Each comes by itself, and goes when it finds nothing to do, when it is called, or
   when it has waited for a while and there is other work. */
typedef struct stf_job {
    void (*help)(void *what, const int64_t *called, int (*has_work)(void *), void *pool);
    void *what;
    int64_t wanted; /* threads that are to come, with the lock; while there are any, it is among `jobs` */
    int64_t inside; /* threads that have come, with the lock */
    struct stf_job *next;
} stf_job;

typedef struct stf_sleeper { /* a thread that runs tasks, and is called by others */
    stf_lock lock;
    int64_t is_called;  /* by who has the GIL */
    int64_t is_posted;  /* the lock is released */
    int64_t is_asleep;  /* among `sleepers` */
    int64_t naps;       /* and looks again soon */
    int64_t in_body;    /* it runs a task, and does not hear a call before its end */
    struct stf_sleeper *next;
} stf_sleeper;

/* Python, which is one thread at a time, puts tasks into `given`, and takes them from `done`. Threads take them from
   `given`, know what each waits for, and put them into `done`. Neither reads what the other writes but for two counts. */
typedef struct {
    stf_task **given, **done; /* rings with `POOL_ROOM` places */
    int64_t told;             /* Python has taken so many from `done` */
    int64_t unseen_ns;        /* about how long those take that were put since it looked whether threads take them */
    int64_t padding[CACHE_LINE / 8];
    int64_t put; /* so many were put */
    int64_t more_padding[CACHE_LINE / 8];
    stf_lock lock; /* of all that follows */
    stf_task *ready, *last_ready;
    stf_chain *reached; /* which have got to what somebody waits for */
    stf_sleeper *sleepers;
    stf_job *jobs;
    int64_t taken;       /* from `given` */
    int64_t has_reached; /* `reached` is not empty, and no thread is on its way to Python */
    int64_t count;       /* of tasks that were taken and are not done */
    int64_t ready_ns;    /* about how long those take that are ready */
    int64_t asks;        /* Python looks at each task before it begins, until all that were put are done */
    int64_t waiting;     /* threads that wait for a number, and leave their cores to others */
    int64_t napping;     /* a thread naps */
    int64_t padding_too[CACHE_LINE / 8];
    int64_t awake; /* threads that run tasks, or look soon for some */
    int64_t ended; /* so many are, or were, in `done` */
    int64_t last_padding[CACHE_LINE / 8];
} stf_pool;

/* Return room for what begins a line of the cache; NULL if there is no memory. `*whole` is to be freed. */
static void *stf_line(size_t size, void **whole) {
    *whole = calloc(1, size + CACHE_LINE);
    return *whole == NULL ? NULL : (void *)(((uintptr_t)*whole + CACHE_LINE - 1) & ~(uintptr_t)(CACHE_LINE - 1));
}

/* -- threads that sleep, with the lock of the pool ---------------------------------------------------------------- */

static void stf_post(stf_sleeper *sleeper) {
    if (!ATOMIC_SWAP(&sleeper->is_posted, 1)) POOL_RELEASE(sleeper->lock);
}

/* Let a thread that sleeps come; return whether there was one. */
static int stf_call_one(stf_pool *pool) {
    stf_sleeper *sleeper = pool->sleepers;
    if (sleeper == NULL) return 0;
    pool->sleepers = sleeper->next;
    sleeper->is_asleep = 0;
    if (!sleeper->naps) ATOMIC_STORE_LATE(&pool->awake, pool->awake + 1);
    stf_post(sleeper);
    return 1;
}

/* Let one more come if those that are awake have much to do, or who puts tasks waits. */
static void stf_call_for_much(stf_pool *pool) {
    if (pool->ready != NULL && (pool->waiting || pool->ready_ns >= POOL_CALL_NS)) stf_call_one(pool);
}

/* -- what Python does, one thread at a time ------------------------------------------------------------------------ */

/* Return a task that waits for so many numbers; NULL if there is no memory. */
static stf_task *stf_new_task(size_t waits) {
    stf_task *task = (stf_task *)malloc(sizeof(stf_task) + waits * sizeof(stf_wait));
    if (task != NULL) memset(task, 0, sizeof(stf_task));
    return task;
}

static void stf_follow(stf_task *task, stf_chain *chain, int64_t number) {
    stf_wait *wait = (stf_wait *)(task + 1) + task->waits++;
    wait->chain = chain;
    wait->number = number;
}

/* Return whether there is room for another task. */
static int stf_has_room(stf_pool *pool) { return pool->put - pool->told < POOL_ROOM; }

/* Put a task behind those of a stream, which gets to a number with it; return whether a thread will run it. */
static int stf_put(stf_pool *pool, stf_chain *chain, int64_t number, stf_task *task) {
    task->chain = chain;
    task->number = number;
    pool->given[pool->put & (POOL_ROOM - 1)] = task;
    pool->unseen_ns += task->cost_ns;
    ATOMIC_SWAP(&pool->put, pool->put + 1); /* who goes to sleep looks for tasks once more after it has said so */
    if (ATOMIC_LOAD(&pool->awake)) {
        if (pool->unseen_ns < POOL_CALL_NS) return 1;
        pool->unseen_ns = 0;
        if (pool->put - ATOMIC_LOAD(&pool->taken) <= 1) return 1;
    }
    POOL_ACQUIRE(pool->lock);
    int comes = stf_call_one(pool) || pool->awake > 0;
    POOL_RELEASE(pool->lock);
    return comes;
}

/* Return a task that is done and that Python was not told of; NULL if there is none. */
static stf_task *stf_next_done(stf_pool *pool) {
    if (pool->told == ATOMIC_LOAD(&pool->ended)) return NULL;
    return pool->done[pool->told++ & (POOL_ROOM - 1)];
}

/* Return whether a stream has got to a number; if not, Python is told when it does, if that is with a task. */
static int stf_want(stf_pool *pool, stf_chain *chain, int64_t number) {
    POOL_ACQUIRE(pool->lock);
    int is_there = ATOMIC_LOAD(&chain->reached) >= number;
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

/* Return a stream that has got to what somebody waits for; NULL if there is none. */
static void *stf_next_reached(stf_pool *pool) {
    POOL_ACQUIRE(pool->lock);
    stf_chain *chain = pool->reached;
    if (chain != NULL) {
        ATOMIC_STORE_LATE(&pool->reached, chain->next);
        chain->is_listed = 0;
    }
    pool->has_reached = 0;
    POOL_RELEASE(pool->lock);
    return chain == NULL ? NULL : chain->stream;
}

/* -- tasks, with the lock of the pool ------------------------------------------------------------------------------ */

/* Return the first task with which a stream gets to a number; NULL if there is none. */
static stf_task *stf_task_of(stf_chain *chain, int64_t number) {
    stf_task *found = NULL;
    for (stf_task *task = chain->last; task != NULL && task->number >= number; task = task->before) found = task;
    return found;
}

static void stf_let_follow(stf_task *task, stf_task *before, stf_edge *edge) {
    edge->task = task, edge->next = before->after;
    before->after = edge;
    task->left++;
}

static void stf_make_ready(stf_pool *pool, stf_task *task) {
    task->next_ready = NULL;
    pool->ready_ns += task->cost_ns;
    if (pool->ready == NULL)
        ATOMIC_STORE_LATE(&pool->ready, task);
    else
        pool->last_ready->next_ready = task;
    pool->last_ready = task;
}

static int stf_has_more(stf_pool *pool) { return pool->taken != ATOMIC_LOAD(&pool->put); }

/* Take what was put since: each comes after the one before in its chain, and after what it waits for. */
static void stf_take_given(stf_pool *pool) {
    while (stf_has_more(pool)) {
        stf_task *task = pool->given[pool->taken & (POOL_ROOM - 1)];
        stf_chain *chain = task->chain;
        stf_wait *wait = (stf_wait *)(task + 1);
        ATOMIC_STORE_LATE(&pool->taken, pool->taken + 1);
        for (stf_wait *end = wait + task->waits; wait < end; wait++) {
            stf_task *before = ATOMIC_LOAD(&wait->chain->reached) >= wait->number ? NULL : stf_task_of(wait->chain, wait->number);
            if (before != NULL) stf_let_follow(task, before, &wait->edge);
        }
        task->before = chain->last;
        if (chain->last == NULL) {
            chain->first = task;
        } else {
            chain->last->next = task;
            stf_let_follow(task, chain->last, &task->edge);
        }
        chain->last = task;
        pool->count++;
        if (task->left == 0) stf_make_ready(pool, task);
    }
}

static stf_task *stf_take(stf_pool *pool) {
    stf_task *task = pool->ready;
    if (task != NULL) {
        ATOMIC_STORE_LATE(&pool->ready, task->next_ready);
        pool->ready_ns -= task->cost_ns;
    }
    return task;
}

/* A task is done: let those go that wait for it. */
static void stf_finish(stf_pool *pool, stf_task *task) {
    stf_chain *chain = task->chain;
    chain->first = task->next;
    if (task->next == NULL)
        chain->last = NULL;
    else
        task->next->before = NULL;
    for (stf_edge *edge = task->after; edge != NULL; edge = edge->next)
        if (--edge->task->left == 0) stf_make_ready(pool, edge->task);
    if (--pool->count == 0 && !stf_has_more(pool)) ATOMIC_STORE_LATE(&pool->asks, 0);
    int64_t number = task->number;
    pool->done[pool->ended & (POOL_ROOM - 1)] = task; /* from here on it belongs to Python */
    ATOMIC_STORE_LATE(&pool->ended, pool->ended + 1);
    if (chain->wanted && chain->wanted <= number && !chain->is_listed) {
        chain->is_listed = 1;
        chain->next = pool->reached;
        ATOMIC_STORE_LATE(&pool->reached, chain);
        pool->has_reached = 1;
    }
    ATOMIC_STORE_LATE(&chain->reached, number); /* who sees that is told of the task first; the chain may go then */
}

/* Let Python look at each task that has not begun, before it does. */
static void stf_ask(stf_pool *pool) {
    POOL_ACQUIRE(pool->lock);
    stf_take_given(pool);
    ATOMIC_STORE_LATE(&pool->asks, (int64_t)(pool->count > 0));
    POOL_RELEASE(pool->lock);
}

/* Return a task that is ready, if Python is to look at each. */
static stf_task *stf_take_asked(stf_pool *pool) {
    POOL_ACQUIRE(pool->lock);
    stf_take_given(pool);
    stf_task *task = pool->asks ? stf_take(pool) : NULL;
    POOL_RELEASE(pool->lock);
    return task;
}

/* Let a thread come if a task is ready: those that are awake may be in a body that takes longer than was known. Return
   0 if none sleeps here. */
static int stf_see_to_ready(stf_pool *pool) {
    POOL_ACQUIRE(pool->lock);
    stf_take_given(pool);
    int comes = pool->ready == NULL || stf_call_one(pool);
    POOL_RELEASE(pool->lock);
    return comes;
}

/* A thread begins to wait, or has waited. */
static void stf_change_waiting(stf_pool *pool, int change) {
    POOL_ACQUIRE(pool->lock);
    pool->waiting += change;
    if (change > 0) {
        stf_take_given(pool);
        stf_call_for_much(pool);
    }
    POOL_RELEASE(pool->lock);
}

/* -- looks without the lock, which may be late -------------------------------------------------------------------- */

static int stf_asks(stf_pool *pool) { return ATOMIC_LOAD(&pool->asks) != 0; }
static int stf_has_ready(void *what) {
    stf_pool *pool = (stf_pool *)what;
    return ATOMIC_LOAD(&pool->ready) != 0 || ATOMIC_LOAD(&pool->taken) != ATOMIC_LOAD(&pool->put);
}
static int stf_is_busy(stf_sleeper *sleeper) { return ATOMIC_LOAD(&sleeper->in_body) != 0; }
static int stf_has_reached(stf_pool *pool) { return ATOMIC_LOAD(&pool->reached) != 0; }
static int64_t stf_number_of(stf_chain *chain) { return ATOMIC_LOAD(&chain->reached); }

/* -- what several threads do together ------------------------------------------------------------------------------- */

enum { POOL_CALLS = 2 }; /* threads that each one calls which comes: so all come in the time of a few */

static void stf_call_for_jobs(stf_pool *pool) {
    for (int i = 0; i < POOL_CALLS && pool->jobs != NULL; i++) stf_call_one(pool);
}

/* Let so many threads help with a job of a pool, with those that have not come yet. */
static void stf_share(void *in, void *what, int64_t wanted) {
    stf_pool *pool = (stf_pool *)in;
    stf_job *job = (stf_job *)what;
    POOL_ACQUIRE(pool->lock);
    if (wanted > 0 && job->wanted == 0) {
        job->next = pool->jobs;
        pool->jobs = job;
    }
    if (wanted > job->wanted) {
        job->wanted = wanted;
        stf_call_for_jobs(pool);
    }
    POOL_RELEASE(pool->lock);
}

/* Take one that is to come out of a job, or all of them. */
static void stf_take_out(stf_pool *pool, stf_job *job, int64_t count) {
    stf_job **link = &pool->jobs;
    if (job->wanted == 0) return;
    job->wanted -= count;
    if (job->wanted > 0) return;
    while (*link != job) link = &(*link)->next;
    *link = job->next;
}

/* Let nobody come any more; return whether nobody is there, and the job may go. */
static int stf_end_job(void *in, void *what) {
    stf_pool *pool = (stf_pool *)in;
    stf_job *job = (stf_job *)what;
    POOL_ACQUIRE(pool->lock);
    stf_take_out(pool, job, job->wanted);
    int is_over = job->inside == 0;
    POOL_RELEASE(pool->lock);
    return is_over;
}

/* Help with a job, if there is one, and no task that is ready; return whether there was. The lock is given back
   meanwhile, and the thread is not `awake`, since it does not look for tasks. */
static int stf_help_with_job(stf_pool *pool, stf_sleeper *me) {
    stf_job *job = pool->jobs;
    if (job == NULL) return 0;
    ATOMIC_SWAP(&pool->awake, pool->awake - 1); /* who puts a task looks then whether somebody is awake */
    stf_take_given(pool);
    if (pool->ready == NULL) {
        stf_take_out(pool, job, 1);
        job->inside++;
        stf_call_for_jobs(pool);
        POOL_RELEASE(pool->lock);
        job->help(job->what, &me->is_called, stf_has_ready, pool);
        POOL_ACQUIRE(pool->lock);
        job->inside--;
    }
    ATOMIC_STORE_LATE(&pool->awake, pool->awake + 1);
    return 1;
}

/* -- threads, without the GIL ------------------------------------------------------------------------------------- */

/* Run tasks as long as there are any, or until the thread is called; return whether Python is needed, and say whether a
   task was run. */
static int stf_run(stf_pool *pool, stf_sleeper *me, int *has_run) {
    int needed = 0;
    POOL_ACQUIRE(pool->lock);
    while (!ATOMIC_LOAD(&me->is_called)) {
        stf_take_given(pool);
        stf_task *task = pool->asks ? NULL : stf_take(pool);
        if (task == NULL) {
            if (!stf_help_with_job(pool, me)) break;
            *has_run = 1;
            if (pool->has_reached || pool->asks) break;
            continue;
        }
        *has_run = 1;
        *task->fate = POOL_BEGUN;
        stf_call_for_much(pool);
        POOL_RELEASE(pool->lock);
        ATOMIC_STORE_LATE(&me->in_body, 1);
        int64_t start = task->is_timed ? stf_now() : 0;
        int failed = task->body(task->slots);
        ATOMIC_STORE_LATE(&me->in_body, 0);
        if (task->is_timed) task->took_ns = stf_now() - start;
        POOL_ACQUIRE(pool->lock);
        if (failed) { /* Python calls it again for its error, and looks what that means for the others */
            ATOMIC_STORE_LATE(&pool->asks, 1);
            task->has_failed = 1;
            task->next_ready = pool->ready;
            pool->ready_ns += task->cost_ns;
            if (pool->ready == NULL) pool->last_ready = task;
            ATOMIC_STORE_LATE(&pool->ready, task);
            break;
        }
        stf_finish(pool, task);
        if (pool->has_reached) break;
    }
    if (pool->has_reached || (pool->asks && pool->ready != NULL)) {
        needed = 1;
        pool->has_reached = 0;
    }
    POOL_RELEASE(pool->lock);
    return needed;
}

/* Let a thread be called, by who has the GIL. */
static void stf_call(stf_sleeper *sleeper) {
    ATOMIC_STORE_LATE(&sleeper->is_called, 1);
    stf_post(sleeper);
}

/* A thread is awake no longer: it sleeps, or goes to Python. Return whether there is something to do, which it may do. */
static int stf_leave(stf_pool *pool) {
    POOL_ACQUIRE(pool->lock);
    ATOMIC_SWAP(&pool->awake, pool->awake - 1); /* who puts a task looks then whether somebody is awake */
    stf_take_given(pool);
    int has_work = pool->has_reached || pool->ready != NULL || pool->jobs != NULL;
    POOL_RELEASE(pool->lock);
    return has_work;
}

static void stf_come(stf_pool *pool) {
    POOL_ACQUIRE(pool->lock);
    ATOMIC_STORE_LATE(&pool->awake, pool->awake + 1);
    POOL_RELEASE(pool->lock);
}

/* Join those that sleep, or `naps`; return 0 if there is something to do, and -1 if another thread naps. */
static int stf_lie_down(stf_pool *pool, stf_sleeper *me, int naps) {
    POOL_ACQUIRE(pool->lock);
    if (!naps) ATOMIC_SWAP(&pool->awake, pool->awake - 1); /* who puts a task looks then whether somebody is awake */
    stf_take_given(pool);
    int has_work = pool->has_reached || pool->ready != NULL || pool->jobs != NULL;
    int lies = has_work ? 0 : naps && pool->napping ? -1 : 1;
    if (lies > 0) {
        me->is_asleep = 1;
        me->naps = naps;
        if (naps) pool->napping = 1;
        me->next = pool->sleepers;
        pool->sleepers = me;
    } else if (!naps) {
        ATOMIC_STORE_LATE(&pool->awake, pool->awake + 1);
    }
    POOL_RELEASE(pool->lock);
    return lies;
}

static void stf_get_up(stf_pool *pool, stf_sleeper *me) {
    POOL_ACQUIRE(pool->lock);
    if (me->is_asleep) { /* it was not called for a task */
        stf_sleeper **link = &pool->sleepers;
        while (*link != me) link = &(*link)->next;
        *link = me->next;
        me->is_asleep = 0;
        if (!me->naps) ATOMIC_STORE_LATE(&pool->awake, pool->awake + 1);
    }
    if (me->naps) pool->napping = 0;
    me->naps = 0;
    POOL_RELEASE(pool->lock);
}

/* Sleep until somebody calls. */
static void stf_sleep_in(stf_pool *pool, stf_sleeper *me) {
    if (pool != NULL && stf_lie_down(pool, me, 0) == 0) return;
    POOL_ACQUIRE(me->lock);
    ATOMIC_STORE_LATE(&me->is_posted, 0);
    if (pool != NULL) stf_get_up(pool, me);
}

/* Look again in a moment, or when somebody calls: who puts tasks need not call for each. Return whether another thread
   does so. */
static int stf_nap(stf_pool *pool, stf_sleeper *me) {
    int lies = stf_lie_down(pool, me, 1);
    if (lies <= 0) return lies < 0;
    if (POOL_ACQUIRE_FOR(me->lock, POOL_NAP_US)) ATOMIC_STORE_LATE(&me->is_posted, 0);
    stf_get_up(pool, me);
    return 0;
}

/* Run tasks of a pool, which may be NULL, until the thread is called: 0; or until Python is needed: 1. */
static int stf_rest_in(stf_pool *pool, stf_sleeper *me) {
    int is_needed = 0, naps = POOL_NAPS;
    if (pool != NULL) stf_come(pool);
    for (;;) {
        int has_run = 0;
        if (ATOMIC_SWAP(&me->is_called, 0)) break;
        if (pool != NULL) {
            is_needed = stf_run(pool, me, &has_run);
            if (is_needed) break;
            if (has_run) naps = 0;
            if (naps++ < POOL_NAPS && !stf_nap(pool, me)) continue;
        }
        stf_sleep_in(pool, me);
        naps = POOL_NAPS;
    }
    if (pool != NULL && stf_leave(pool)) {
        POOL_ACQUIRE(pool->lock);
        stf_call_one(pool);
        POOL_RELEASE(pool->lock);
    }
    return is_needed;
}

#endif
