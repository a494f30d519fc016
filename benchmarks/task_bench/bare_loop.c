/* The stencil of Task Bench as planned queues alone, in C: what is left of a persistent graph without Python, the engine,
   parameters and Numba.

       cc -O3 -march=native -ffp-contract=off benchmarks/task_bench/bare_loop.c -o build/bare_loop -pthread -lm
       build/bare_loop 16 4        # threads, and columns of each

   It shows how much the caches of a machine take. The queues are those that the planner finds for a stencil: each thread
   has some columns side by side, and waits for the outermost ones of its neighbours. */

#include "../../src/stf/_drivers/loops.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>

enum { HEAD = 4, BUFFER = 64, ROWS = 128, SLOTS = 9, STRIDE = 640, MODULUS = 2147483647 };

static stf_loop loop;

/* The kernel of kernel.py. Its slots: the output, how many inputs, up to three of them, step, column, iterations. */
static int kernel(int64_t *slots) {
    double *out = (double *)(uintptr_t)slots[1], *restrict buffer = out + HEAD, total = 0.0, sums[4] = {0.0};
    for (int64_t i = 0; i < slots[2]; i++) total += ((double *)(uintptr_t)slots[3 + i])[2];
    out[0] = (double)slots[6];
    out[1] = (double)slots[7];
    out[2] = (double)((7919 * slots[6] + 104729 * slots[7] + 3 * (int64_t)total + 1) % MODULUS);
    for (int i = 0; i < BUFFER; i++) buffer[i] = 1.0;
    for (int64_t k = 0; k < slots[8]; k++) {
        for (int i = 0; i < BUFFER; i++) buffer[i] = buffer[i] * 0.999 + 0.003;
        __asm__ volatile("" ::: "memory"); /* else the compiler keeps the buffer in registers, which Numba does not */
    }
    for (int i = 0; i < BUFFER; i++) sums[i % 4] += buffer[i];
    out[3] = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    return 0;
}

static int has_no_work(void *nothing) { return nothing != NULL; }

static void *help(void *nothing) {
    static const int64_t never = 0;
    for (;;) stf_help(&loop, &never, has_no_work, NULL);
    return nothing;
}

static void *lines(size_t size) {
    void *memory = aligned_alloc(CACHE_LINE, (size + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE);
    return memset(memory, 0, size);
}

/* Make the queues of some threads with as many columns each. The bytes of a thread: two for each row. */
static void make(int threads, int columns) {
    int width = threads * columns, count = width * ROWS, wait = 0;
    stf_step *steps = lines((size_t)count * sizeof *steps), *step = steps;
    stf_queue *queues = lines((size_t)threads * sizeof *queues);
    int32_t *waits = lines((size_t)count * 2 * sizeof *waits);
    int64_t *slots = lines((size_t)count * SLOTS * sizeof *slots);
    char *rows[2] = {lines((size_t)width * STRIDE), lines((size_t)width * STRIDE)};
    for (int thread = 0; thread < threads; thread++) {
        queues[thread].first = step - steps;
        queues[thread].state = LOOP_OVER;
        for (int row = 0; row < ROWS; row++) {
            for (int own = 0; own < columns; own++, step++, slots += SLOTS) {
                int column = thread * columns + own, first = own == 0, last = own == columns - 1;
                int32_t byte = thread * 2 * ROWS + 2 * row;
                *step = (stf_step){.body = kernel, .slots = slots, .first_wait = wait, .done = -1};
                slots[1] = (int64_t)(uintptr_t)(rows[row % 2] + column * STRIDE);
                for (int other = column - 1; row > 0 && other <= column + 1; other++)
                    if (other >= 0 && other < width)
                        slots[3 + slots[2]++] = (int64_t)(uintptr_t)(rows[(row + 1) % 2] + other * STRIDE);
                slots[6] = row;
                slots[7] = column;
                if (row > 0 && first && thread > 0) waits[wait++] = byte - 2 * ROWS - 2 + 1;
                if (row > 0 && last && thread < threads - 1) waits[wait++] = byte + 2 * ROWS - 2;
                step->last_wait = wait;
                if (first && thread > 0) step->done = byte;
                if (last && thread < threads - 1) step->done = byte + 1;
            }
        }
        queues[thread].last = step - steps;
    }
    loop = (stf_loop){.steps = steps, .waits = waits, .queues = queues, .count = threads};
    loop.done = lines((size_t)threads * 2 * ROWS);
    loop.words = lines(8);
}

static int go;
static int64_t rate_iterations;

static void *count_alone(void *nothing) {
    double out[HEAD + BUFFER];
    int64_t slots[SLOTS] = {0, (int64_t)(uintptr_t)out, 0, 0, 0, 0, 0, 0, rate_iterations};
    while (!__atomic_load_n(&go, __ATOMIC_ACQUIRE)) CPU_YIELD();
    kernel(slots);
    return nothing;
}

/* Return how many ns an iteration takes on a thread, while all have one call of the kernel. */
static double alone_ns(int threads) {
    pthread_t ids[threads];
    rate_iterations = 1 << 22;
    __atomic_store_n(&go, 0, __ATOMIC_RELEASE);
    for (int i = 0; i < threads; i++) pthread_create(ids + i, NULL, count_alone, NULL);
    int64_t start = stf_now();
    __atomic_store_n(&go, 1, __ATOMIC_RELEASE);
    for (int i = 0; i < threads; i++) pthread_join(ids[i], NULL);
    return (double)(stf_now() - start) / (double)rate_iterations;
}

int main(int argc, char **argv) {
    int threads = argc > 1 ? atoi(argv[1]) : 2, columns = argc > 2 ? atoi(argv[2]) : 4;
    if (threads < 1 || columns < 2) return fprintf(stderr, "usage: bare_loop THREADS COLUMNS (2 or more)\n"), 2;
    double each = alone_ns(threads), before = 0.0, smaller = 0.0;
    for (int i = 0; i < 4; i++) each = fmin(each, alone_ns(threads)); /* others may have the cores */
    int64_t nothing = 0, count = (int64_t)threads * columns * ROWS;
    pthread_t id;
    make(threads, columns);
    for (int i = 1; i < threads; i++) pthread_create(&id, NULL, help, NULL);
    printf("%d threads, %d columns, %d rows; an iteration takes %.2f ns\n", threads, threads * columns, ROWS, each);
    for (int iterations = 1; iterations <= 4096; iterations *= 2) {
        for (int64_t i = 0; i < count; i++) loop.steps[i].slots[8] = iterations;
        for (int i = 0; i < 5; i++) stf_lead(&loop, &nothing, 1, NULL);
        int launches = 0;
        int64_t start = stf_now();
        for (; launches < 20 || stf_now() - start < 100000000; launches++) stf_lead(&loop, &nothing, 1, NULL);
        double size = (double)(stf_now() - start) * threads / ((double)launches * count);
        double efficiency = each * iterations / size;
        printf("%5d iterations: granularity %7.3f us, efficiency %.2f\n", iterations, size * 1e-3, efficiency);
        if (before < 0.5 && efficiency >= 0.5 && before > 0.0)
            printf("METG(50 %%): %.2f us\n", 1e-3 * smaller * pow(size / smaller, (0.5 - before) / (efficiency - before)));
        before = efficiency;
        smaller = size;
    }
    return 0;
}
