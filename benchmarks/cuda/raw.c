/* The raw driver calls that the cases of run.py consist of, in a loop in C: what no library can be below.

   Prints "case microseconds" per line: the median of the repetitions. Build: cc -O2 raw.c -lcuda. */

#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { N = 10000, BURST = 400, REPEAT = 7, RING = 512, LAUNCHES = 30 };

static const char *PTX =
    ".version 8.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry touch(.param .u64 p) { ret; }\n"
    ".visible .entry touch4(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d) { ret; }\n";

static CUcontext context;
static CUstream streams[32];
static CUevent events[RING];
static CUfunction touch, touch4;
static CUdeviceptr memory;
static char *pinned;

static void check(CUresult code, const char *call)
{
    const char *name = "?";
    if (code == CUDA_SUCCESS)
        return;
    cuGetErrorName(code, &name);
    fprintf(stderr, "%s: %s\n", call, name);
    exit(1);
}
#define DO(call) check(call, #call)

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec / 1e3;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void record(int n)
{
    for (int i = 0; i < n; i++)
        DO(cuEventRecord(events[i % RING], streams[0]));
}

static void record_wait(int n)
{
    for (int i = 0; i < n; i++) {
        DO(cuEventRecord(events[i % RING], streams[i % 2]));
        DO(cuStreamWaitEvent(streams[1 - i % 2], events[i % RING], 0));
    }
}

static void launch(int n)
{
    void *arguments[] = {&memory};
    for (int i = 0; i < n; i++)
        DO(cuLaunchKernel(touch, 1, 1, 1, 1, 1, 1, 0, streams[0], arguments, NULL));
}

static void launch4(int n)
{
    void *arguments[] = {&memory, &memory, &memory, &memory};
    for (int i = 0; i < n; i++)
        DO(cuLaunchKernel(touch4, 1, 1, 1, 1, 1, 1, 0, streams[i % 16], arguments, NULL));
}

static void scalar_wait(int n)
{
    for (int i = 0; i < n; i++) {
        DO(cuMemcpyAsync((CUdeviceptr)pinned, memory, 8, streams[0]));
        DO(cuStreamSynchronize(streams[0]));
    }
}

/* Bursts, so that a full launch queue is not what is measured. */
static void measure(const char *name, void (*work)(int))
{
    double times[REPEAT];
    for (int r = -1; r < REPEAT; r++) {
        double spent = 0;
        for (int done = 0; done < N; done += BURST) {
            double start = now_us();
            work(BURST);
            spent += now_us() - start;
            DO(cuCtxSynchronize());
        }
        if (r >= 0)
            times[r] = spent / N;
    }
    qsort(times, REPEAT, sizeof times[0], ascending);
    printf("%s %.4f\n", name, times[REPEAT / 2]);
}

static void bandwidth(const char *name, int inwards)
{
    size_t nbytes = (size_t)1 << 30;
    CUdeviceptr device;
    void *host;
    double times[REPEAT];
    DO(cuMemAlloc(&device, nbytes));
    DO(cuMemHostAlloc(&host, nbytes, 0));
    for (int r = 0; r < REPEAT; r++) {
        double start = now_us();
        if (inwards)
            DO(cuMemcpyHtoDAsync(device, host, nbytes, streams[0]));
        else
            DO(cuMemcpyDtoHAsync(host, device, nbytes, streams[0]));
        DO(cuStreamSynchronize(streams[0]));
        times[r] = now_us() - start;
    }
    qsort(times, REPEAT, sizeof times[0], ascending);
    printf("%s %.4f\n", name, nbytes / times[REPEAT / 2] / 1e3);
    DO(cuMemFree(device));
    DO(cuMemFreeHost(host));
}

/* A chain of kernels as a graph: per node to add it, to instantiate and to update (with what the next launch takes
   longer for it), to renew and to run; per launch to submit it. */
static void graphs(int n)
{
    double times[6][REPEAT], submitted[LAUNCHES], ran[LAUNCHES];
    const char *names[6] = {"graph_add", "graph_instantiate", "graph_run", "graph_submit", "graph_update", "graph_renew"};
    CUgraphNode *nodes = malloc(n * sizeof *nodes);
    void *args[1] = {&memory};
    for (int r = 0; r < REPEAT; r++) {
        CUgraph graph, other;
        CUgraphExec executable;
        CUgraphExecUpdateResultInfo info;
        CUDA_KERNEL_NODE_PARAMS params = {0};
        params.func = touch;
        params.gridDimX = params.gridDimY = params.gridDimZ = 1;
        params.blockDimX = params.blockDimY = params.blockDimZ = 1;
        params.kernelParams = args;
        DO(cuGraphCreate(&graph, 0));
        double start = now_us();
        for (int i = 0; i < n; i++) {
            DO(cuGraphAddKernelNode(&nodes[i], graph, i ? &nodes[i - 1] : NULL, i > 0, &params));
        }
        times[0][r] = (now_us() - start) / n;
        DO(cuStreamSynchronize(streams[0]));
        start = now_us();
        DO(cuGraphInstantiate(&executable, graph, 0));
        DO(cuGraphLaunch(executable, streams[0]));
        times[1][r] = now_us() - start;
        for (int i = 0; i < LAUNCHES; i++) {
            DO(cuStreamSynchronize(streams[0]));
            start = now_us();
            DO(cuGraphLaunch(executable, streams[0]));
            submitted[i] = now_us() - start;
            DO(cuStreamSynchronize(streams[0]));
            ran[i] = (now_us() - start) / n;
        }
        qsort(submitted, LAUNCHES, sizeof submitted[0], ascending);
        qsort(ran, LAUNCHES, sizeof ran[0], ascending);
        times[2][r] = ran[LAUNCHES / 2];
        times[3][r] = submitted[LAUNCHES / 2];
        times[1][r] = (times[1][r] - times[3][r]) / n;
        DO(cuGraphClone(&other, graph));
        start = now_us();
        DO(cuGraphExecUpdate(executable, other, &info));
        DO(cuGraphLaunch(executable, streams[0]));
        times[4][r] = (now_us() - start - times[3][r]) / n;
        DO(cuStreamSynchronize(streams[0]));
        start = now_us();
        for (int i = 0; i < n; i++)
            DO(cuGraphExecKernelNodeSetParams(executable, nodes[i], &params));
        times[5][r] = (now_us() - start) / n;
        DO(cuGraphExecDestroy(executable));
        DO(cuGraphDestroy(graph));
        DO(cuGraphDestroy(other));
    }
    free(nodes);
    for (int i = 0; i < 6; i++) {
        qsort(times[i], REPEAT, sizeof times[i][0], ascending);
        printf("%s %.4f\n", names[i], times[i][REPEAT / 2]);
    }
}

/* What a body puts on a stream of its own, as a graph. */
static void capture(int n)
{
    static CUgraph graphs[BURST];
    void *arguments[] = {&memory};
    for (int i = 0; i < n; i++) {
        DO(cuStreamBeginCapture(streams[0], CU_STREAM_CAPTURE_MODE_RELAXED));
        DO(cuLaunchKernel(touch, 1, 1, 1, 1, 1, 1, 0, streams[0], arguments, NULL));
        DO(cuStreamEndCapture(streams[0], &graphs[i]));
        if (i % 16 == 15)
            for (int k = i - 15; k <= i; k++)
                DO(cuGraphDestroy(graphs[k]));
    }
}

int main(void)
{
    CUdevice device;
    CUmodule module;
    DO(cuInit(0));
    DO(cuDeviceGet(&device, 0));
    DO(cuDevicePrimaryCtxRetain(&context, device));
    DO(cuCtxSetCurrent(context));
    for (int i = 0; i < 32; i++)
        DO(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < RING; i++)
        DO(cuEventCreate(&events[i], CU_EVENT_DISABLE_TIMING));
    DO(cuModuleLoadData(&module, PTX));
    DO(cuModuleGetFunction(&touch, module, "touch"));
    DO(cuModuleGetFunction(&touch4, module, "touch4"));
    DO(cuMemAlloc(&memory, 1 << 20));
    DO(cuMemHostAlloc((void **)&pinned, 4096, 0));
    measure("record", record);
    measure("record_wait", record_wait);
    measure("launch", launch);
    measure("launch4", launch4);
    measure("scalar_wait", scalar_wait);
    measure("capture", capture);
    graphs(1000);
    bandwidth("host_to_device_gbps", 1);
    bandwidth("device_to_host_gbps", 0);
    return 0;
}
