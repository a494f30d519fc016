/* Random loops, run by several threads, for ThreadSanitizer: `make tsan`, or loops PROGRAMS SEED.

   Each step adds to memory of its own what the steps before it have there, without any atomics. So two steps that a loop
   does not order are a race, which the sanitizer tells, or a wrong sum, which this program tells itself. */

#include "../../src/stf/_drivers/loops.h"

#include <pthread.h>
#include <stdio.h>

enum { STEPS = 60, NEEDS = 4, QUEUES = 6, THREADS = 4 };

static stf_loop loop;
static int64_t values[STEPS], table[STEPS * (NEEDS + 4)];
static int64_t word;   /* of each launch */
static int64_t launch; /* of which helpers hear; 0: none, -1: they go */
static uint64_t state;
static uint8_t flag;
static int64_t rounds_left;

static uint64_t draw(uint64_t below) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state % below;
}

static int add(int64_t *slots) {
    int64_t sum = slots[NEEDS + 3]; /* a number of the launch */
    for (int64_t i = 0; i < slots[2]; i++) sum += values[slots[3 + i]] % 1000003;
    for (volatile int64_t i = 0; i < slots[0]; i++) continue; /* a hostile delay */
    values[slots[1]] += sum;
    return 0;
}

static int decide(int64_t *slots) {
    (void)slots;
    flag = --rounds_left > 0;
    return 0;
}

static int64_t is_called; /* helpers go, now and then, and come again */
static int has_work(void *nothing) {
    (void)nothing;
    return 0;
}

static void *help(void *nothing) {
    int64_t last = 0;
    for (;;) {
        int64_t now = ATOMIC_LOAD(&launch);
        if (now < 0) return nothing;
        if (now != last && now) stf_help(&loop, &is_called, has_work, NULL);
        last = now;
        CPU_YIELD();
    }
}

/* Make random steps, each after some before it, in random queues; the last one decides. Return their number. */
static int make(int64_t needs[STEPS][NEEDS], int64_t counts[STEPS]) {
    static stf_step steps[STEPS + 1];
    static stf_queue queues[QUEUES + 1];
    static int32_t waits[STEPS * NEEDS * 2];
    static stf_number numbers[1] = {{NEEDS + 3, 0}};
    static uint8_t done[STEPS * QUEUES];
    int count = 2 + (int)draw(STEPS - 2), used = 1 + (int)draw(QUEUES), place[STEPS], position = 0, wait = 0;
    memset(queues, 0, sizeof queues);
    memset(done, 0, sizeof done);
    for (int i = 0; i < count; i++) {
        place[i] = (int)draw((uint64_t)used);
        counts[i] = i ? (int64_t)draw(NEEDS + 1) : 0;
        for (int k = 0; k < counts[i]; k++) needs[i][k] = (int64_t)draw((uint64_t)i);
    }
    for (int q = 0; q < used; q++) {
        queues[q].first = position;
        queues[q].state = LOOP_OVER;
        for (int i = 0; i < count; i++) {
            if (place[i] != q) continue;
            int64_t *slots = table + i * (NEEDS + 4);
            slots[0] = draw(4) ? 0 : (int64_t)draw(2000);
            slots[1] = i, slots[2] = counts[i];
            steps[position] = (stf_step){.body = add, .slots = slots, .first_wait = wait, .last_number = 1, .done = i};
            for (int k = 0; k < counts[i]; k++) {
                slots[3 + k] = needs[i][k];
                if (place[needs[i][k]] != q) waits[wait++] = (int32_t)needs[i][k];
            }
            steps[position].last_wait = wait;
            position++;
        }
        queues[q].last = position;
    }
    /* one more step, in a queue of its own, after all others */
    steps[position] = (stf_step){.body = decide, .slots = table, .first_wait = wait, .done = -1};
    steps[position].last_wait = wait + count;
    for (int i = 0; i < count; i++) waits[wait++] = i;
    queues[used].first = position;
    queues[used].last = position + 1;
    queues[used].state = LOOP_OVER;
    loop = (stf_loop){.steps = steps, .waits = waits, .numbers = numbers, .words = &word, .word_count = 1, .done = done,
                      .queues = queues, .count = used + 1, .inside = loop.inside, .present = loop.present, .launches = loop.launches};
    return count;
}

int main(int argc, char **argv) {
    int programs = argc > 1 ? atoi(argv[1]) : 200;
    state = 88172645463325252u + (argc > 2 ? (uint64_t)atoi(argv[2]) : 0);
    for (int program = 0; program < programs; program++) {
        static int64_t needs[STEPS][NEEDS], counts[STEPS], wanted[STEPS];
        pthread_t threads[THREADS];
        int count = make(needs, counts), helpers = (int)draw(THREADS + 1);
        memset(values, 0, sizeof values);
        memset(wanted, 0, sizeof wanted);
        ATOMIC_STORE(&launch, 0);
        for (int i = 0; i < helpers; i++) pthread_create(threads + i, NULL, help, NULL);
        for (int turn = 0; turn < 6; turn++) {
            int64_t rounds = 1 + (int64_t)draw(5);
            rounds_left = rounds;
            int64_t given = word = 1 + turn;
            ATOMIC_STORE(&launch, loop.launches + 1);
            ATOMIC_STORE(&is_called, (int64_t)(draw(4) == 0));
            if (stf_lead(&loop, &given, 1000, &flag) != 0 || loop.rounds != rounds) {
                printf("program %d ran %d rounds in place of %d\n", program, (int)loop.rounds, (int)rounds);
                return 1;
            }
            for (int64_t k = 0; k < rounds; k++)
                for (int i = 0; i < count; i++) {
                    int64_t sum = word;
                    for (int j = 0; j < counts[i]; j++) sum += wanted[needs[i][j]] % 1000003;
                    wanted[i] += sum;
                }
            if (memcmp(values, wanted, sizeof wanted) != 0) {
                printf("program %d is wrong in turn %d\n", program, turn);
                return 1;
            }
        }
        ATOMIC_STORE(&launch, -1);
        for (int i = 0; i < helpers; i++) pthread_join(threads[i], NULL);
    }
    printf("%d programs, 0 wrong\n", programs);
    return 0;
}
