/* Two conditional nodes at a time in the body of a third, in plain CUDA: now and then the GPU stops for good.

       nvcc -arch=sm_90 -rdc=true -o nested_nodes tests/cuda/nested_nodes.cu -lcudadevrt
       ./nested_nodes 0 1000      # at a time: "stops at launch ..." in some processes
       ./nested_nodes 1 1000      # one after the other: ok

   Arguments: whether the loop and the branches come one after the other, launches. As a program:

       while (n < 3) { { m = 0; while (m < 1) { work(a); m++; } } || { if (1) work(b); if (0) c++; } || n++; }

   where || is at the same time. `work` is a child graph of four kernels, what else is called one of one kernel. On an H200
   (driver 580.159, CUDA 13.0), four processes side by side, this stopped in 2 of 16 processes, at launch 0 and 934, and
   in order in none of 8. It takes little to hide it: it was not seen with one kernel in `work`, without child graphs,
   with one branch, or with n++ at the end. */

#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define DO(call)                                                   \
    do {                                                           \
        cudaError_t error_ = (call);                               \
        if (error_) {                                              \
            printf("%s: %s\n", #call, cudaGetErrorString(error_)); \
            exit(1);                                               \
        }                                                          \
    } while (0)

typedef cudaGraphNode_t Node;
typedef cudaGraphConditionalHandle Handle;

__global__ void below(long *n, long limit, int *flag) { *flag = *n < limit; }
__global__ void decide(Handle h, int *flag) { cudaGraphSetConditional(h, *flag); }
__global__ void add(long *n) { ++*n; }
__global__ void zero(long *n) { *n = 0; }

__global__ void work(long *n)
{
    for (int i = 0; i < 100; i++)
        n[i & 15] = n[i & 15] * 3 + 1;
}

static Node kernel(cudaGraph_t graph, int count, const Node *after, void *function, void **arguments)
{
    cudaKernelNodeParams what = {0};
    Node node;
    what.func = function;
    what.gridDim = what.blockDim = dim3(1);
    what.kernelParams = arguments;
    DO(cudaGraphAddKernelNode(&node, graph, after, count, &what));
    return node;
}

/* A child graph: kernels one after the other. */
static Node child(cudaGraph_t graph, int count, const Node *after, int kernels, void *function, void **arguments)
{
    cudaGraph_t inner;
    Node node;
    DO(cudaGraphCreate(&inner, 0));
    for (int i = 0; i < kernels; i++)
        node = kernel(inner, i > 0, &node, function, arguments);
    DO(cudaGraphAddChildGraphNode(&node, graph, after, count, inner));
    DO(cudaGraphDestroy(inner));
    return node;
}

/* What comes before a conditional node, and ends the body of a loop: n < limit. */
static Node test(cudaGraph_t graph, int count, const Node *after, Handle handle, long *n, long limit)
{
    int *flag = (int *)(n + 32);
    void *first[] = {&n, &limit, &flag}, *second[] = {&handle, &flag};
    Node node = child(graph, count, after, 1, (void *)below, first);
    return kernel(graph, 1, &node, (void *)decide, second);
}

static Node condition(cudaGraph_t graph, Node after, Handle handle, cudaGraphConditionalNodeType type, cudaGraph_t *body)
{
    cudaGraphNodeParams what = {cudaGraphNodeTypeConditional};
    Node node;
    what.conditional.handle = handle;
    what.conditional.type = type;
    what.conditional.size = 1;
    DO(cudaGraphAddNode(&node, graph, &after, NULL, 1, &what));
    *body = what.conditional.phGraph_out[0];
    return node;
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    int in_order = atoi(argv[1]), launches = atoi(argv[2]);
    long *memory;
    DO(cudaMalloc(&memory, 6 * 64 * sizeof(long)));
    DO(cudaMemset(memory, 0, 6 * 64 * sizeof(long)));
    DO(cudaDeviceSynchronize());
    long *n = memory, *m = n + 64, *k = m + 64, *a = k + 64, *b = a + 64, *c = b + 64;
    void *of_n[] = {&n}, *of_m[] = {&m}, *of_a[] = {&a}, *of_b[] = {&b}, *of_c[] = {&c};
    cudaGraph_t graph, body, inner, branch;
    cudaGraphExec_t executable;
    cudaStream_t stream;
    Handle handles[4];
    Node ends[3], two[2], node;
    DO(cudaGraphCreate(&graph, 0));
    DO(cudaGraphConditionalHandleCreate(&handles[0], graph, 0, 0));
    node = child(graph, 0, NULL, 1, (void *)zero, of_n);
    node = test(graph, 1, &node, handles[0], n, 3);
    condition(graph, node, handles[0], cudaGraphCondTypeWhile, &body);

    DO(cudaGraphConditionalHandleCreate(&handles[1], body, 0, 0));
    node = child(body, 0, NULL, 1, (void *)zero, of_m);
    node = test(body, 1, &node, handles[1], m, 1);
    ends[0] = condition(body, node, handles[1], cudaGraphCondTypeWhile, &inner);
    two[0] = child(inner, 0, NULL, 4, (void *)work, of_a);
    two[1] = child(inner, 0, NULL, 1, (void *)add, of_m);
    test(inner, 2, two, handles[1], m, 1);

    DO(cudaGraphConditionalHandleCreate(&handles[2], body, 0, 0));
    node = test(body, in_order, ends, handles[2], k, 1);
    node = condition(body, node, handles[2], cudaGraphCondTypeIf, &branch);
    child(branch, 0, NULL, 4, (void *)work, of_b);
    DO(cudaGraphConditionalHandleCreate(&handles[3], body, 0, 0));
    node = test(body, 1, &node, handles[3], k, 0);
    ends[1] = condition(body, node, handles[3], cudaGraphCondTypeIf, &branch);
    child(branch, 0, NULL, 1, (void *)add, of_c);

    ends[2] = child(body, 0, NULL, 1, (void *)add, of_n);
    test(body, 3, ends, handles[0], n, 3);

    DO(cudaGraphInstantiate(&executable, graph, 0));
    DO(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int i = 0; i < launches; i++) {
        cudaError_t state;
        DO(cudaGraphLaunch(executable, stream));
        for (int waits = 0; (state = cudaStreamQuery(stream)) == cudaErrorNotReady && waits < 50000; waits++)
            usleep(20);
        if (state == cudaErrorNotReady) {
            printf("stops at launch %d\n", i);
            fflush(stdout);
            _exit(3); /* waiting for the device would take for ever */
        }
        DO(state);
    }
    printf("ok\n");
    fflush(stdout);
    _exit(0);
}
