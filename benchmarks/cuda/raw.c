/* The raw driver calls that the cases of run.py consist of, in a loop in C: what no library can be below.

   Prints "case microseconds" per line: the median of the repetitions. Build: cc -O2 raw.c -lcuda. As a shared library
   (-shared -fPIC) it has functions for who measures in turn with it: what starts with `raw_`. */

#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { N = 10000, BURST = 400, REPEAT = 7, RING = 512, LAUNCHES = 30, WIDTH = 32 };

static const char *PTX =
    ".version 8.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry touch(.param .u64 p) { ret; }\n"
    ".visible .entry touch4(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d) { ret; }\n";

static CUcontext context;
static CUstream streams[WIDTH];
static CUevent events[RING];
static CUfunction touch, touch4;
static CUdeviceptr memory;
static CUgraphExec launched;
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

/* What tasks do that read three neighbours in one row and write one in the other, if each column has a stream. */
static void stencil(int n)
{
    for (int i = 0; i < n; i++) {
        int column = i % WIDTH, before = i - column - WIDTH + RING; /* the row before */
        CUstream stream = streams[column];
        DO(cuStreamWaitEvent(stream, events[(before + (column + WIDTH - 1) % WIDTH) % RING], 0));
        DO(cuStreamWaitEvent(stream, events[(before + (column + 1) % WIDTH) % RING], 0));
        DO(cuEventRecord(events[i % RING], stream));
    }
}

/* From here on CUDA takes longer for events and waits. */
static void use_allocator(void)
{
    CUdeviceptr address;
    DO(cuMemAllocAsync(&address, 8, streams[0]));
    DO(cuMemFreeAsync(address, streams[0]));
    DO(cuCtxSynchronize());
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

/* The same for who looks at the memory instead of asking CUDA. */
static void scalar_seen(int n)
{
    volatile long long *landing = (volatile long long *)pinned;
    for (int i = 0; i < n; i++) {
        *landing = -1;
        DO(cuMemcpyAsync((CUdeviceptr)pinned, memory, 8, streams[0]));
        while (*landing == -1)
            ;
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

static CUDA_KERNEL_NODE_PARAMS kernel_node(void)
{
    static void *arguments[] = {&memory};
    CUDA_KERNEL_NODE_PARAMS params = {0};
    params.func = touch;
    params.gridDimX = params.gridDimY = params.gridDimZ = 1;
    params.blockDimX = params.blockDimY = params.blockDimZ = 1;
    params.kernelParams = arguments;
    return params;
}

/* A chain of kernels as a graph; the time per node. */
static CUgraph chain(CUgraphNode *nodes, int n, double *spent)
{
    CUgraph graph;
    CUDA_KERNEL_NODE_PARAMS params = kernel_node();
    DO(cuGraphCreate(&graph, 0));
    double start = now_us();
    for (int i = 0; i < n; i++)
        DO(cuGraphAddKernelNode(&nodes[i], graph, i ? &nodes[i - 1] : NULL, i > 0, &params));
    *spent = (now_us() - start) / n;
    return graph;
}

/* Medians of launches, when the one before is done: microseconds to submit one, and until it is done. */
static void launches(CUgraphExec executable, double *submitted, double *done)
{
    double times[2][LAUNCHES];
    for (int i = 0; i < LAUNCHES; i++) {
        DO(cuStreamSynchronize(streams[0]));
        double start = now_us();
        DO(cuGraphLaunch(executable, streams[0]));
        times[0][i] = now_us() - start;
        DO(cuStreamSynchronize(streams[0]));
        times[1][i] = now_us() - start;
    }
    for (int k = 0; k < 2; k++)
        qsort(times[k], LAUNCHES, sizeof times[k][0], ascending);
    *submitted = times[0][LAUNCHES / 2];
    *done = times[1][LAUNCHES / 2];
}

enum { ADD, INSTANTIATE, UPDATE, RENEW, RUN, KINDS };

/* Per node: to add it, to run it, to renew it, to make a graph ready (instantiate) and to make one ready that is of the
   shape of another (update), with what their first launches take longer than others. */
static CUgraphExec graph_costs(int n, double costs[KINDS])
{
    double start, first, submitted, done;
    CUgraphNode *nodes = malloc(n * sizeof *nodes);
    CUDA_KERNEL_NODE_PARAMS params = kernel_node();
    CUgraphExecUpdateResultInfo info;
    CUgraphExec executable;
    CUgraph graph = chain(nodes, n, &costs[ADD]), other;
    DO(cuStreamSynchronize(streams[0]));
    start = now_us();
    DO(cuGraphInstantiate(&executable, graph, 0));
    DO(cuGraphLaunch(executable, streams[0]));
    first = now_us() - start;
    launches(executable, &submitted, &done);
    costs[RUN] = done / n;
    costs[INSTANTIATE] = (first - submitted) / n;
    start = now_us();
    for (int i = 0; i < n; i++)
        DO(cuGraphExecKernelNodeSetParams(executable, nodes[i], &params));
    costs[RENEW] = (now_us() - start) / n;
    DO(cuGraphDestroy(graph));
    other = chain(nodes, n, &done);
    start = now_us();
    DO(cuGraphExecUpdate(executable, other, &info));
    DO(cuGraphLaunch(executable, streams[0]));
    costs[UPDATE] = (now_us() - start - submitted) / n;
    DO(cuStreamSynchronize(streams[0]));
    DO(cuGraphDestroy(other));
    free(nodes);
    return executable;
}

static void graphs(int n)
{
    const char *names[KINDS] = {"graph_add", "graph_instantiate", "graph_update", "graph_renew", "graph_run"};
    double costs[KINDS], times[KINDS][REPEAT];
    CUgraphExec executables[REPEAT]; /* kept, as stf keeps them */
    for (int r = 0; r < REPEAT; r++) {
        executables[r] = graph_costs(n, costs);
        for (int i = 0; i < KINDS; i++)
            times[i][r] = costs[i];
    }
    for (int r = 0; r < REPEAT; r++)
        DO(cuGraphExecDestroy(executables[r]));
    for (int i = 0; i < KINDS; i++) {
        qsort(times[i], REPEAT, sizeof times[i][0], ascending);
        printf("%s %.4f\n", names[i], times[i][REPEAT / 2]);
    }
}

static void put_in_graph(CUgraph *graph)
{
    void *arguments[] = {&memory};
    DO(cuStreamBeginCapture(streams[0], CU_STREAM_CAPTURE_MODE_RELAXED));
    DO(cuLaunchKernel(touch, 1, 1, 1, 1, 1, 1, 0, streams[0], arguments, NULL));
    DO(cuStreamEndCapture(streams[0], graph));
}

/* What a body puts on a stream of its own, as a graph. */
static void capture(int n)
{
    static CUgraph graphs[BURST];
    for (int i = 0; i < n; i++) {
        put_in_graph(&graphs[i]);
        if (i % 16 == 15)
            for (int k = i - 15; k <= i; k++)
                DO(cuGraphDestroy(graphs[k]));
    }
}

/* The other way: all bodies in one capture, two chains of them, whose dependencies are set before each. */
static void capture_session(int n)
{
    void *arguments[] = {&memory};
    CUgraph graph;
    CUgraphNode last[2] = {NULL, NULL};
    const CUgraphNode *needs;
    CUstreamCaptureStatus status;
    size_t count;
    DO(cuStreamBeginCapture(streams[0], CU_STREAM_CAPTURE_MODE_RELAXED));
    for (int i = 0; i < n; i++) {
        CUgraphNode *mine = &last[i % 2];
        DO(cuStreamUpdateCaptureDependencies(streams[0], mine, NULL, *mine != NULL, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
        DO(cuLaunchKernel(touch, 1, 1, 1, 1, 1, 1, 0, streams[0], arguments, NULL));
        DO(cuStreamGetCaptureInfo(streams[0], &status, NULL, &graph, &needs, NULL, &count));
        *mine = needs[0];
    }
    DO(cuStreamUpdateCaptureDependencies(streams[0], last, NULL, 2, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    DO(cuStreamEndCapture(streams[0], &graph));
    DO(cuGraphDestroy(graph));
}

void raw_open(void)
{
    CUdevice device;
    CUmodule module;
    DO(cuInit(0));
    DO(cuDeviceGet(&device, 0));
    DO(cuDevicePrimaryCtxRetain(&context, device));
    DO(cuCtxSetCurrent(context));
    for (int i = 0; i < WIDTH; i++)
        DO(cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    for (int i = 0; i < RING; i++)
        DO(cuEventCreate(&events[i], CU_EVENT_DISABLE_TIMING));
    DO(cuModuleLoadData(&module, PTX));
    DO(cuModuleGetFunction(&touch, module, "touch"));
    DO(cuModuleGetFunction(&touch4, module, "touch4"));
    DO(cuMemAlloc(&memory, 1 << 20));
    DO(cuMemHostAlloc((void **)&pinned, 4096, 0));
}

void raw_record(int n)
{
    DO(cuCtxSetCurrent(context));
    record(n);
}

void raw_launch(int n)
{
    DO(cuCtxSetCurrent(context));
    launch(n);
}

void raw_scalar_wait(int n)
{
    DO(cuCtxSetCurrent(context));
    scalar_wait(n);
}

/* A graph of a chain of `n` kernels, for `raw_graph_launch`. */
void raw_graph(int n)
{
    CUgraphNode *nodes = malloc(n * sizeof *nodes);
    double spent;
    DO(cuCtxSetCurrent(context));
    DO(cuGraphInstantiate(&launched, chain(nodes, n, &spent), 0));
    free(nodes);
}

/* Microseconds per node to make a graph of `n` kernels ready, whose executable is kept: by a new one, and by an update. */
void raw_graph_making(int n, double made[2])
{
    double costs[KINDS];
    DO(cuCtxSetCurrent(context));
    graph_costs(n, costs);
    made[0] = costs[INSTANTIATE];
    made[1] = costs[UPDATE];
}

/* Microseconds for one of `n` kernels that are captured, each as a graph of its own, and all kept. */
double raw_captures(int n)
{
    CUgraph *graphs = malloc(n * sizeof *graphs);
    DO(cuCtxSetCurrent(context));
    double start = now_us(), spent;
    for (int i = 0; i < n; i++)
        put_in_graph(&graphs[i]);
    spent = now_us() - start;
    for (int i = 0; i < n; i++)
        DO(cuGraphDestroy(graphs[i]));
    free(graphs);
    return spent / n;
}

/* Microseconds to submit one of `count` launches in a row. */
double raw_graph_launch(int count)
{
    DO(cuCtxSetCurrent(context));
    double start = now_us();
    for (int i = 0; i < count; i++)
        DO(cuGraphLaunch(launched, streams[0]));
    return (now_us() - start) / count;
}

void raw_settle(void)
{
    DO(cuStreamSynchronize(streams[0]));
}

int main(void)
{
    raw_open();
    measure("record", record);
    measure("record_wait", record_wait);
    measure("stencil", stencil);
    measure("launch", launch);
    measure("launch4", launch4);
    measure("scalar_wait", scalar_wait);
    DO(cuMemsetD8(memory, 0, 8));
    measure("scalar_seen", scalar_seen);
    measure("capture", capture);
    measure("capture_session", capture_session);
    graphs(1000);
    bandwidth("host_to_device_gbps", 1);
    bandwidth("device_to_host_gbps", 0);
    use_allocator();
    measure("stencil_allocated", stencil);
    return 0;
}
