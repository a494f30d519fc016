// A libcuda.so.1 that passes everything on to the true one and notes the calls that order work or touch memory.
//
// Every function of cuda.h is here: those that are noted as C++, all others as jumps. A note is a line of text. The notes
// of all threads are in the order in which the calls began; those that make something, or ask, are noted when they have
// come back with success, those that wait at both ends. No lock is held over a call: one that waits for the device
// (a copy of pageable memory, say) may wait for a function of the host that makes calls, too.
//
//   CUDATRACE_LIBRARY=path   the true library (/usr/lib/x86_64-linux-gnu/libcuda.so.1, or a stand-in)
//
// x86-64 and Linux only. Functions for per-thread default streams are not intercepted.

#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>

#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#define STRINGIFY(x) #x
#define NAME_OF(x) STRINGIFY(x)  // with the version that cuda.h gives it

namespace {

void *true_library() {
    static void *library = [] {
        const char *path = getenv("CUDATRACE_LIBRARY");
        void *found = dlopen(path ? path : "/usr/lib/x86_64-linux-gnu/libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
        if (!found) {
            fprintf(stderr, "cudatrace: %s\n", dlerror());
            abort();
        }
        return found;
    }();
    return library;
}

struct Log {
    std::mutex mutex;
    std::string text;
    bool is_on = false;
    long drop = 0;      // the how manieth cuStreamWaitEvent from now on is swallowed
    long waits = 0;
};

Log &log() {
    static auto &it = *new Log;
    return it;
}

using Lock = std::lock_guard<std::mutex>;

__attribute__((format(printf, 1, 2))) void note(const char *format, ...) {
    char line[512];
    int n = snprintf(line, sizeof line, "%lu ", (unsigned long)pthread_self());
    va_list arguments;
    va_start(arguments, format);
    n += vsnprintf(line + n, sizeof line - n, format, arguments);
    va_end(arguments);
    Lock lock(log().mutex);
    if (log().is_on) log().text.append(line, n).push_back('\n');
}

template <class F>
F *true_function(const char *name) {
    return reinterpret_cast<F *>(dlsym(true_library(), name));
}

#define TRUE(name) ([] { static auto *f = true_function<decltype(name)>(NAME_OF(name)); return f; }())

// Streams by number; the default streams, which each context has, by their context's.
unsigned long long number_of(CUstream stream) {
    auto value = reinterpret_cast<std::uintptr_t>(stream);
    if (value > 2) return value;
    CUcontext context = nullptr;
    TRUE(cuCtxGetCurrent)(&context);
    return reinterpret_cast<std::uintptr_t>(context) * 4 + (value == 2 ? 2 : 1);
}

CUdeviceptr as_address(const void *host) { return reinterpret_cast<CUdeviceptr>(host); }

void note_copy(CUstream stream, CUdeviceptr to, CUdeviceptr from, std::size_t n) {
    note("copy %llu %llu %llu %zu", number_of(stream), to, from, n);
}

}  // namespace

#undef cuGetProcAddress  // both versions are ours
extern "C" {

#define CALLS_THEN_NOTES(name, ...) \
    CUresult result = TRUE(name)(__VA_ARGS__); \
    if (result != CUDA_SUCCESS) return result

CUresult cuStreamCreate(CUstream *stream, unsigned flags) {
    CALLS_THEN_NOTES(cuStreamCreate, stream, flags);
    note("create %llu", number_of(*stream));
    return result;
}

CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority) {
    CALLS_THEN_NOTES(cuStreamCreateWithPriority, stream, flags, priority);
    note("create %llu", number_of(*stream));
    return result;
}

CUresult cuStreamDestroy(CUstream stream) {
    note("destroy %llu", number_of(stream));
    return TRUE(cuStreamDestroy)(stream);
}

CUresult cuEventRecord(CUevent event, CUstream stream) {
    note("record %llu %llu", number_of(stream), (unsigned long long)event);
    return TRUE(cuEventRecord)(event, stream);
}

CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags) {
    note("record %llu %llu", number_of(stream), (unsigned long long)event);
    return TRUE(cuEventRecordWithFlags)(event, stream, flags);
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
    {
        Lock lock(log().mutex);
        if (++log().waits == log().drop) return CUDA_SUCCESS;
    }
    note("wait %llu %llu", number_of(stream), (unsigned long long)event);
    return TRUE(cuStreamWaitEvent)(stream, event, flags);
}

// What a wait that came back has seen is what was recorded when it began: an event may be recorded again meanwhile.
#define WAITS(name, what, ...) \
    { \
        unsigned long long seen = (unsigned long long)(what); \
        note("before " #name " %llu", seen); \
        CUresult result = TRUE(name)(__VA_ARGS__); \
        note("after " #name " %llu %d", seen, int(result)); \
        return result; \
    }

// Who only asks is not kept waiting, and asks again and again.
#define ASKS(name, what, ...) \
    { \
        CALLS_THEN_NOTES(name, __VA_ARGS__); \
        note("before " #name " %llu", (unsigned long long)(what)); \
        note("after " #name " %llu 0", (unsigned long long)(what)); \
        return result; \
    }

CUresult cuEventSynchronize(CUevent event) WAITS(cuEventSynchronize, event, event)
CUresult cuEventQuery(CUevent event) ASKS(cuEventQuery, event, event)
CUresult cuStreamSynchronize(CUstream stream) WAITS(cuStreamSynchronize, number_of(stream), stream)
CUresult cuStreamQuery(CUstream stream) ASKS(cuStreamQuery, number_of(stream), stream)

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *address, std::size_t n, CUmemoryPool pool, CUstream stream) {
    CALLS_THEN_NOTES(cuMemAllocFromPoolAsync, address, n, pool, stream);
    note("alloc %llu %zu %llu", number_of(stream), n, *address);
    return result;
}

CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
    note("free %llu %llu", number_of(stream), address);
    return TRUE(cuMemFreeAsync)(address, stream);
}

#define COPIES(name, to, from, n, stream, ...) \
    { \
        note_copy(stream, to, from, n); \
        return TRUE(name)(__VA_ARGS__); \
    }

CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, std::size_t n, CUstream s) COPIES(cuMemcpyAsync, to, from, n, s, to, from, n, s)
CUresult cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, std::size_t n, CUstream s)
    COPIES(cuMemcpyHtoDAsync, to, as_address(from), n, s, to, from, n, s)
CUresult cuMemcpyDtoHAsync(void *to, CUdeviceptr from, std::size_t n, CUstream s)
    COPIES(cuMemcpyDtoHAsync, as_address(to), from, n, s, to, from, n, s)
CUresult cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, std::size_t n, CUstream s)
    COPIES(cuMemcpyDtoDAsync, to, from, n, s, to, from, n, s)
CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext c, CUdeviceptr from, CUcontext d, std::size_t n, CUstream s)
    COPIES(cuMemcpyPeerAsync, to, from, n, s, to, c, from, d, n, s)

CUresult cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *c, CUstream stream) {
    bool to_host = c->dstMemoryType == CU_MEMORYTYPE_HOST, from_host = c->srcMemoryType == CU_MEMORYTYPE_HOST;
    CUdeviceptr to = to_host ? as_address(c->dstHost) : c->dstDevice, from = from_host ? as_address(c->srcHost) : c->srcDevice;
    note("block %llu %llu %zu %zu %llu %zu %zu %zu %zu %zu", number_of(stream), to, c->dstPitch, c->dstHeight, from,
         c->srcPitch, c->srcHeight, c->WidthInBytes, c->Height, c->Depth);
    return TRUE(cuMemcpy3DPeerAsync)(c, stream);
}

#define SETS(name, to, pitch, width, height, stream, ...) \
    { \
        note("set %llu %llu %zu %zu %zu", number_of(stream), to, std::size_t(pitch), std::size_t(width), std::size_t(height)); \
        return TRUE(name)(__VA_ARGS__); \
    }

CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char v, std::size_t n, CUstream s) SETS(cuMemsetD8Async, to, n, n, 1, s, to, v, n, s)
CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short v, std::size_t n, CUstream s)
    SETS(cuMemsetD16Async, to, 2 * n, 2 * n, 1, s, to, v, n, s)
CUresult cuMemsetD32Async(CUdeviceptr to, unsigned v, std::size_t n, CUstream s) SETS(cuMemsetD32Async, to, 4 * n, 4 * n, 1, s, to, v, n, s)
CUresult cuMemsetD2D8Async(CUdeviceptr to, std::size_t p, unsigned char v, std::size_t w, std::size_t h, CUstream s)
    SETS(cuMemsetD2D8Async, to, p, w, h, s, to, p, v, w, h, s)
CUresult cuMemsetD2D16Async(CUdeviceptr to, std::size_t p, unsigned short v, std::size_t w, std::size_t h, CUstream s)
    SETS(cuMemsetD2D16Async, to, p, 2 * w, h, s, to, p, v, w, h, s)
CUresult cuMemsetD2D32Async(CUdeviceptr to, std::size_t p, unsigned v, std::size_t w, std::size_t h, CUstream s)
    SETS(cuMemsetD2D32Async, to, p, 4 * w, h, s, to, p, v, w, h, s)

CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                        unsigned shared, CUstream stream, void **parameters, void **extra) {
    note("launch %llu", number_of(stream));
    return TRUE(cuLaunchKernel)(f, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig *config, CUfunction f, void **parameters, void **extra) {
    note("launch %llu", number_of(config->hStream));
    return TRUE(cuLaunchKernelEx)(config, f, parameters, extra);
}

}  // extern "C"

namespace {

// The names that programs ask for, and what they get here.
void *own_function(const std::string &name) {
    static const auto &own = *new std::map<std::string, void *>{
        {"cuStreamCreate", (void *)&cuStreamCreate}, {"cuStreamCreateWithPriority", (void *)&cuStreamCreateWithPriority},
        {"cuStreamDestroy", (void *)&cuStreamDestroy}, {"cuEventRecord", (void *)&cuEventRecord},
        {"cuEventRecordWithFlags", (void *)&cuEventRecordWithFlags}, {"cuStreamWaitEvent", (void *)&cuStreamWaitEvent},
        {"cuEventSynchronize", (void *)&cuEventSynchronize}, {"cuEventQuery", (void *)&cuEventQuery},
        {"cuStreamSynchronize", (void *)&cuStreamSynchronize}, {"cuStreamQuery", (void *)&cuStreamQuery},
        {"cuMemAllocFromPoolAsync", (void *)&cuMemAllocFromPoolAsync}, {"cuMemFreeAsync", (void *)&cuMemFreeAsync},
        {"cuMemcpyAsync", (void *)&cuMemcpyAsync}, {"cuMemcpyHtoDAsync", (void *)&cuMemcpyHtoDAsync},
        {"cuMemcpyDtoHAsync", (void *)&cuMemcpyDtoHAsync}, {"cuMemcpyDtoDAsync", (void *)&cuMemcpyDtoDAsync},
        {"cuMemcpyPeerAsync", (void *)&cuMemcpyPeerAsync}, {"cuMemcpy3DPeerAsync", (void *)&cuMemcpy3DPeerAsync},
        {"cuMemsetD8Async", (void *)&cuMemsetD8Async}, {"cuMemsetD16Async", (void *)&cuMemsetD16Async},
        {"cuMemsetD32Async", (void *)&cuMemsetD32Async}, {"cuMemsetD2D8Async", (void *)&cuMemsetD2D8Async},
        {"cuMemsetD2D16Async", (void *)&cuMemsetD2D16Async}, {"cuMemsetD2D32Async", (void *)&cuMemsetD2D32Async},
        {"cuLaunchKernel", (void *)&cuLaunchKernel}, {"cuLaunchKernelEx", (void *)&cuLaunchKernelEx},
    };
    auto found = own.find(name);
    return found == own.end() ? nullptr : found->second;
}

void replace(const char *name, void **found, cuuint64_t flags);

}  // namespace

extern "C" {

CUresult cuGetProcAddress_v2(const char *name, void **found, int version, cuuint64_t flags, CUdriverProcAddressQueryResult *status) {
    static auto *f = true_function<decltype(cuGetProcAddress_v2)>("cuGetProcAddress_v2");
    CUresult result = f(name, found, version, flags, status);
    if (result == CUDA_SUCCESS) replace(name, found, flags);
    return result;
}

CUresult cuGetProcAddress(const char *name, void **found, int version, cuuint64_t flags) {
    static auto *f = reinterpret_cast<CUresult (*)(const char *, void **, int, cuuint64_t)>(dlsym(true_library(), "cuGetProcAddress"));
    CUresult result = f(name, found, version, flags);
    if (result == CUDA_SUCCESS) replace(name, found, flags);
    return result;
}

// ------------------------------------------------------------------------------------------------ for the tests

// Begin to note; what was noted before is forgotten.
void cudatrace_start() {
    Lock lock(log().mutex);
    log().text.clear();
    log().is_on = true;
}

// Stop; the notes are valid until the next start.
const char *cudatrace_stop() {
    Lock lock(log().mutex);
    log().is_on = false;
    return log().text.c_str();
}

// A note of the caller's own among those of the calls.
void cudatrace_mark(const char *what) {
    note("mark %s", what);
}

// Swallow the k-th wait of a stream for an event from now on; 0: none. Return how many waits there were since the last time.
long cudatrace_drop(long k) {
    Lock lock(log().mutex);
    long waits = log().waits;
    log().waits = 0;
    log().drop = k;
    return waits;
}

}  // extern "C"

namespace {

void replace(const char *name, void **found, cuuint64_t flags) {
    if (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) return;
    std::string plain = name;
    if (plain == "cuGetProcAddress") *found = reinterpret_cast<void *>(&cuGetProcAddress_v2);
    if (void *own = own_function(plain)) *found = own;
}

}  // namespace

// ------------------------------------------------------------------------------------------ everything else: jumps

namespace {
CUresult not_there() { return CUDA_ERROR_NOT_FOUND; }
}

#define FORWARD(name) \
    extern "C" { \
    __attribute__((visibility("hidden"))) void *true_##name = nullptr; \
    } \
    asm(".pushsection .text\n.globl " #name "\n.type " #name ",@function\n" #name ": jmp *true_" #name "(%rip)\n.popsection\n");
#include "forwarded.inc"
#undef FORWARD

__attribute__((constructor)) static void find_true_functions() {
#define FORWARD(name) \
    true_##name = dlsym(true_library(), #name); \
    if (!true_##name) true_##name = reinterpret_cast<void *>(&not_there);
#include "forwarded.inc"
}
