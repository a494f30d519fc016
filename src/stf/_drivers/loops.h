/* Planned queues, run by several threads that need neither locks nor Python: see loops.py, which tells the story.

   It stands alone, so that tests/tsan can compile it with ThreadSanitizer. */

#ifndef LOOP_LOOPS_H
#define LOOP_LOOPS_H

#include "threads.h"

enum { LOOP_LOOKS = 64, LOOP_YIELDS = 1024 }; /* at a byte; before who finds no work sleeps: about a millisecond */
enum { LOOP_LINGER_NS = 100000 };              /* how long a helper waits for the next launch */
enum { LOOP_CLOSED = -1 };                     /* in place of the number of a launch: there will be none */
enum { LOOP_FREE = 0, LOOP_TAKEN = 1, LOOP_OVER = 2 }; /* the states of a queue */

typedef int (*stf_body)(int64_t *slots); /* 0 if all went well; its arguments are in a table, from the second slot on */

/* A slot that gets a word of the launch. Who runs the step copies it: one thread that wrote the slots of all steps
   would keep the others waiting, and their slots would come from its cache. */
typedef struct {
    int32_t slot, word;
} stf_number;

typedef struct {
    stf_body body; /* NULL: it only orders */
    int64_t *slots;
    int32_t first_wait, last_wait;     /* the bytes that it waits for */
    int32_t first_number, last_number; /* the numbers that it gets */
    int64_t done;                      /* its own byte; -1 if nobody waits for it */
} stf_step;

typedef struct {
    int64_t state;
    int64_t position; /* of the next step; who has taken the queue reads and writes it */
    int64_t first, last;
    int64_t padding[4]; /* a line of the cache for each */
} stf_queue;

typedef struct {
    stf_step *steps; /* of all queues, one queue after the other */
    int32_t *waits;
    stf_number *numbers;
    int64_t *words; /* of a launch */
    uint8_t *done;  /* of a round: equal to `value` */
    stf_queue *queues;
    int64_t count;  /* of queues */
    int64_t value;  /* written between rounds, read by who has taken a queue since */
    int64_t failed; /* 1 + the number of a step whose body failed first; bodies behind it are left out */
    int64_t open;   /* the number of the launch that takes helpers; 0: none */
    int64_t launches;
    int64_t rounds;     /* that were run */
    int64_t word_count;
    int64_t wanted;     /* threads that are to help */
    void (*share)(void *pool, void *job, int64_t count); /* lets so many more come; or NULL */
    void *pool, *job;
    int64_t *times;     /* of each step, the least in ns, where they are measured; or NULL */
    int64_t padding[8]; /* what is above is read for each step, and what is below written by who finds nothing to do */
    int64_t left;       /* queues that are not over */
    int64_t inside;     /* helpers that may look at it */
    int64_t present;    /* helpers that take part in the launch that is opened next */
    int64_t arrived;    /* helpers of this launch, so that each begins at another queue */
    int64_t is_led;     /* by a thread: one launch at a time */
    int64_t off;        /* calls in a row that launched and took other times than known */
    int64_t more_padding[8];
} stf_loop;

static int stf_timed(stf_step *step, int64_t *took) {
    int64_t start = stf_now();
    int failed = step->body(step->slots);
    int64_t now = stf_now() - start;
    if (*took == 0 || now < *took) *took = now > 0 ? now : 1; /* the least: a thread may lose its core meanwhile */
    return failed;
}

/* Do the steps of a queue up to one that must wait, or until the thread is called away. Returns whether the queue is
   over; `moved` counts steps. */
static int stf_advance(stf_loop *loop, stf_queue *queue, int looks, const int64_t *called, int64_t *moved) {
    uint8_t value = (uint8_t)loop->value;
    int64_t position = queue->position;
    for (; position < queue->last && ATOMIC_LOAD(called) == 0; position++) {
        stf_step *step = loop->steps + position;
        for (int32_t i = step->first_wait; i < step->last_wait; i++) {
            const uint8_t *byte = loop->done + loop->waits[i];
            int look = 0;
            while (ATOMIC_LOAD8(byte) != value) {
                if (look++ >= looks) {
                    queue->position = position;
                    return 0;
                }
                CPU_RELAX();
            }
        }
        if (step->body != NULL && ATOMIC_LOAD(&loop->failed) == 0) {
            for (int32_t i = step->first_number; i < step->last_number; i++)
                step->slots[loop->numbers[i].slot] = loop->words[loop->numbers[i].word];
            int failed = loop->times ? stf_timed(step, loop->times + position) : step->body(step->slots);
            if (failed) stf_swap_if(&loop->failed, 0, position + 1);
        }
        if (step->done >= 0) ATOMIC_STORE8(loop->done + step->done, value);
        (*moved)++;
    }
    queue->position = position;
    return position == queue->last;
}

/* Take each queue that nobody has, from the one with this number on, and advance it. Returns how many steps that did. */
static int64_t stf_sweep(stf_loop *loop, int64_t *start, int looks, const int64_t *called) {
    int64_t moved = 0;
    for (int64_t k = 0; k < loop->count; k++) {
        int64_t number = (*start + k) % loop->count;
        stf_queue *queue = loop->queues + number;
        if (ATOMIC_LOAD(&queue->state) != LOOP_FREE || !stf_swap_if(&queue->state, LOOP_FREE, LOOP_TAKEN)) continue;
        if (stf_advance(loop, queue, looks, called, &moved)) {
            ATOMIC_STORE(&queue->state, LOOP_OVER);
            ATOMIC_ADD(&loop->left, -1);
            moved++;
        } else {
            ATOMIC_STORE(&queue->state, LOOP_FREE);
        }
        if (moved) {
            *start = number; /* what it has in its cache */
            break;
        }
    }
    return moved;
}

static void stf_rest(int64_t *idle) {
    if (*idle < LOOP_LOOKS)
        CPU_RELAX();
    else if (*idle < LOOP_YIELDS)
        CPU_YIELD();
    else
        stf_pause();
    (*idle)++;
}

/* Begin a round: all queues are over, so that nobody is in one. A thread that takes one sees what was written before. */
static void stf_begin_round(stf_loop *loop) {
    loop->value ^= 1;
    ATOMIC_STORE(&loop->left, loop->count);
    for (int64_t i = 0; i < loop->count; i++) {
        loop->queues[i].position = loop->queues[i].first;
        ATOMIC_STORE(&loop->queues[i].state, LOOP_FREE);
    }
    loop->rounds++;
}

/* Launch it with words of the launch, and lead: run up to `rounds` rounds, or as long as the byte `flag` is true after
   one, if it is given; return 1 + the step that failed, or 0. When it returns, nobody is inside any more. */
static int64_t stf_lead(stf_loop *loop, const int64_t *words, int64_t rounds, const uint8_t *flag) {
    static const int64_t never = 0;
    int64_t start = 0, idle = 0, missing;
    while (!stf_swap_if(&loop->is_led, 0, 1)) stf_rest(&idle);
    memcpy(loop->words, words, (size_t)loop->word_count * sizeof *words);
    loop->launches++;
    loop->rounds = idle = 0;
    ATOMIC_STORE(&loop->failed, 0);
    ATOMIC_STORE(&loop->arrived, 0);
    ATOMIC_STORE(&loop->open, loop->launches);
    missing = loop->wanted - ATOMIC_LOAD(&loop->present);
    if (loop->share != NULL && missing > 0) loop->share(loop->pool, loop->job, missing);
    while (loop->rounds < rounds) {
        stf_begin_round(loop);
        while (ATOMIC_LOAD(&loop->left) != 0) {
            int looks = ATOMIC_LOAD(&loop->inside) ? LOOP_LOOKS : 0;
            if (stf_sweep(loop, &start, looks, &never))
                idle = 0;
            else
                stf_rest(&idle);
        }
        if (ATOMIC_LOAD(&loop->failed) != 0 || (flag != NULL && !*flag)) break;
    }
    ATOMIC_STORE(&loop->open, 0);
    for (idle = 0; ATOMIC_LOAD(&loop->inside) != 0;) stf_rest(&idle);
    int64_t failed = ATOMIC_LOAD(&loop->failed);
    ATOMIC_STORE(&loop->is_led, 0);
    return failed;
}

/* The slots of a call that launches. It writes the first: which step failed. The others are the loop, how long a round
   takes that is as known, what is the result of one that is not run, and the words of the launch. */
enum { LOOP_RESULT, LOOP_ITSELF, LOOP_LEAST_NS, LOOP_MOST_NS, LOOP_NOT_RUN, LOOP_FIRST_WORD };
enum { LOOP_MOST_OFF = 4 };

/* Lead one round, as a compiled call. After some that took other times than known it fails at once: who plans must look
   whether another plan would be better. */
static int stf_launch(int64_t *slots) {
    stf_loop *loop = (stf_loop *)(uintptr_t)slots[LOOP_ITSELF];
    int64_t *result = slots + LOOP_RESULT, start = stf_now(), took;
    *result = slots[LOOP_NOT_RUN];
    if (ATOMIC_LOAD(&loop->off) >= LOOP_MOST_OFF) return 1;
    *result = stf_lead(loop, slots + LOOP_FIRST_WORD, 1, NULL) - 1;
    took = stf_now() - start;
    int is_off = took < slots[LOOP_LEAST_NS] || took > slots[LOOP_MOST_NS];
    ATOMIC_STORE(&loop->off, is_off ? ATOMIC_LOAD(&loop->off) + 1 : 0);
    return *result >= 0;
}

/* Help with launches until there was nothing to do in one for a millisecond, or none for about as long as a thread
   takes to wake up: to wait that long costs no more than to be woken up for the next one. A thread that is called goes
   at once, and one that waits for a launch goes where there is other `work`. A thread that rests is not inside: nobody
   waits for one that has no turn on its core. Who opens a launch sees it `present`, or it sees that launch. */
static void stf_help(void *what, const int64_t *called, int (*has_work)(void *), void *work) {
    stf_loop *loop = (stf_loop *)what;
    int64_t start = 0, idle = 0, known = 0, free_since = 0;
    ATOMIC_ADD(&loop->present, 1);
    for (;;) {
        int64_t launch = ATOMIC_LOAD(&loop->open), moved = 0;
        if (launch > 0) {
            ATOMIC_ADD(&loop->inside, 1);
            launch = ATOMIC_LOAD(&loop->open);
            if (launch > 0 && launch != known) {
                known = launch;
                start = (ATOMIC_ADD(&loop->arrived, 1) + 1) % loop->count;
                moved = 1;
            }
            if (launch > 0) moved += stf_sweep(loop, &start, LOOP_LOOKS, called);
            ATOMIC_ADD(&loop->inside, -1);
        }
        if (launch == LOOP_CLOSED || ATOMIC_LOAD(called)) break;
        if (launch > 0) {
            free_since = 0;
        } else if (free_since == 0) {
            free_since = stf_now();
            idle = 0;
        }
        if (moved) {
            idle = 0;
        } else if (launch > 0 ? idle >= LOOP_YIELDS : has_work(work) || stf_now() - free_since > LOOP_LINGER_NS) {
            ATOMIC_ADD(&loop->present, -1);
            launch = ATOMIC_LOAD(&loop->open);
            if (launch <= 0 || launch == known) return;
            ATOMIC_ADD(&loop->present, 1); /* it was opened just now, and its leader may count on this thread */
        } else {
            stf_rest(&idle);
        }
    }
    ATOMIC_ADD(&loop->present, -1);
}

/* Count the forks that this process comes from. */
static int64_t stf_count_forks(int64_t more) {
    static int64_t forks;
    return forks += more;
}

/* -- bodies, which get their arguments from the second slot on ---------------------------------------------------- */

/* Fill an array without gaps: address, elements, bytes of an element, its bytes. */
static int stf_fill(int64_t *slots) {
    char *target = (char *)(uintptr_t)slots[1];
    int64_t count = slots[2], size = slots[3];
    switch (size) {
    case 1: memset(target, (int)(slots[4] & 255), (size_t)count); break;
    case 2: for (int64_t i = 0; i < count; i++) ((uint16_t *)target)[i] = (uint16_t)slots[4]; break;
    case 4: for (int64_t i = 0; i < count; i++) ((uint32_t *)target)[i] = (uint32_t)slots[4]; break;
    case 8: for (int64_t i = 0; i < count; i++) ((int64_t *)target)[i] = slots[4]; break;
    case 16: for (int64_t i = 0; i < count; i++) memcpy(target + i * 16, slots + 4, 16); break;
    default: for (int64_t i = 0; i < count; i++) memcpy(target + i * size, slots + 4, (size_t)size);
    }
    return 0;
}

/* Copy rows of so many bytes; with a constant for those of one element, the compiler calls no function for each. */
#define LOOP_COPY_ROWS(width)                                                                                          \
    for (int64_t row = 0; row < rows; row++) memmove(target + row * pitch, source + row * source_pitch, (width))
static void stf_copy_rows(char *target, const char *source, int64_t width, int64_t rows, int64_t pitch,
                          int64_t source_pitch) {
    switch (width) {
    case 1: LOOP_COPY_ROWS(1); break;
    case 2: LOOP_COPY_ROWS(2); break;
    case 4: LOOP_COPY_ROWS(4); break;
    case 8: LOOP_COPY_ROWS(8); break;
    case 16: LOOP_COPY_ROWS(16); break;
    default: LOOP_COPY_ROWS((size_t)width);
    }
}

/* Copy blocks of bytes: target, source, width; rows and their pitches; slices and theirs. */
static int stf_copy(int64_t *slots) {
    char *target = (char *)(uintptr_t)slots[1];
    const char *source = (const char *)(uintptr_t)slots[2];
    for (int64_t slice = 0; slice < slots[7]; slice++)
        stf_copy_rows(target + slice * slots[8], source + slice * slots[9], slots[3], slots[4], slots[5], slots[6]);
    return 0;
}

#ifdef PY_VERSION_HEX
/* Call an object of Python's without arguments, with the GIL. */
static int stf_call_python(int64_t *slots) {
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *result = PyObject_CallNoArgs((PyObject *)(uintptr_t)slots[1]);
    int failed = result == NULL;
    Py_XDECREF(result);
    if (failed) PyErr_Clear(); /* it is called again by who tells of failures */
    PyGILState_Release(state);
    return failed;
}
#endif

#endif
