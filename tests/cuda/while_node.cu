/* A while node of a CUDA graph, in plain CUDA: right by itself, and ended by compute-sanitizer 2025.3.1.

       nvcc -arch=sm_90 -o while_node tests/cuda/while_node.cu
       ./while_node 0 0 0 5                        # ok 30
       compute-sanitizer ./while_node 0 0 0 5      # cudaErrorIllegalAddress

   Arguments: memory of the stream's pool, waiting for it before the graph, a branch in the loop, rounds. Some of the
   combinations pass under the tool (1 0 0, and those with a branch), 0 0 0 and 1 1 0 do not. */

#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DO(call)                                                   \
    do {                                                           \
        cudaError_t error_ = (call);                               \
        if (error_) {                                              \
            printf("%s: %s\n", #call, cudaGetErrorString(error_)); \
            exit(1);                                               \
        }                                                          \
    } while (0)

typedef unsigned long long Handle;

__global__ void first(Handle h, int *n) { cudaGraphSetConditional((cudaGraphConditionalHandle)h, *n < 10); }

__global__ void odd(Handle h, int *n) { cudaGraphSetConditional((cudaGraphConditionalHandle)h, *n & 1); }

__global__ void add(int *m) { ++*m; }

__global__ void step(Handle h, int *n)
{
    int k = ++*n;
    cudaGraphSetConditional((cudaGraphConditionalHandle)h, k < 10);
}

static cudaGraphNode_t kernel(cudaGraph_t g, cudaGraphNode_t *after, void *f, void **arguments)
{
    cudaKernelNodeParams k;
    cudaGraphNode_t n;
    memset(&k, 0, sizeof k);
    k.func = f;
    k.gridDim = dim3(1);
    k.blockDim = dim3(1);
    k.kernelParams = arguments;
    DO(cudaGraphAddKernelNode(&n, g, after, after ? 1 : 0, &k));
    return n;
}

static cudaGraphNode_t condition(cudaGraph_t g, cudaGraphNode_t *after, Handle h, cudaGraphConditionalNodeType type,
                                 cudaGraph_t *body)
{
    cudaGraphNodeParams p = {cudaGraphNodeTypeConditional};
    cudaGraphNode_t n;
    p.conditional.handle = h;
    p.conditional.type = type;
    p.conditional.size = 1;
    DO(cudaGraphAddNode(&n, g, after, NULL, after ? 1 : 0, &p));
    *body = p.conditional.phGraph_out[0];
    return n;
}

int main(int argc, char **argv)
{
    if (argc < 5)
        return 2;
    int pool = atoi(argv[1]), sync = atoi(argv[2]), nest = atoi(argv[3]), rounds = atoi(argv[4]), *n, *m;
    cudaStream_t s;
    DO(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
    for (int r = 0; r < rounds; r++) {
        if (pool) {
            DO(cudaMallocAsync(&n, 512, s));
            DO(cudaMallocAsync(&m, 512, s));
        } else {
            DO(cudaMalloc(&n, 512));
            DO(cudaMalloc(&m, 512));
        }
        DO(cudaMemsetAsync(n, 0, 4, s));
        DO(cudaMemsetAsync(m, 0, 4, s));
        if (sync)
            DO(cudaStreamSynchronize(s));
        cudaGraph_t g, body, inner;
        cudaGraphConditionalHandle h, h2;
        DO(cudaGraphCreate(&g, 0));
        DO(cudaGraphConditionalHandleCreate(&h, g, 0, cudaGraphCondAssignDefault));
        void *loop[] = {&h, &n}, *branch[] = {&h2, &n}, *count[] = {&m};
        cudaGraphNode_t test = kernel(g, 0, (void *)first, loop);
        condition(g, &test, h, cudaGraphCondTypeWhile, &body);
        if (nest) {
            DO(cudaGraphConditionalHandleCreate(&h2, g, 0, cudaGraphCondAssignDefault));
            cudaGraphNode_t o = kernel(body, 0, (void *)odd, branch);
            cudaGraphNode_t i = condition(body, &o, h2, cudaGraphCondTypeIf, &inner);
            kernel(inner, 0, (void *)add, count);
            kernel(body, &i, (void *)step, loop);
        } else {
            cudaGraphNode_t o = kernel(body, 0, (void *)add, count);
            kernel(body, &o, (void *)step, loop);
        }
        cudaGraphExec_t x;
        DO(cudaGraphInstantiate(&x, g, 0));
        for (int i = 0; i < 3; i++) {
            DO(cudaMemsetAsync(n, 0, 4, s));
            DO(cudaGraphLaunch(x, s));
        }
        int result;
        DO(cudaMemcpyAsync(&result, m, 4, cudaMemcpyDeviceToHost, s));
        DO(cudaStreamSynchronize(s));
        if (r == rounds - 1)
            printf("ok %d\n", result);
        DO(cudaGraphExecDestroy(x));
        DO(cudaGraphDestroy(g));
        if (pool) {
            DO(cudaFreeAsync(n, s));
            DO(cudaFreeAsync(m, s));
        } else {
            DO(cudaFree(n));
            DO(cudaFree(m));
        }
    }
}
