// A stand-in for CUDA's driver library (libcuda.so.1): host memory plays device memory, and threads play streams.
//
// One mutex guards all state. Each stream is a queue served by its own thread, which drops the mutex while it works.
// Handles are numbers that are never used twice, so that a stale handle is found and not followed.
// A graph is replayed on one stream, its nodes in an order that their edges allow, which the seed shuffles.
//
// Environment, read when the library is loaded and by fakecuda_reset():
//   FAKECUDA_DEVICES=2      devices
//   FAKECUDA_PEER=1         whether devices reach each other's memory
//   FAKECUDA_MEMORY=bytes   capacity of each device (256 MiB)
//   FAKECUDA_SEED=n         random small delays in the streams
//   FAKECUDA_FAIL=plan      "cuMemAlloc:3,cuMemcpyAsync:5:CUDA_ERROR_ILLEGAL_ADDRESS"; "3+" is the third and later
//                           calls; "work" as the name counts the work that streams execute
//   FAKECUDA_LAZY=us        copies to pageable memory take so long, and are not waited for
//   FAKECUDA_QUEUE=n        how much a stream takes; who gives it more waits
//   FAKECUDA_TRACE=1        name what is called and not supported; 2: every call, and what is asked for and not there

#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <atomic>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

// A kernel: pointers to its parameters, and the three grid and three block dimensions.
extern "C" typedef void (*fakecuda_kernel)(void **parameters, const unsigned *dimensions);

namespace {

using Address = std::uintptr_t;
using Clock = std::chrono::steady_clock;
using Lock = std::unique_lock<std::mutex>;
using std::shared_ptr;
using std::string;

constexpr int DRIVER_VERSION = 13000;
constexpr unsigned char POISON = 0xA5;          // fills fresh and freed device memory
constexpr std::size_t QUARANTINE = 64u << 20;   // bytes of freed memory that stay mapped, so that late use reads poison
constexpr std::size_t MAX_PITCH = 0x7fffffff;
constexpr std::size_t GRANULARITY = 2u << 20;  // of memory that is mapped
constexpr unsigned MAX_THREADS_PER_BLOCK = 1024;

// ------------------------------------------------------------------------------------------------- what there is

struct Capture;
struct Context;
struct Graph;
struct Stream;

struct Pool {
    int device = 0;
    std::size_t used = 0, used_high = 0, reserved = 0, reserved_high = 0;
    std::uint64_t threshold = 0;
    std::size_t max_size = 0;
    std::map<int, int> reuse = {{1, 1}, {2, 1}, {3, 1}};  // CU_MEMPOOL_ATTR_REUSE_*; kept, without effect
    std::map<int, CUmemAccess_flags> access;
    CUmemoryPool handle = nullptr;
};

// Memory of a device without an address: a file, so that it keeps its content wherever it is mapped.
struct Physical {
    int device = 0, file = -1, mappings = 0;
    std::size_t nbytes = 0;
    bool is_released = false;
};

// Memory that the driver knows.
struct Range {
    enum Kind { DEVICE, POOLED, PINNED, REGISTERED, MANAGED, MAPPED } kind = DEVICE;
    Address start = 0;
    std::size_t nbytes = 0;
    int device = 0;
    unsigned long long id = 0;
    unsigned flags = 0;
    shared_ptr<Context> context;
    shared_ptr<Pool> pool;
    shared_ptr<Physical> physical;                // of what is mapped,
    std::map<int, CUmemAccess_flags> access = {};  // and who may use it
    bool is_alive = true;      // a stream-ordered allocation is alive between the execution of alloc and free
    bool is_freeing = false;   // cuMemFreeAsync was called
    const Graph *graph = nullptr;  // whose nodes allocate and free it
    int users = 0;             // work running on it now

    bool is_host() const { return kind == PINNED || kind == REGISTERED; }
    bool covers(Address first, std::size_t n) const { return start <= first && first + n <= start + nbytes; }
};

using Ranges = std::vector<shared_ptr<Range>>;

// A place in a stream that was reached or not: what a record leaves behind for those that wait.
struct Mark {
    bool is_reached = false;
    Clock::time_point time;
};

struct Event {
    shared_ptr<Context> context;
    unsigned flags = 0;
    shared_ptr<Mark> last;  // null: never recorded, which counts as complete
    shared_ptr<Capture> capture;  // where it was recorded last, if it was in one
    std::set<int> after;          // and after which nodes
};

struct Line {  // a copy of bytes that lie in a row in both places
    Address to, from;
    CUmemorytype to_type, from_type;
    std::size_t width;
};

// A kernel's launch in a graph, as who asks for it gets it.
struct KernelLaunch {
    CUDA_KERNEL_NODE_PARAMS launch = {};
    std::vector<std::array<std::uint64_t, 9>> arguments;
    std::vector<void *> addresses;
};

struct Work {
    const char *name = "nothing";
    shared_ptr<const Line> line = {};                     // of a copy of such
    shared_ptr<const CUDA_MEMSET_NODE_PARAMS> area = {};  // of a fill
    shared_ptr<const KernelLaunch> kernel = {};           // of a kernel
    std::function<void()> body = {};           // runs without the lock; left out once the driver has failed
    Ranges ranges = {};                        // must be alive while the body runs; null: an illegal address
    std::function<Ranges()> find_ranges = {};  // for addresses that are looked at only then, as by kernels
    std::function<void()> finish = {};         // runs with the lock, in any case
    std::function<std::function<void()>()> at_launch = {};  // makes the body when the graph is launched that it is part of
};

struct Stream {
    shared_ptr<Context> context;
    unsigned flags = 0;
    int priority = 0;
    bool is_legacy = false;
    unsigned long long id = 0;
    CUstream handle = nullptr;

    std::deque<Work> queue;
    std::uint64_t submitted = 0, completed = 0;
    bool is_served = false, is_destroyed = false;
    std::condition_variable wake;

    shared_ptr<Capture> capture;  // null: work is done, not captured
    std::set<int> tail;           // the nodes that what comes next comes after

    bool is_blocking() const { return !is_legacy && !(flags & CU_STREAM_NON_BLOCKING); }
};

struct UserObject {
    void *data = nullptr;
    CUhostFn destroy = nullptr;

    ~UserObject() { destroy(data); }
};

struct Node {
    Work work;
    std::set<int> after;
    std::uint64_t id = 0;              // the same in what is instantiated from the graph
    shared_ptr<Graph> inner = {};      // a child graph, or what a condition decides about
    CUgraphConditionalHandle condition = 0;
    bool is_loop = false;

    CUgraphNode handle() const { return reinterpret_cast<CUgraphNode>(0x70000000 + 16 * id); }
};

struct Condition {
    unsigned value = 0, at_launch = 0;
    bool is_reset = false;
};

// What was captured. What is instantiated from it is a copy that keeps it.
struct Graph {
    std::vector<Node> nodes;
    std::vector<shared_ptr<Range>> memory;
    std::vector<shared_ptr<UserObject>> objects;
    std::vector<CUgraphConditionalHandle> conditions;
    shared_ptr<Graph> origin;
    CUgraph handle = nullptr;

    ~Graph();
};

struct Capture {
    CUstream origin = nullptr;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    std::thread::id thread;
    bool is_invalid = false, is_over = false;
    bool is_into = false;  // a graph that was there before
    unsigned long long id = 0;
    std::vector<CUgraphNode> tail = {};  // as it was told last
    shared_ptr<Graph> graph = std::make_shared<Graph>();
};

struct Context {
    int device = 0;
    unsigned long long id = 0;
    unsigned flags = 0;
    int retained = 0;
    bool is_alive = false;
    CUcontext handle = nullptr;
    std::set<int> peers;  // devices whose memory this context was given access to
    shared_ptr<Stream> legacy;
    std::vector<shared_ptr<Stream>> streams;  // the destroyed ones too, while they have work
};

struct Device {
    std::size_t used = 0;
    shared_ptr<Context> primary;
    shared_ptr<Pool> default_pool, current_pool;
};

struct Function {
    // Of the parameters: p pointer, q 64-bit integer, d double, i 32-bit integer, f float; 1 to 4: a struct of a pointer,
    // and of as many extents and strides of 64 bits.
    string name, signature;
    fakecuda_kernel code = nullptr;
    std::size_t itemsize = 0;  // not 0: pointers reach over as many items as the last parameter says
    bool is_trap = false;
    shared_ptr<Context> context = nullptr;  // of a kernel's function; null: of any
    bool is_kernel = false;                 // a CUkernel, which is no CUfunction but for a launch

    std::size_t size(std::size_t i) const {
        if (is_slice(i)) return 8 + 16 * (signature[i] - '0');
        return strchr("pqdo", signature[i]) ? 8 : 4;
    }
    bool is_slice(std::size_t i) const { return '1' <= signature[i] && signature[i] <= '4'; }
    std::size_t offset(std::size_t i) const;
};

struct Module {
    shared_ptr<Context> context;
};

struct Failure {
    string name;
    long nth = 1;
    bool is_lasting = false;
    CUresult error = CUDA_ERROR_OUT_OF_MEMORY;
    long seen = 0;
};

template <class Handle, class T>
struct Table {
    std::map<Handle, shared_ptr<T>> live;
    std::set<Address> spare;  // of those that were given back
    Address first, end;

    explicit Table(Address first) : first(first), end(first) {}

    Handle add(shared_ptr<T> object) {  // as in CUDA, those that were given back are given out again
        Address next = spare.empty() ? end : *spare.begin();
        spare.erase(next);
        end = std::max(end, next + 0x40);
        Handle handle = reinterpret_cast<Handle>(next);
        live[handle] = std::move(object);
        return handle;
    }
    auto erase(typename std::map<Handle, shared_ptr<T>>::iterator it) {
        spare.insert(reinterpret_cast<Address>(it->first));
        return live.erase(it);
    }
    bool erase(Handle handle) {
        auto it = live.find(handle);
        if (it == live.end()) return false;
        erase(it);
        return true;
    }
    void clear() {
        live.clear();
        spare.clear();
        end = first;
    }
    shared_ptr<T> find(Handle handle) const {
        auto found = live.find(handle);
        return found == live.end() ? nullptr : found->second;
    }
};

struct State {
    std::mutex mutex;
    std::condition_variable progress;  // some work was completed
    bool is_initialized = false;
    CUresult error = CUDA_SUCCESS;  // sticky: what the work did wrong
    string description;                   // and how, for those who search

    std::size_t capacity = 0, queue_limit = 0;
    bool has_peers = true;
    int lazy_us = 0;
    bool is_shuffled = false;
    unsigned seed = 0;
    int trace = 0;

    std::vector<Device> devices;
    // The numbers differ in the upper digits, for those who read them in a debugger
    Table<CUcontext, Context> contexts{0xC0000000};
    Table<CUstream, Stream> streams{0x57000000};
    Table<CUevent, Event> events{0xE0000000};
    Table<CUmemoryPool, Pool> pools{0xB0000000};
    Table<CUmodule, Module> modules{0xD0000000};
    Table<CUfunction, Function> functions{0xF0000000};
    Table<CUgraph, Graph> graphs{0x60000000};
    Table<CUgraphExec, Graph> execs{0x61000000};
    Table<CUuserObject, UserObject> objects{0x62000000};
    std::vector<shared_ptr<Capture>> captures;  // those that are not over
    std::map<Address, shared_ptr<Range>> ranges;
    std::deque<shared_ptr<Range>> quarantine;
    std::map<Address, std::size_t> reservations;
    std::map<CUmemGenericAllocationHandle, shared_ptr<Physical>> physicals;
    std::size_t quarantined = 0;

    std::map<string, long> calls;
    std::vector<Failure> failures;
    unsigned long long ids = 0, streams_made = 0, nodes_made = 0;
    std::map<CUgraphConditionalHandle, Condition> conditions;
    long dropped = 0;  // objects that went with their context
};

State &state();

// A fork waits until no thread is inside, so that the child finds the mutex free.
State &make_state() {
    pthread_atfork([] { state().mutex.lock(); }, [] { state().mutex.unlock(); }, [] { state().mutex.unlock(); });
    return *new State;  // never destroyed: stream threads may outlive main
}

State &state() {
    static State &only = make_state();
    return only;
}

thread_local std::vector<CUcontext> current_contexts;
thread_local std::map<CUcontext, shared_ptr<Stream>> thread_streams;
thread_local bool is_stream_thread = false;
thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

// ------------------------------------------------------------------------------------------------- errors

struct ErrorName {
    CUresult code;
    const char *name;
    string words;
};

const std::vector<ErrorName> &error_names() {
#define E(code) {code, #code, ""},
    static std::vector<ErrorName> names = {
        E(CUDA_SUCCESS) E(CUDA_ERROR_INVALID_VALUE) E(CUDA_ERROR_OUT_OF_MEMORY) E(CUDA_ERROR_NOT_INITIALIZED)
        E(CUDA_ERROR_DEINITIALIZED) E(CUDA_ERROR_STUB_LIBRARY) E(CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER)
        E(CUDA_ERROR_DEVICE_UNAVAILABLE) E(CUDA_ERROR_NO_DEVICE) E(CUDA_ERROR_INVALID_DEVICE)
        E(CUDA_ERROR_DEVICE_NOT_LICENSED) E(CUDA_ERROR_INVALID_IMAGE) E(CUDA_ERROR_INVALID_CONTEXT)
        E(CUDA_ERROR_MAP_FAILED) E(CUDA_ERROR_UNMAP_FAILED) E(CUDA_ERROR_NO_BINARY_FOR_GPU)
        E(CUDA_ERROR_ECC_UNCORRECTABLE) E(CUDA_ERROR_UNSUPPORTED_LIMIT) E(CUDA_ERROR_CONTEXT_ALREADY_IN_USE)
        E(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED) E(CUDA_ERROR_INVALID_PTX) E(CUDA_ERROR_NVLINK_UNCORRECTABLE)
        E(CUDA_ERROR_JIT_COMPILER_NOT_FOUND) E(CUDA_ERROR_UNSUPPORTED_PTX_VERSION) E(CUDA_ERROR_CONTAINED)
        E(CUDA_ERROR_INVALID_SOURCE) E(CUDA_ERROR_FILE_NOT_FOUND) E(CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND)
        E(CUDA_ERROR_SHARED_OBJECT_INIT_FAILED) E(CUDA_ERROR_OPERATING_SYSTEM) E(CUDA_ERROR_INVALID_HANDLE)
        E(CUDA_ERROR_ILLEGAL_STATE) E(CUDA_ERROR_NOT_FOUND) E(CUDA_ERROR_NOT_READY) E(CUDA_ERROR_ILLEGAL_ADDRESS)
        E(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES) E(CUDA_ERROR_LAUNCH_TIMEOUT) E(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
        E(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED) E(CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE) E(CUDA_ERROR_CONTEXT_IS_DESTROYED)
        E(CUDA_ERROR_ASSERT) E(CUDA_ERROR_TOO_MANY_PEERS) E(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED)
        E(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED) E(CUDA_ERROR_HARDWARE_STACK_ERROR) E(CUDA_ERROR_ILLEGAL_INSTRUCTION)
        E(CUDA_ERROR_MISALIGNED_ADDRESS) E(CUDA_ERROR_INVALID_ADDRESS_SPACE) E(CUDA_ERROR_INVALID_PC)
        E(CUDA_ERROR_LAUNCH_FAILED) E(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE) E(CUDA_ERROR_NOT_PERMITTED)
        E(CUDA_ERROR_NOT_SUPPORTED) E(CUDA_ERROR_SYSTEM_NOT_READY) E(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH)
        E(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) E(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
        E(CUDA_ERROR_STREAM_CAPTURE_MERGE) E(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED)
        E(CUDA_ERROR_STREAM_CAPTURE_UNJOINED) E(CUDA_ERROR_STREAM_CAPTURE_ISOLATION)
        E(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT) E(CUDA_ERROR_CAPTURED_EVENT) E(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD)
        E(CUDA_ERROR_TIMEOUT) E(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE) E(CUDA_ERROR_EXTERNAL_DEVICE)
        E(CUDA_ERROR_FUNCTION_NOT_LOADED) E(CUDA_ERROR_INVALID_RESOURCE_TYPE)
        E(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION) E(CUDA_ERROR_UNKNOWN)};
#undef E
    return names;
}

string words_of(string name) {
    for (const char *prefix : {"CUDA_ERROR_", "CUDA_"}) {
        if (name.rfind(prefix, 0) == 0) {
            name = name.substr(strlen(prefix));
            break;
        }
    }
    for (char &c : name) c = c == '_' ? ' ' : char(tolower(c));
    return name;
}

const ErrorName *find_error(CUresult code) {
    for (const ErrorName &e : error_names())
        if (e.code == code) return &e;
    return nullptr;
}

CUresult error_named(const string &name) {
    for (const ErrorName &e : error_names())
        if (name == e.name) return e.code;
    fprintf(stderr, "fakecuda: unknown error '%s' in FAKECUDA_FAIL\n", name.c_str());
    return CUDA_ERROR_UNKNOWN;
}

// Errors after which a real context is of no use any more.
bool is_sticky(CUresult error) {
    static const std::set<CUresult> sticky = {
        CUDA_ERROR_ILLEGAL_ADDRESS,    CUDA_ERROR_LAUNCH_FAILED,        CUDA_ERROR_LAUNCH_TIMEOUT,
        CUDA_ERROR_ASSERT,             CUDA_ERROR_HARDWARE_STACK_ERROR, CUDA_ERROR_ILLEGAL_INSTRUCTION,
        CUDA_ERROR_MISALIGNED_ADDRESS, CUDA_ERROR_INVALID_ADDRESS_SPACE, CUDA_ERROR_INVALID_PC,
        CUDA_ERROR_ECC_UNCORRECTABLE,  CUDA_ERROR_NVLINK_UNCORRECTABLE, CUDA_ERROR_EXTERNAL_DEVICE};
    return sticky.count(error) != 0;
}

void set_error(CUresult error, const string &description) {
    State &s = state();
    if (s.error == CUDA_SUCCESS) {
        s.error = error;
        s.description = description;
        if (s.trace) fprintf(stderr, "fakecuda: error %d: %s\n", int(error), description.c_str());
    }
    s.progress.notify_all();
}

// ------------------------------------------------------------------------------------------------- settings

long setting(const char *name, long otherwise) {
    const char *value = getenv(name);
    return value && *value ? atol(value) : otherwise;
}

// Names with and without a version mean the same function: cuMemAlloc_v2, cuMemcpyAsync_ptsz.
string base_name(string name) {
    for (const char *suffix : {"_ptsz", "_ptds", "_v4", "_v3", "_v2"}) {
        std::size_t n = strlen(suffix);
        if (name.size() > n && name.compare(name.size() - n, n, suffix) == 0) name.resize(name.size() - n);
    }
    return name;
}

Failure parse_failure(const string &text) {
    Failure failure;
    std::istringstream parts(text);
    string nth, error;
    std::getline(parts, failure.name, ':');
    if (std::getline(parts, nth, ':')) {
        failure.nth = atol(nth.c_str());
        failure.is_lasting = !nth.empty() && nth.back() == '+';
    }
    if (std::getline(parts, error, ':')) failure.error = error_named(error);
    failure.name = base_name(failure.name);
    return failure;
}

void plan_failures(const char *plan) {
    state().failures.clear();
    std::istringstream parts(plan ? plan : "");
    for (string part; std::getline(parts, part, ',');)
        if (!part.empty()) state().failures.push_back(parse_failure(part));
}

CUresult planned_failure(const string &name) {
    CUresult result = CUDA_SUCCESS;
    for (Failure &f : state().failures) {
        if (f.name != name) continue;
        ++f.seen;
        if (result == CUDA_SUCCESS && (f.seen == f.nth || (f.is_lasting && f.seen > f.nth))) result = f.error;
    }
    if (is_sticky(result)) set_error(result, "planned failure of " + name);
    return result;
}

shared_ptr<Pool> make_pool(int device) {
    auto pool = std::make_shared<Pool>();
    pool->device = device;
    pool->access[device] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return pool;
}

Device make_device(int ordinal) {
    Device device;
    device.primary = std::make_shared<Context>();
    device.primary->device = ordinal;
    device.default_pool = device.current_pool = make_pool(ordinal);
    device.default_pool->handle = state().pools.add(device.default_pool);
    return device;
}

void read_settings() {
    State &s = state();
    s.capacity = std::size_t(setting("FAKECUDA_MEMORY", 256 << 20));
    s.queue_limit = std::size_t(setting("FAKECUDA_QUEUE", 0));
    s.has_peers = setting("FAKECUDA_PEER", 1) != 0;
    s.lazy_us = int(setting("FAKECUDA_LAZY", 0));
    s.is_shuffled = getenv("FAKECUDA_SEED") && *getenv("FAKECUDA_SEED");
    s.seed = unsigned(setting("FAKECUDA_SEED", 0));
    s.trace = int(setting("FAKECUDA_TRACE", 0));
    plan_failures(getenv("FAKECUDA_FAIL"));
    s.devices.clear();
    for (int i = 0; i < int(setting("FAKECUDA_DEVICES", 2)); ++i) s.devices.push_back(make_device(i));
}

// ------------------------------------------------------------------------------------------------- calls

enum Needs {
    NOTHING,
    INITIALIZED,  // and may be called with no context, or one that failed
    HEALTHY,      // fails once the work has failed
    CONTEXT,      // and there must be a current context
};

shared_ptr<Context> current_context() {
    return current_contexts.empty() ? nullptr : state().contexts.find(current_contexts.back());
}

// Every function begins with one: it holds the lock, is counted, and may be refused.
struct Call {
    Lock lock;
    CUresult refused;
    shared_ptr<Context> context;

    Call(const char *name, Needs needs) : lock(state().mutex) {
        ++state().calls[name];
        if (state().trace > 1) fprintf(stderr, "fakecuda: %s\n", name);
        refused = planned_failure(name);
        if (refused == CUDA_SUCCESS) refused = check(needs);
    }

    // What work that was waited for has done wrong, or nothing.
    CUresult result() const { return state().error; }

  private:
    CUresult check(Needs needs) {
        if (needs == NOTHING) return CUDA_SUCCESS;
        if (is_stream_thread) return CUDA_ERROR_NOT_PERMITTED;  // host functions must not call CUDA
        if (!state().is_initialized) return CUDA_ERROR_NOT_INITIALIZED;
        if (needs == INITIALIZED) return CUDA_SUCCESS;
        context = current_context();
        if (needs == CONTEXT && current_contexts.empty()) return CUDA_ERROR_INVALID_CONTEXT;
        if (needs == CONTEXT && !(context && context->is_alive)) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
        return state().error;
    }
};

#define ENTER(name, needs)    \
    Call call(#name, needs);  \
    if (call.refused != CUDA_SUCCESS) return call.refused

// For calls that are refused, and end captures, where a capture is going on and its mode forbids them.
#define ENTER_UNSAFE(name, needs)                               \
    Call call(#name, needs); /* ENTER would see NAME_v2 there */ \
    if (call.refused != CUDA_SUCCESS) return call.refused;      \
    TRY(refuse_unsafe())

#define REQUIRE(condition, error) \
    if (!(condition)) return error

#define TRY(expression)                                                              \
    if (CUresult tried = (expression); tried != CUDA_SUCCESS) return tried

// ------------------------------------------------------------------------------------------------- captures

CUresult invalidate(const shared_ptr<Capture> &capture, CUresult error, const char *why) {
    capture->is_invalid = true;
    if (state().trace) fprintf(stderr, "fakecuda: a capture is invalid: %s\n", why);
    return error;
}

// As cuThreadExchangeStreamCaptureMode has it: the thread's mode and those of the captures decide.
CUresult refuse_unsafe() {
    if (thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
    CUresult refused = CUDA_SUCCESS;
    for (auto &capture : state().captures) {
        bool is_own = capture->thread == std::this_thread::get_id() && capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED;
        bool is_others = thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL && capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
        if (is_own || is_others) refused = invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "an unsafe call");
    }
    return refused;
}

void add_node(Stream &stream, Work work) {
    auto &nodes = stream.capture->graph->nodes;
    nodes.push_back({std::move(work), stream.tail, ++state().nodes_made});
    stream.tail = {int(nodes.size()) - 1};
}

bool is_device(int ordinal) { return 0 <= ordinal && ordinal < int(state().devices.size()); }

bool can_access(int from, int to) { return from == to || state().has_peers; }

// ------------------------------------------------------------------------------------------------- streams

void delay_a_little(std::mt19937 &random) {
    unsigned dice = random() % 8;
    if (dice < 4) return;
    if (dice < 6) std::this_thread::yield();
    else std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
}

// Says what is wrong with the memory that work is about to use, if anything.
const char *wrong_with(const Ranges &ranges) {
    for (auto &range : ranges) {
        if (!range) return "uses memory that it cannot reach, or that cuMemFreeAsync was called for before";
        if (!range->is_alive) return "runs before its memory is allocated, or after it was freed";
    }
    return nullptr;
}

void run_body(Lock &lock, const Stream &stream, Work &work) {
    string who = string(work.name) + " in stream " + std::to_string(stream.id);
    if (CUresult planned = planned_failure("work"); planned != CUDA_SUCCESS) set_error(planned, "planned failure of " + who);
    if (state().error != CUDA_SUCCESS) return;
    if (work.find_ranges) work.ranges = work.find_ranges();
    if (const char *what = wrong_with(work.ranges)) return set_error(CUDA_ERROR_ILLEGAL_ADDRESS, who + ' ' + what);
    for (auto &range : work.ranges) ++range->users;
    lock.unlock();
    if (work.body) work.body();
    lock.lock();
    for (auto &range : work.ranges) --range->users;
}

void forget_stream(const shared_ptr<Stream> &stream) {
    auto &all = stream->context->streams;
    all.erase(std::remove(all.begin(), all.end(), stream), all.end());
}

// The thread of a stream.
void serve(shared_ptr<Stream> stream) {
    is_stream_thread = true;
    std::mt19937 random(state().seed * 7919u + unsigned(stream->id));
    Lock lock(state().mutex);
    while (true) {
        stream->wake.wait(lock, [&] { return !stream->queue.empty() || stream->is_destroyed; });
        if (stream->queue.empty()) break;
        Work work = std::move(stream->queue.front());
        stream->queue.pop_front();
        if (state().is_shuffled) {
            lock.unlock();
            delay_a_little(random);
            lock.lock();
        }
        run_body(lock, *stream, work);
        if (work.finish) work.finish();
        ++stream->completed;
        state().progress.notify_all();
    }
    forget_stream(stream);
}

void start_thread(const shared_ptr<Stream> &stream) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are for the program's own threads
    std::thread(serve, stream).detach();
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    stream->is_served = true;
}

void wait_until_idle(Lock &lock, const shared_ptr<Stream> &stream) {
    std::uint64_t target = stream->submitted;
    state().progress.wait(lock, [&] { return stream->completed >= target; });
}

void wait_for_all(Lock &lock, std::vector<shared_ptr<Stream>> streams) {  // a copy: the list changes meanwhile
    for (auto &stream : streams) wait_until_idle(lock, stream);
}

void wait_for_context(Lock &lock, const shared_ptr<Context> &context) { wait_for_all(lock, context->streams); }

std::vector<shared_ptr<Stream>> blocking_streams(const shared_ptr<Context> &context) {
    std::vector<shared_ptr<Stream>> found;
    for (auto &stream : context->streams)
        if (stream->is_blocking()) found.push_back(stream);
    return found;
}

// The default stream orders itself after the blocking streams, and they after it: here it simply waits, both times.
void submit(Lock &lock, const shared_ptr<Stream> &stream, Work work) {
    if (stream->capture) return add_node(*stream, std::move(work));
    if (stream->is_legacy) wait_for_all(lock, blocking_streams(stream->context));
    if (stream->is_blocking() && stream->context && stream->context->legacy) wait_until_idle(lock, stream->context->legacy);
    if (!stream->is_served) start_thread(stream);
    auto limit = state().queue_limit;
    if (limit) state().progress.wait(lock, [&] { return stream->submitted - stream->completed < limit; });
    stream->queue.push_back(std::move(work));
    ++stream->submitted;
    stream->wake.notify_one();
}

shared_ptr<Stream> make_stream(const shared_ptr<Context> &context, unsigned flags, int priority) {
    auto stream = std::make_shared<Stream>();
    stream->context = context;
    stream->flags = flags;
    stream->priority = priority;
    stream->id = ++state().streams_made;
    context->streams.push_back(stream);
    return stream;
}

shared_ptr<Stream> legacy_stream(const shared_ptr<Context> &context) {
    if (!context->legacy) {
        context->legacy = make_stream(context, CU_STREAM_DEFAULT, 0);
        context->legacy->is_legacy = true;
        context->legacy->handle = CU_STREAM_LEGACY;
    }
    return context->legacy;
}

shared_ptr<Stream> thread_stream(const shared_ptr<Context> &context) {
    auto &stream = thread_streams[context->handle];
    if (!stream || stream->is_destroyed) {
        stream = make_stream(context, CU_STREAM_DEFAULT, 0);
        stream->handle = CU_STREAM_PER_THREAD;
    }
    return stream;
}

CUresult find_stream(CUstream handle, shared_ptr<Stream> &stream) {
    bool is_default = handle == nullptr || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD;
    if (!is_default) {
        stream = state().streams.find(handle);
        REQUIRE(stream, CUDA_ERROR_INVALID_HANDLE);
        REQUIRE(!stream->capture || !stream->capture->is_invalid, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
        return CUDA_SUCCESS;
    }
    shared_ptr<Context> context = current_context();
    REQUIRE(!current_contexts.empty(), CUDA_ERROR_INVALID_CONTEXT);
    REQUIRE(context && context->is_alive, CUDA_ERROR_CONTEXT_IS_DESTROYED);
    stream = handle == CU_STREAM_PER_THREAD ? thread_stream(context) : legacy_stream(context);
    if (!stream->is_legacy) return CUDA_SUCCESS;
    for (auto &other : context->streams)
        if (other->capture && other->is_blocking())
            return invalidate(other->capture, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "the legacy default stream is used");
    return CUDA_SUCCESS;
}

// For calls that look at the present or wait for it.
CUresult find_present(CUstream handle, shared_ptr<Stream> &stream) {
    TRY(find_stream(handle, stream));
    if (!stream->capture) return CUDA_SUCCESS;
    return invalidate(stream->capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "its stream is looked at");
}

CUresult create_stream(const Call &call, CUstream *handle, unsigned flags, int priority) {
    REQUIRE(handle && !(flags & ~CU_STREAM_NON_BLOCKING), CUDA_ERROR_INVALID_VALUE);
    auto stream = make_stream(call.context, flags, std::max(-5, std::min(0, priority)));
    *handle = stream->handle = state().streams.add(stream);
    return CUDA_SUCCESS;
}

// Work that was submitted is still done; the thread ends after it.
void destroy_stream(const shared_ptr<Stream> &stream) {
    stream->is_destroyed = true;
    state().streams.erase(stream->handle);
    stream->wake.notify_one();
    if (!stream->is_served) forget_stream(stream);
}

// ------------------------------------------------------------------------------------------------- memory

std::size_t whole_pages(std::size_t nbytes) {
    std::size_t page = std::size_t(sysconf(_SC_PAGESIZE));
    return (nbytes + page - 1) / page * page;
}

void *map_memory(std::size_t nbytes) {
    if (nbytes > SIZE_MAX / 2) return nullptr;
    void *p = mmap(nullptr, whole_pages(nbytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? nullptr : p;
}

// What is taken from a device's capacity for an allocation; the hardware, too, rounds up.
std::size_t charge(std::size_t nbytes) { return (nbytes + 511) / 512 * 512; }

shared_ptr<Range> add_range(Range::Kind kind, void *start, std::size_t nbytes, const shared_ptr<Context> &context) {
    auto range = std::make_shared<Range>();
    range->kind = kind;
    range->start = Address(start);
    range->nbytes = nbytes;
    range->context = context;
    range->device = context ? context->device : 0;
    range->id = ++state().ids;
    state().ranges[range->start] = range;
    return range;
}

// The known memory that [first, first + n) touches, or null.
shared_ptr<Range> touched_range(Address first, std::size_t n) {
    auto after = state().ranges.lower_bound(first + std::max<std::size_t>(n, 1));
    if (after == state().ranges.begin()) return nullptr;
    auto range = std::prev(after)->second;
    return range->start + range->nbytes > first ? range : nullptr;
}

shared_ptr<Range> range_at(Address start) {
    auto found = state().ranges.find(start);
    return found == state().ranges.end() ? nullptr : found->second;
}

bool is_quarantined(Address first, std::size_t n) {
    for (auto &range : state().quarantine)
        if (range->start < first + n && first < range->start + whole_pages(range->nbytes)) return true;
    return false;
}

void unmap_oldest() {
    shared_ptr<Range> oldest = state().quarantine.front();
    state().quarantine.pop_front();
    state().quarantined -= whole_pages(oldest->nbytes);
    munmap(reinterpret_cast<void *>(oldest->start), whole_pages(oldest->nbytes));
}

// The pieces of memory, each of one kind and device, that [first, first + n) lies in; none if some of it is nobody's.
Ranges pieces_of(Address first, std::size_t n) {
    auto last = touched_range(first, n);
    if (!last) return {};
    Ranges found = {last};
    while (found.back()->start > first) {
        auto before = touched_range(found.back()->start - 1, 1);
        if (!before || before->kind != Range::MAPPED || last->kind != Range::MAPPED) return {};
        found.push_back(before);
    }
    return last->start + last->nbytes >= first + n ? found : Ranges{};
}

// Ends the life of memory; work that still uses it fails when it comes to it.
void retire(const shared_ptr<Range> &range) {
    if (range->users) set_error(CUDA_ERROR_ILLEGAL_ADDRESS, "memory is freed under the hands of running work");
    range->is_alive = false;
    state().ranges.erase(range->start);
    if (range->kind == Range::REGISTERED) return;
    memset(reinterpret_cast<void *>(range->start), POISON, range->nbytes);
    state().quarantine.push_back(range);
    state().quarantined += whole_pages(range->nbytes);
    while (state().quarantined > QUARANTINE && state().quarantine.size() > 1) unmap_oldest();
}

void trim_pool(Pool &pool, std::size_t keep) {
    std::size_t target = std::max(pool.used, std::min(pool.reserved, keep));
    state().devices[pool.device].used -= pool.reserved - target;
    pool.reserved = target;
}

void trim_pools_of(int device) {
    for (auto &[handle, pool] : state().pools.live)
        if (pool->device == device) trim_pool(*pool, 0);
}

bool take(int device, std::size_t nbytes) {
    Device &d = state().devices[device];
    if (nbytes > state().capacity) return false;
    if (d.used + nbytes > state().capacity) trim_pools_of(device);
    if (d.used + nbytes > state().capacity) return false;
    d.used += nbytes;
    return true;
}

bool take_from_pool(Pool &pool, std::size_t nbytes) {
    if (pool.max_size && pool.used + nbytes > pool.max_size) return false;
    std::size_t cached = pool.reserved - pool.used;
    if (nbytes > cached) {
        // counted as used first, so that a trim on the way does not give the cache away
        pool.used += cached;
        bool is_taken = take(pool.device, nbytes - cached);
        pool.used -= cached;
        if (!is_taken) return false;
        pool.reserved += nbytes - cached;
    }
    pool.used += nbytes;
    pool.used_high = std::max(pool.used_high, pool.used);
    pool.reserved_high = std::max(pool.reserved_high, pool.reserved);
    return true;
}

void give_back(const Range &range) {
    if (range.kind == Range::DEVICE) state().devices[range.device].used -= charge(range.nbytes);
    if (range.kind != Range::POOLED) return;
    range.pool->used -= charge(range.nbytes);
    bool is_destroyed = !state().pools.find(range.pool->handle);
    trim_pool(*range.pool, is_destroyed ? 0 : range.pool->threshold);
}

bool map_nothing(Address start, std::size_t nbytes) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED;
    return mmap(reinterpret_cast<void *>(start), nbytes, PROT_NONE, flags, -1, 0) != MAP_FAILED;
}

// Physical memory lives as long as its handle, and as it is mapped.
void forget_physical(const shared_ptr<Physical> &physical) {
    if (!physical->is_released || physical->mappings || physical->file < 0) return;
    state().devices[physical->device].used -= physical->nbytes;
    close(physical->file);
    physical->file = -1;
}

void unmap(const shared_ptr<Range> &range) {
    if (range->users) set_error(CUDA_ERROR_ILLEGAL_ADDRESS, "memory is unmapped under the hands of running work");
    range->is_alive = false;
    state().ranges.erase(range->start);
    map_nothing(range->start, range->nbytes);
    --range->physical->mappings;
    forget_physical(range->physical);
}

void release(const shared_ptr<Range> &range) {
    if (!range_at(range->start)) return;  // went with its context
    if (range->kind == Range::MAPPED) return unmap(range);
    give_back(*range);
    retire(range);
}

CUresult reserve_addresses(CUdeviceptr *address, std::size_t nbytes, std::size_t alignment) {
    REQUIRE(address && nbytes && nbytes % GRANULARITY == 0 && (alignment & (alignment - 1)) == 0, CUDA_ERROR_INVALID_VALUE);
    std::size_t more = std::max(alignment, GRANULARITY);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *all = mmap(nullptr, nbytes + more, PROT_NONE, flags, -1, 0);
    REQUIRE(all != MAP_FAILED, CUDA_ERROR_OUT_OF_MEMORY);
    Address start = (Address(all) + more - 1) / more * more;
    if (start > Address(all)) munmap(all, start - Address(all));
    std::size_t rest = Address(all) + more - start;
    if (rest) munmap(reinterpret_cast<void *>(start + nbytes), rest);
    state().reservations[start] = nbytes;
    *address = CUdeviceptr(start);
    return CUDA_SUCCESS;
}

CUresult free_addresses(Address start, std::size_t nbytes) {
    auto found = state().reservations.find(start);
    REQUIRE(found != state().reservations.end() && found->second == nbytes, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(!touched_range(start, nbytes), CUDA_ERROR_INVALID_VALUE);
    munmap(reinterpret_cast<void *>(start), nbytes);
    state().reservations.erase(found);
    return CUDA_SUCCESS;
}

CUresult create_physical(CUmemGenericAllocationHandle *handle, std::size_t nbytes, const CUmemAllocationProp *wish) {
    REQUIRE(handle && wish && nbytes && nbytes % GRANULARITY == 0, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(wish->type == CU_MEM_ALLOCATION_TYPE_PINNED, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(wish->location.type == CU_MEM_LOCATION_TYPE_DEVICE, CUDA_ERROR_NOT_SUPPORTED);
    REQUIRE(is_device(wish->location.id), CUDA_ERROR_INVALID_DEVICE);
    REQUIRE(take(wish->location.id, nbytes), CUDA_ERROR_OUT_OF_MEMORY);
    auto physical = std::make_shared<Physical>();
    physical->device = wish->location.id;
    physical->nbytes = nbytes;
    physical->file = memfd_create("fakecuda", MFD_CLOEXEC);
    std::vector<char> poison(GRANULARITY, char(POISON));
    for (std::size_t done = 0; done < nbytes && physical->file >= 0; done += GRANULARITY)
        if (write(physical->file, poison.data(), GRANULARITY) != ssize_t(GRANULARITY)) close(physical->file), physical->file = -1;
    if (physical->file < 0) state().devices[physical->device].used -= nbytes;
    REQUIRE(physical->file >= 0, CUDA_ERROR_OUT_OF_MEMORY);
    *handle = ++state().ids;
    state().physicals[*handle] = physical;
    return CUDA_SUCCESS;
}

CUresult map_physical(Address start, std::size_t nbytes, std::size_t offset, CUmemGenericAllocationHandle handle) {
    auto found = state().physicals.find(handle);
    REQUIRE(found != state().physicals.end(), CUDA_ERROR_INVALID_VALUE);
    auto physical = found->second;
    REQUIRE(!offset && nbytes == physical->nbytes && start % GRANULARITY == 0, CUDA_ERROR_INVALID_VALUE);
    auto after = state().reservations.upper_bound(start);
    REQUIRE(after != state().reservations.begin(), CUDA_ERROR_INVALID_VALUE);
    auto around = std::prev(after);
    REQUIRE(start + nbytes <= around->first + around->second && !touched_range(start, nbytes), CUDA_ERROR_INVALID_VALUE);
    void *at = mmap(reinterpret_cast<void *>(start), nbytes, PROT_NONE, MAP_SHARED | MAP_FIXED, physical->file, 0);
    REQUIRE(at != MAP_FAILED, CUDA_ERROR_MAP_FAILED);
    auto range = add_range(Range::MAPPED, at, nbytes, nullptr);
    range->device = physical->device;
    range->physical = physical;
    ++physical->mappings;
    return CUDA_SUCCESS;
}

// Calls something for each mapping in an area, which has to be made of whole ones.
CUresult for_mappings(Address start, std::size_t nbytes, const std::function<void(const shared_ptr<Range> &)> &action) {
    Ranges pieces = pieces_of(start, nbytes);
    REQUIRE(!pieces.empty() && pieces.back()->start == start, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(pieces.front()->start + pieces.front()->nbytes == start + nbytes, CUDA_ERROR_INVALID_VALUE);
    for (auto &piece : pieces) REQUIRE(piece->kind == Range::MAPPED, CUDA_ERROR_INVALID_VALUE);
    for (auto &piece : pieces) action(piece);
    return CUDA_SUCCESS;
}

CUresult set_access(Address start, std::size_t nbytes, const CUmemAccessDesc *wishes, std::size_t n) {
    REQUIRE(wishes && n, CUDA_ERROR_INVALID_VALUE);
    for (std::size_t i = 0; i < n; ++i) {
        REQUIRE(wishes[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE, CUDA_ERROR_NOT_SUPPORTED);
        REQUIRE(is_device(wishes[i].location.id), CUDA_ERROR_INVALID_DEVICE);
        for (auto &piece : pieces_of(start, nbytes))
            REQUIRE(can_access(wishes[i].location.id, piece->device), CUDA_ERROR_INVALID_DEVICE);
    }
    return for_mappings(start, nbytes, [=](const shared_ptr<Range> &piece) {
        bool is_used = false;
        for (std::size_t i = 0; i < n; ++i) piece->access[wishes[i].location.id] = wishes[i].flags;
        for (auto &[device, flags] : piece->access) is_used |= flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
        mprotect(reinterpret_cast<void *>(piece->start), piece->nbytes, is_used ? PROT_READ | PROT_WRITE : PROT_NONE);
    });
}

CUresult allocate(const Call &call, CUdeviceptr *address, std::size_t nbytes) {
    REQUIRE(address && nbytes, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(take(call.context->device, charge(nbytes)), CUDA_ERROR_OUT_OF_MEMORY);
    void *start = map_memory(nbytes);
    REQUIRE(start, CUDA_ERROR_OUT_OF_MEMORY);
    memset(start, POISON, nbytes);
    add_range(Range::DEVICE, start, nbytes, call.context);
    *address = CUdeviceptr(start);
    return CUDA_SUCCESS;
}

// The address stays the same from launch to launch; the memory is there between the two nodes.
CUresult allocate_in_graph(Stream &stream, CUdeviceptr *address, std::size_t nbytes, const shared_ptr<Pool> &pool) {
    REQUIRE(pool->device >= 0 && nbytes <= state().capacity, CUDA_ERROR_OUT_OF_MEMORY);
    void *start = map_memory(nbytes);
    REQUIRE(start, CUDA_ERROR_OUT_OF_MEMORY);
    auto range = add_range(Range::POOLED, start, nbytes, stream.context);
    range->pool = pool;
    range->device = pool->device;
    range->is_alive = false;
    range->graph = stream.capture->graph.get();
    stream.capture->graph->memory.push_back(range);
    std::weak_ptr<Range> weak = range;  // the graph holds it
    Work work{"allocation node"};
    work.body = [=] { memset(start, POISON, nbytes); };
    work.finish = [=] {
        auto range = weak.lock();
        if (range->is_alive) set_error(CUDA_ERROR_INVALID_VALUE, "a graph was launched again before its memory was freed");
        range->is_alive = true;
    };
    add_node(stream, std::move(work));
    *address = CUdeviceptr(start);
    return CUDA_SUCCESS;
}

CUresult free_in_graph(Stream &stream, const shared_ptr<Range> &range) {
    REQUIRE(range->graph == stream.capture->graph.get(), CUDA_ERROR_INVALID_VALUE);
    std::weak_ptr<Range> weak = range;
    Work work{"free node"};
    work.ranges = {range};
    work.finish = [=] {
        auto range = weak.lock();
        range->is_alive = false;
        memset(reinterpret_cast<void *>(range->start), POISON, range->nbytes);
    };
    add_node(stream, std::move(work));
    range->is_freeing = true;
    return CUDA_SUCCESS;
}

CUresult allocate_async(Call &call, CUdeviceptr *address, std::size_t nbytes, shared_ptr<Pool> pool, CUstream handle) {
    shared_ptr<Stream> stream;
    REQUIRE(address && nbytes, CUDA_ERROR_INVALID_VALUE);
    TRY(find_stream(handle, stream));
    if (!pool) pool = state().devices[stream->context->device].current_pool;
    if (stream->capture) return allocate_in_graph(*stream, address, nbytes, pool);
    REQUIRE(nbytes <= state().capacity && take_from_pool(*pool, charge(nbytes)), CUDA_ERROR_OUT_OF_MEMORY);
    void *start = map_memory(nbytes);
    REQUIRE(start, CUDA_ERROR_OUT_OF_MEMORY);
    auto range = add_range(Range::POOLED, start, nbytes, stream->context);
    range->pool = pool;
    range->device = pool->device;
    range->is_alive = false;
    Work work{"allocation"};
    work.body = [=] { memset(start, POISON, nbytes); };
    work.finish = [=] { range->is_alive = range_at(range->start) == range; };
    submit(call.lock, stream, work);
    *address = CUdeviceptr(start);
    return CUDA_SUCCESS;
}

CUresult free_async(Call &call, CUdeviceptr address, CUstream handle) {
    shared_ptr<Stream> stream;
    TRY(find_stream(handle, stream));
    if (!address) return CUDA_SUCCESS;
    auto range = range_at(address);
    REQUIRE(range && range->kind == Range::POOLED && !range->is_freeing, CUDA_ERROR_INVALID_VALUE);
    if (stream->capture) return free_in_graph(*stream, range);
    REQUIRE(!range->graph, CUDA_ERROR_INVALID_VALUE);
    Work work{"free"};
    work.ranges = {range};
    work.finish = [=] { release(range); };
    submit(call.lock, stream, work);
    range->is_freeing = true;
    return CUDA_SUCCESS;
}

// Memory of a pool is freed without a wait, as the CUDA programming guide says of cudaFree; other memory waits.
CUresult free_now(Call &call, CUdeviceptr address) {
    if (!address) return CUDA_SUCCESS;
    auto range = range_at(address);
    REQUIRE(range && !range->is_host() && !range->is_freeing, CUDA_ERROR_INVALID_VALUE);
    if (range->kind != Range::POOLED) wait_for_context(call.lock, range->context);
    release(range);
    return call.result();
}

CUresult allocate_host(const Call &call, void **address, std::size_t nbytes, unsigned flags) {
    REQUIRE(address && nbytes, CUDA_ERROR_INVALID_VALUE);
    void *start = map_memory(nbytes);
    REQUIRE(start, CUDA_ERROR_OUT_OF_MEMORY);
    add_range(Range::PINNED, start, nbytes, call.context)->flags = flags;
    *address = start;
    return CUDA_SUCCESS;
}

// Managed memory is everybody's; it has no capacity of its own, since real CUDA moves it away when it needs room.
CUresult allocate_managed(const Call &call, CUdeviceptr *address, std::size_t nbytes, unsigned flags) {
    REQUIRE(address && nbytes, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(flags == CU_MEM_ATTACH_GLOBAL || flags == CU_MEM_ATTACH_HOST, CUDA_ERROR_INVALID_VALUE);
    void *start = map_memory(nbytes);
    REQUIRE(start, CUDA_ERROR_OUT_OF_MEMORY);
    memset(start, POISON, nbytes);
    add_range(Range::MANAGED, start, nbytes, call.context);
    *address = CUdeviceptr(start);
    return CUDA_SUCCESS;
}

bool is_mapped(void *start, std::size_t nbytes) {
    Address page = Address(sysconf(_SC_PAGESIZE));
    Address first = Address(start) / page * page;
    std::vector<unsigned char> resident((Address(start) + nbytes - first + page - 1) / page);
    return mincore(reinterpret_cast<void *>(first), Address(start) + nbytes - first, resident.data()) == 0;
}

CUresult register_host(Call &call, void *start, std::size_t nbytes, unsigned flags) {
    REQUIRE(start && nbytes && !(flags & ~0xfu), CUDA_ERROR_INVALID_VALUE);
    REQUIRE(is_mapped(start, nbytes), CUDA_ERROR_INVALID_VALUE);
    wait_for_context(call.lock, call.context);
    if (call.result() != CUDA_SUCCESS) return call.result();
    REQUIRE(!touched_range(Address(start), nbytes), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    add_range(Range::REGISTERED, start, nbytes, call.context)->flags = flags;
    return CUDA_SUCCESS;
}

CUresult unregister_host(Call &call, void *start) {
    wait_for_context(call.lock, call.context);
    if (call.result() != CUDA_SUCCESS) return call.result();
    auto range = range_at(Address(start));
    REQUIRE(range && range->kind == Range::REGISTERED, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
    retire(range);
    return CUDA_SUCCESS;
}

// ------------------------------------------------------------------------------------------------- copies

struct Extent {
    std::size_t width, rows, slices;

    bool is_empty() const { return !width || !rows || !slices; }
    std::size_t nbytes() const { return width * rows * slices; }
};

// One end of a copy: a box within pitched memory.
struct Box {
    Address start;
    std::size_t pitch, height;  // bytes per row, rows per slice
    std::size_t x, y, z;
    CUmemorytype type;

    Address row(std::size_t y_of, std::size_t z_of) const { return start + ((z + z_of) * height + y + y_of) * pitch + x; }
    Address first() const { return row(0, 0); }
    std::size_t span(const Extent &e) const { return row(e.rows - 1, e.slices - 1) + e.width - first(); }

    bool has_room_for(const Extent &e) const {
        if (pitch > MAX_PITCH && (e.rows > 1 || e.slices > 1)) return false;
        if ((e.rows > 1 || e.slices > 1 || y || z) && pitch < x + e.width) return false;
        if ((e.slices > 1 || z) && height < y + e.rows) return false;
        return first() + span(e) >= first();
    }
};

Box line(Address start, CUmemorytype type) { return {start, 0, 0, 0, 0, 0, type}; }

// Finds the memory that one end of a copy lies in; null for pageable memory of the host.
CUresult locate(const Box &box, const Extent &extent, shared_ptr<Range> &range) {
    REQUIRE(box.type != CU_MEMORYTYPE_ARRAY, CUDA_ERROR_NOT_SUPPORTED);
    REQUIRE(box.start && box.has_room_for(extent), CUDA_ERROR_INVALID_VALUE);
    range = touched_range(box.first(), box.span(extent));
    if (!range) {
        REQUIRE(box.type != CU_MEMORYTYPE_DEVICE, CUDA_ERROR_INVALID_VALUE);
        REQUIRE(!is_quarantined(box.first(), box.span(extent)), CUDA_ERROR_INVALID_VALUE);
        return CUDA_SUCCESS;
    }
    REQUIRE(!pieces_of(box.first(), box.span(extent)).empty(), CUDA_ERROR_INVALID_VALUE);
    REQUIRE(box.type != CU_MEMORYTYPE_HOST || range->is_host(), CUDA_ERROR_INVALID_VALUE);
    return CUDA_SUCCESS;
}

void copy_rows(const Box &to, const Box &from, const Extent &extent) {
    for (std::size_t z = 0; z < extent.slices; ++z)
        for (std::size_t y = 0; y < extent.rows; ++y)
            memmove(reinterpret_cast<void *>(to.row(y, z)), reinterpret_cast<void *>(from.row(y, z)), extent.width);
}

struct Snapshot {
    std::vector<char> bytes;
    Box box;
};

shared_ptr<Snapshot> snapshot(const Box &from, const Extent &extent) {
    auto taken = std::make_shared<Snapshot>();
    taken->bytes.resize(extent.nbytes());
    taken->box = {Address(taken->bytes.data()), extent.width, extent.rows, 0, 0, 0, CU_MEMORYTYPE_HOST};
    copy_rows(taken->box, from, extent);
    return taken;
}

// A range as work uses it. After cuMemFreeAsync was called any use is an error, though the free may come later.
shared_ptr<Range> usable(const shared_ptr<Range> &range) { return range->is_freeing ? nullptr : range; }

bool has_access(int device, const Range &range) {
    auto found = range.access.find(device);
    return range.kind != Range::MAPPED || (found != range.access.end() && found->second == CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

// Adds what a box lies in to what work on a device uses; null for what that device has no access to.
void add_usable(Ranges &ranges, const Box &box, const Extent &extent, int device) {
    for (auto &piece : pieces_of(box.first(), box.span(extent)))
        ranges.push_back(has_access(device, *piece) ? usable(piece) : nullptr);
}

// A copy as work of a device, with the ranges of its memory, which are null where that is pageable.
CUresult copy_work(const Box &to, const Box &from, const Extent &extent, int device, bool is_captured, Work &work,
                   shared_ptr<Range> &to_range, shared_ptr<Range> &from_range) {
    TRY(locate(to, extent, to_range));
    TRY(locate(from, extent, from_range));
    work = {"copy"};
    if (extent.rows == 1 && extent.slices == 1)
        work.line = std::make_shared<Line>(Line{to.row(0, 0), from.row(0, 0), to.type, from.type, extent.width});
    if (to_range) add_usable(work.ranges, to, extent, device);
    if (from_range) add_usable(work.ranges, from, extent, device);
    if (to_range && !from_range && !is_captured) {  // pageable memory may change as soon as this returns
        auto taken = snapshot(from, extent);
        work.body = [=] { copy_rows(to, taken->box, extent); };
    } else {
        auto delay = std::chrono::microseconds(to_range ? 0 : state().lazy_us);
        work.body = [=] {
            std::this_thread::sleep_for(delay);
            copy_rows(to, from, extent);
        };
        if (to_range && !from_range)  // in a graph it is read when that is launched
            work.at_launch = [=] {
                auto taken = snapshot(from, extent);
                return std::function<void()>([=] { copy_rows(to, taken->box, extent); });
            };
    }
    return CUDA_SUCCESS;
}

CUresult copy(Call &call, const Box &to, const Box &from, const Extent &extent, CUstream handle, bool is_waited_for = false) {
    shared_ptr<Stream> stream;
    shared_ptr<Range> to_range, from_range;
    Work work;
    TRY(find_stream(handle, stream));
    if (extent.is_empty()) return CUDA_SUCCESS;
    TRY(copy_work(to, from, extent, stream->context->device, stream->capture != nullptr, work, to_range, from_range));
    submit(call.lock, stream, std::move(work));
    if (stream->capture) return CUDA_SUCCESS;
    if ((!to_range && !state().lazy_us) || is_waited_for) {  // pageable memory must be written when this returns
        wait_until_idle(call.lock, stream);
        return call.result();
    }
    return CUDA_SUCCESS;
}

CUresult copy_line(Call &call, Address to, CUmemorytype to_type, Address from, CUmemorytype from_type, std::size_t n,
                   CUstream stream, bool is_waited_for = false) {
    return copy(call, line(to, to_type), line(from, from_type), {n, 1, 1}, stream, is_waited_for);
}

Address address_of(CUmemorytype type, const void *host, CUdeviceptr device) {
    return type == CU_MEMORYTYPE_HOST ? Address(host) : Address(device);  // UNIFIED is in the device's field
}

CUresult copy_2d(Call &call, const CUDA_MEMCPY2D *c, CUstream stream) {
    REQUIRE(c, CUDA_ERROR_INVALID_VALUE);
    Extent extent{c->WidthInBytes, c->Height, 1};
    Box from{address_of(c->srcMemoryType, c->srcHost, c->srcDevice), c->srcPitch, 0, c->srcXInBytes, c->srcY, 0, c->srcMemoryType};
    Box to{address_of(c->dstMemoryType, c->dstHost, c->dstDevice), c->dstPitch, 0, c->dstXInBytes, c->dstY, 0, c->dstMemoryType};
    return copy(call, to, from, extent, stream);
}

// For CUDA_MEMCPY3D and CUDA_MEMCPY3D_PEER, whose fields have the same names.
template <class Parameters>
CUresult copy_3d(Call &call, const Parameters *c, CUstream stream) {
    REQUIRE(c && !c->srcLOD && !c->dstLOD, CUDA_ERROR_INVALID_VALUE);
    Extent extent{c->WidthInBytes, c->Height, c->Depth};
    Box from{address_of(c->srcMemoryType, c->srcHost, c->srcDevice), c->srcPitch, c->srcHeight,
             c->srcXInBytes, c->srcY, c->srcZ, c->srcMemoryType};
    Box to{address_of(c->dstMemoryType, c->dstHost, c->dstDevice), c->dstPitch, c->dstHeight,
           c->dstXInBytes, c->dstY, c->dstZ, c->dstMemoryType};
    return copy(call, to, from, extent, stream);
}

bool is_context(CUcontext handle) {
    auto context = state().contexts.find(handle);
    return context && context->is_alive;
}

CUresult copy_peer(Call &call, CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, std::size_t n,
                   CUstream stream) {
    REQUIRE(is_context(to_context) && is_context(from_context), CUDA_ERROR_INVALID_CONTEXT);
    return copy_line(call, to, CU_MEMORYTYPE_DEVICE, from, CU_MEMORYTYPE_DEVICE, n, stream);
}

CUresult copy_3d_peer(Call &call, const CUDA_MEMCPY3D_PEER *c, CUstream stream) {
    REQUIRE(c, CUDA_ERROR_INVALID_VALUE);
    bool is_to_ok = c->dstMemoryType != CU_MEMORYTYPE_DEVICE || is_context(c->dstContext);
    bool is_from_ok = c->srcMemoryType != CU_MEMORYTYPE_DEVICE || is_context(c->srcContext);
    REQUIRE(is_to_ok && is_from_ok, CUDA_ERROR_INVALID_CONTEXT);
    return copy_3d(call, c, stream);
}

template <class T>
void fill_rows(const Box &box, const Extent &extent, T value) {
    for (std::size_t y = 0; y < extent.rows; ++y) {
        T *row = reinterpret_cast<T *>(box.row(y, 0));
        std::fill(row, row + extent.width / sizeof(T), value);
    }
}

template <class T>
CUresult fill_work(CUdeviceptr address, std::size_t pitch, T value, std::size_t width, std::size_t rows, int device, Work &work) {
    shared_ptr<Range> range;
    Box box{Address(address), pitch, 0, 0, 0, 0, CU_MEMORYTYPE_DEVICE};
    Extent extent{width * sizeof(T), rows, 1};
    REQUIRE(width <= SIZE_MAX / sizeof(T) && address % sizeof(T) == 0, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(rows == 1 || pitch % sizeof(T) == 0, CUDA_ERROR_INVALID_VALUE);
    TRY(locate(box, extent, range));
    work = {"fill"};
    work.area = std::make_shared<CUDA_MEMSET_NODE_PARAMS>(
        CUDA_MEMSET_NODE_PARAMS{address, pitch, static_cast<unsigned>(value), sizeof(T), width, rows});
    add_usable(work.ranges, box, extent, device);
    work.body = [=] { fill_rows(box, extent, value); };
    return CUDA_SUCCESS;
}

CUresult fill_work(const CUDA_MEMSET_NODE_PARAMS &p, int device, Work &work) {
    switch (p.elementSize) {
        case 1: return fill_work<unsigned char>(p.dst, p.pitch, p.value, p.width, p.height, device, work);
        case 2: return fill_work<unsigned short>(p.dst, p.pitch, p.value, p.width, p.height, device, work);
        case 4: return fill_work<unsigned>(p.dst, p.pitch, p.value, p.width, p.height, device, work);
        default: return CUDA_ERROR_INVALID_VALUE;
    }
}

template <class T>
CUresult fill(Call &call, CUdeviceptr address, std::size_t pitch, T value, std::size_t width, std::size_t rows, CUstream handle) {
    shared_ptr<Stream> stream;
    Work work;
    TRY(find_stream(handle, stream));
    if (!width || !rows) return CUDA_SUCCESS;
    TRY(fill_work(address, pitch, value, width, rows, stream->context->device, work));
    submit(call.lock, stream, std::move(work));
    return CUDA_SUCCESS;
}

// ------------------------------------------------------------------------------------------------- events

CUresult find_event(CUevent handle, shared_ptr<Event> &event) {
    event = state().events.find(handle);
    return event ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

// For calls that look at an event or wait for it.
CUresult find_present(CUevent handle, shared_ptr<Event> &event) {
    TRY(find_event(handle, event));
    if (!event->capture) return CUDA_SUCCESS;
    return invalidate(event->capture, CUDA_ERROR_CAPTURED_EVENT, "an event of it is looked at");
}

CUresult record(Call &call, CUevent event_handle, CUstream stream_handle) {
    shared_ptr<Event> event;
    shared_ptr<Stream> stream;
    TRY(find_event(event_handle, event));
    TRY(find_stream(stream_handle, stream));
    REQUIRE(event->context == stream->context, CUDA_ERROR_INVALID_HANDLE);
    event->capture = stream->capture;
    event->after = stream->tail;
    if (stream->capture) return CUDA_SUCCESS;
    auto mark = event->last = std::make_shared<Mark>();
    Work work{"event record"};
    work.finish = [=] {
        mark->is_reached = true;
        mark->time = Clock::now();
    };
    submit(call.lock, stream, std::move(work));
    return CUDA_SUCCESS;
}

bool is_complete(const Event &event) { return !event.last || event.last->is_reached; }

void wait_for_mark(const shared_ptr<Mark> &mark) {
    Lock lock(state().mutex);
    state().progress.wait(lock, [&] { return mark->is_reached; });
}

// A wait for a captured event makes the stream part of the capture.
CUresult join_capture(Stream &stream, const Event &event) {
    auto &capture = event.capture;
    REQUIRE(!capture->is_over, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
    REQUIRE(!capture->is_invalid, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    REQUIRE(!stream.is_legacy, CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    if (stream.capture && stream.capture != capture)
        return invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_MERGE, "two captures meet");
    stream.capture = capture;
    stream.tail.insert(event.after.begin(), event.after.end());
    return CUDA_SUCCESS;
}

CUresult wait_for_event(Call &call, CUstream stream_handle, CUevent event_handle) {
    shared_ptr<Event> event;
    shared_ptr<Stream> stream;
    TRY(find_event(event_handle, event));
    TRY(find_stream(stream_handle, stream));
    if (event->capture) return join_capture(*stream, *event);
    auto mark = event->last;  // a later record does not change what this waits for
    if (!mark) return CUDA_SUCCESS;
    if (stream->capture) return invalidate(stream->capture, CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "it waits for work outside");
    Work work{"wait for an event"};
    work.body = [=] { wait_for_mark(mark); };
    submit(call.lock, stream, std::move(work));
    return CUDA_SUCCESS;
}

// ------------------------------------------------------------------------------------------------- graphs

Graph::~Graph() {
    for (auto &range : memory) {
        range->users = 0;  // whoever works on it holds the graph
        retire(range);
    }
    for (auto condition : conditions) state().conditions.erase(condition);
    if (!origin)
        for (auto &node : nodes)
            if (node.inner && node.inner->handle) state().graphs.erase(node.inner->handle);
}

shared_ptr<Graph> copy_of(const shared_ptr<Graph> &graph) {
    auto copy = std::make_shared<Graph>();
    copy->nodes = graph->nodes;
    copy->origin = graph->origin ? graph->origin : graph;
    for (auto &node : copy->nodes)
        if (node.inner) node.inner = copy_of(node.inner);
    return copy;
}

// What copies of a graph that is launched read of pageable memory, they read now.
void read_pageable(Graph &graph) {
    for (auto &node : graph.nodes) {
        if (node.work.at_launch) node.work.body = node.work.at_launch();
        if (node.inner) read_pageable(*node.inner);
    }
}

// Whether graphs have the same nodes and edges, but for what the nodes work on.
bool is_like(const Graph &one, const Graph &other) {
    if (one.nodes.size() != other.nodes.size()) return false;
    for (std::size_t i = 0; i < one.nodes.size(); ++i) {
        const Node &a = one.nodes[i], &b = other.nodes[i];
        if (string(a.work.name) != b.work.name || a.after != b.after || !a.condition != !b.condition) return false;
        if (!a.inner != !b.inner || a.is_loop != b.is_loop || (a.inner && !is_like(*a.inner, *b.inner))) return false;
    }
    return true;
}

// The nodes of an executable keep their handles: they are those of the graph that it was instantiated from.
void become(Graph &exec, const Graph &graph) {
    for (std::size_t i = 0; i < exec.nodes.size(); ++i) {
        exec.nodes[i].work = graph.nodes[i].work;
        exec.nodes[i].condition = graph.nodes[i].condition;
        if (exec.nodes[i].inner) become(*exec.nodes[i].inner, *graph.nodes[i].inner);
    }
}

Node *find_node(Graph &graph, CUgraphNode handle) {
    for (auto &node : graph.nodes)
        if (node.handle() == handle) return &node;
    return nullptr;
}

// A node of any graph that is alive.
Node *find_node_anywhere(CUgraphNode handle, Graph **of = nullptr) {
    for (auto &[known, graph] : state().graphs.live)
        if (Node *node = find_node(*graph, handle)) {
            if (of) *of = graph.get();
            return node;
        }
    return nullptr;
}

bool has_conditions(const Graph &graph) {
    return std::any_of(graph.nodes.begin(), graph.nodes.end(),
                       [](const Node &node) { return node.condition || (node.inner && has_conditions(*node.inner)); });
}

// Whether all of a graph may be done by a device that decides about it.
bool suits_condition(const Graph &graph) {
    static const std::set<string> refused = {"host function", "alloc", "free"};
    return std::all_of(graph.nodes.begin(), graph.nodes.end(), [](const Node &node) {
        return node.inner ? suits_condition(*node.inner) : !refused.count(node.work.name);
    });
}

// Whether what a device decides about is done one after the other; else a GPU may stop for good (nested_nodes.cu).
bool orders_conditions(const Graph &graph) {
    std::vector<std::set<int>> before(graph.nodes.size());  // the conditions that come before a node
    std::set<int> all;
    for (int i = 0; i < int(graph.nodes.size()); ++i) {
        auto &node = graph.nodes[i];
        for (int k : node.after) {
            before[i].insert(before[k].begin(), before[k].end());
            if (graph.nodes[k].condition) before[i].insert(k);
        }
        if (!node.condition) continue;
        if (before[i] != all || !orders_conditions(*node.inner)) return false;
        all.insert(i);
    }
    return true;
}

void end_capture(const shared_ptr<Capture> &capture) {
    auto &all = state().captures;
    all.erase(std::remove(all.begin(), all.end(), capture), all.end());
    capture->is_over = true;
    for (auto &[handle, context] : state().contexts.live)
        for (auto &stream : context->streams) {
            if (stream->capture != capture) continue;
            stream->capture = nullptr;
            stream->tail.clear();
        }
}

// Captures into a graph that is there.
CUresult begin_capture(const shared_ptr<Stream> &stream, CUstreamCaptureMode mode, const shared_ptr<Graph> &graph) {
    REQUIRE(!stream->is_legacy, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    REQUIRE(!stream->capture, CUDA_ERROR_ILLEGAL_STATE);
    auto capture = std::make_shared<Capture>();
    capture->origin = stream->handle;
    capture->mode = mode;
    capture->thread = std::this_thread::get_id();
    capture->id = ++state().ids;
    capture->graph = graph;
    capture->is_into = true;
    state().captures.push_back(capture);
    stream->capture = capture;
    stream->tail.clear();
    return CUDA_SUCCESS;
}

// Whether all that was captured comes before what `stream` would be given next.
bool has_joined(const Capture &capture, const Stream &stream) {
    std::set<int> reached = stream.tail;
    for (int i = int(capture.graph->nodes.size()) - 1; i >= 0; --i) {
        if (!reached.count(i)) return false;
        auto &after = capture.graph->nodes[i].after;
        reached.insert(after.begin(), after.end());
    }
    return true;
}

// The nodes in an order that their edges allow.
std::vector<int> order_of(const Graph &graph, std::mt19937 &random) {
    std::vector<int> order, ready;
    std::vector<std::size_t> left;
    for (int i = 0; i < int(graph.nodes.size()); ++i) {
        left.push_back(graph.nodes[i].after.size());
        if (!left[i]) ready.push_back(i);
    }
    while (!ready.empty()) {
        std::size_t k = state().is_shuffled ? random() % ready.size() : 0;
        int next = ready[k];
        ready.erase(ready.begin() + long(k));
        order.push_back(next);
        for (int i = next + 1; i < int(graph.nodes.size()); ++i)
            if (graph.nodes[i].after.count(next) && !--left[i]) ready.push_back(i);
    }
    return order;
}

bool holds(CUgraphConditionalHandle handle) {
    Lock lock(state().mutex);
    return state().error == CUDA_SUCCESS && state().conditions[handle].value;
}

void run_node(const Stream &stream, const Node &node, std::mt19937 &random);

// All of a graph, by the thread of a stream.
void run_graph(const Stream &stream, const Graph &graph, std::mt19937 &random) {
    for (int i : order_of(graph, random)) run_node(stream, graph.nodes[i], random);
}

void run_node(const Stream &stream, const Node &node, std::mt19937 &random) {
    if (node.condition) {
        while (holds(node.condition)) {
            run_graph(stream, *node.inner, random);
            if (!node.is_loop) break;
        }
    } else if (node.inner) {
        run_graph(stream, *node.inner, random);
    } else {
        Lock lock(state().mutex);
        Work work = node.work;
        run_body(lock, stream, work);
    }
}

void submit_graph(Lock &lock, const shared_ptr<Stream> &stream, const shared_ptr<Graph> &graph, std::mt19937 &random) {
    for (int i : order_of(*graph, random)) {
        const Node &node = graph->nodes[i];
        if (node.inner && !node.condition) {
            submit_graph(lock, stream, node.inner, random);
            continue;
        }
        Work work = node.work;
        if (node.condition)
            work.body = [=, seed = unsigned(random())] {
                std::mt19937 inside(seed);
                run_node(*stream, graph->nodes[i], inside);
            };
        work.finish = [finish = work.finish, graph] {
            if (finish) finish();
        };
        submit(lock, stream, std::move(work));
    }
}

std::vector<CUgraphConditionalHandle> conditions_of(const Graph &graph) {
    std::vector<CUgraphConditionalHandle> found;
    for (auto &node : graph.nodes) {
        if (node.condition) found.push_back(node.condition);
        if (!node.inner) continue;
        auto more = conditions_of(*node.inner);
        found.insert(found.end(), more.begin(), more.end());
    }
    return found;
}

CUresult find_nodes(const Graph &graph, const CUgraphNode *handles, std::size_t count, std::set<int> &found) {
    for (std::size_t k = 0; k < count; ++k) {
        int i = 0;
        while (i < int(graph.nodes.size()) && graph.nodes[i].handle() != handles[k]) ++i;
        REQUIRE(i < int(graph.nodes.size()), CUDA_ERROR_INVALID_VALUE);
        found.insert(i);
    }
    return CUDA_SUCCESS;
}

// ------------------------------------------------------------------------------------------------- values

template <class T>
bool is_satisfied(T seen, T value, unsigned flags) {
    using Signed = std::make_signed_t<T>;
    switch (flags & 3u) {
        case CU_STREAM_WAIT_VALUE_GEQ: return Signed(seen - value) >= 0;
        case CU_STREAM_WAIT_VALUE_EQ: return seen == value;
        case CU_STREAM_WAIT_VALUE_AND: return (seen & value) != 0;
        default: return T(~(seen | value)) != 0;
    }
}

bool has_failed() {
    Lock lock(state().mutex);
    return state().error != CUDA_SUCCESS;
}

template <class T>
void poll_value(const T *address, T value, unsigned flags) {
    while (!is_satisfied(__atomic_load_n(address, __ATOMIC_ACQUIRE), value, flags) && !has_failed())
        std::this_thread::sleep_for(std::chrono::microseconds(20));
}

template <class T>
CUresult on_value(Call &call, CUstream handle, CUdeviceptr address, std::function<void(T *)> action) {
    shared_ptr<Stream> stream;
    TRY(find_stream(handle, stream));
    auto range = touched_range(address, sizeof(T));
    REQUIRE(range && range->covers(address, sizeof(T)) && address % sizeof(T) == 0, CUDA_ERROR_INVALID_VALUE);
    Work work{"operation on a value"};
    work.ranges = {usable(range)};
    work.body = [=] { action(reinterpret_cast<T *>(address)); };
    submit(call.lock, stream, std::move(work));
    return CUDA_SUCCESS;
}

// ------------------------------------------------------------------------------------------------- kernels

std::size_t Function::offset(std::size_t i) const {
    std::size_t at = 0;
    for (std::size_t k = 0; k <= i; ++k) {
        std::size_t alignment = std::min<std::size_t>(size(k), 8);
        at = (at + alignment - 1) / alignment * alignment;
        if (k < i) at += size(k);
    }
    return at;
}

void add_one(void **parameters, const unsigned *) {
    double *values = *static_cast<double **>(parameters[0]);
    std::uint64_t n = *static_cast<std::uint64_t *>(parameters[1]);
    for (std::uint64_t i = 0; i < n; ++i) values[i] += 1.0;
}

// y += a * x
void axpy(void **parameters, const unsigned *) {
    double a = *static_cast<double *>(parameters[0]);
    const double *x = *static_cast<double **>(parameters[1]);
    double *y = *static_cast<double **>(parameters[2]);
    std::uint64_t n = *static_cast<std::uint64_t *>(parameters[3]);
    for (std::uint64_t i = 0; i < n; ++i) y[i] += a * x[i];
}

// What stf brings: sets a condition by a flag of one byte, as long as a counter is below a limit.
void stf_decide(void **parameters, const unsigned *) {
    auto handle = *static_cast<CUgraphConditionalHandle *>(parameters[0]);
    auto *flag = *static_cast<unsigned char **>(parameters[1]);
    auto *count = *static_cast<std::uint64_t **>(parameters[2]);
    std::uint64_t limit = *static_cast<std::uint64_t *>(parameters[3]);
    bool wanted = *static_cast<std::uint64_t *>(parameters[4]) != 0;
    bool goes_on = !flag || (*flag != 0) == wanted;
    if (count) *count += goes_on = goes_on && *count < limit;
    Lock lock(state().mutex);
    state().conditions[handle].value = goes_on;
}

// What stf brings: a program of scalars. Its one parameter is a structure, which lies as so many numbers do.
namespace scalars {
#include "../../src/stf/kernels/scalars.cu"
}

void stf_compute(void **parameters, const unsigned *) {
    scalars::Program program;
    auto *words = reinterpret_cast<scalars::Word *>(&program);
    for (std::size_t i = 0; i < sizeof program / sizeof *words; ++i) words[i] = *static_cast<scalars::Word *>(parameters[i]);
    scalars::run(program);
}

std::map<string, Function> &known_kernels() {
    static auto &known = *new std::map<string, Function>{
        {"noop", {"noop", "", nullptr, 0, false}},
        {"trap", {"trap", "", nullptr, 0, true}},
        {"add_one", {"add_one", "pq", add_one, 8, false}},
        {"axpy", {"axpy", "dppq", axpy, 8, false}},
        {"stf_decide", {"stf_decide", "qqqqq", stf_decide, 0, false}},
        {"stf_compute", {"stf_compute", string(STF_ARRAYS, 'o') + string(STF_WORDS, 'q'), stf_compute, 0, false}},
    };
    return known;
}

using Arguments = std::vector<std::array<std::uint64_t, 9>>;

// Parameters as the caller has them in one buffer (CU_LAUNCH_PARAM_BUFFER_POINTER).
const char *packed_buffer(void **extra) {
    for (int i = 0; extra && extra[i] != CU_LAUNCH_PARAM_END; i += 2)
        if (extra[i] == CU_LAUNCH_PARAM_BUFFER_POINTER) return static_cast<const char *>(extra[i + 1]);
    return nullptr;
}

CUresult gather(const Function &function, void **parameters, void **extra, Arguments &arguments) {
    std::size_t n = function.signature.size();
    const char *packed = packed_buffer(extra);
    REQUIRE(!n || parameters || packed, CUDA_ERROR_INVALID_VALUE);
    arguments.assign(n, {});
    for (std::size_t i = 0; i < n; ++i)
        memcpy(arguments[i].data(), packed ? packed + function.offset(i) : parameters[i], function.size(i));
    return CUDA_SUCCESS;
}

bool may_use(int device, const Range &range) {
    if (range.kind == Range::MAPPED) return has_access(device, range);
    if (range.is_host() || range.kind == Range::MANAGED || range.device == device) return true;
    if (range.pool) return range.pool->access.count(device) && range.pool->access[device] != CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return state().devices[device].primary->peers.count(range.device) != 0;
}

// The memory that the pointers among the arguments lead to, with null for what a device could not reach.
// 'o' is a pointer that may be null.
bool is_pointer(const Function &function, const Arguments &arguments, std::size_t i) {
    return function.signature[i] == 'p' || function.is_slice(i) || (function.signature[i] == 'o' && arguments[i][0]);
}

Ranges reached(const Function &function, const Arguments &arguments, int device) {
    Ranges found;
    std::size_t n = function.itemsize ? function.itemsize * arguments.back()[0] : 1;
    for (std::size_t i = 0; n && i < arguments.size(); ++i) {
        if (!is_pointer(function, arguments, i)) continue;
        Ranges pieces = pieces_of(arguments[i][0], n);
        for (auto &piece : pieces) found.push_back(may_use(device, *piece) ? piece : nullptr);
        if (pieces.empty()) found.push_back(nullptr);
    }
    return found;
}

bool reaches_freed(const Function &function, const Arguments &arguments) {
    for (std::size_t i = 0; i < arguments.size(); ++i) {
        auto range = is_pointer(function, arguments, i) ? touched_range(arguments[i][0], 1) : nullptr;
        if (range && range->is_freeing) return true;
    }
    return false;
}

void run_kernel(const Function &function, Arguments arguments, const std::vector<unsigned> &dimensions) {
    if (function.is_trap) {
        Lock lock(state().mutex);
        return set_error(CUDA_ERROR_LAUNCH_FAILED, "the kernel 'trap'");
    }
    std::vector<void *> parameters;
    for (auto &argument : arguments) parameters.push_back(argument.data());
    if (function.code) function.code(parameters.data(), dimensions.data());
}

CUresult check_dimensions(const std::vector<unsigned> &d) {
    for (unsigned extent : d) REQUIRE(extent, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(std::uint64_t(d[3]) * d[4] * d[5] <= MAX_THREADS_PER_BLOCK, CUDA_ERROR_INVALID_VALUE);
    return CUDA_SUCCESS;
}

CUresult kernel_work(CUfunction handle, const shared_ptr<Context> &context, const std::vector<unsigned> &dimensions,
                     void **parameters, void **extra, Work &work) {
    Arguments arguments;
    auto function = state().functions.find(handle);
    REQUIRE(function, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE(!function->context || function->context == context, CUDA_ERROR_INVALID_HANDLE);
    TRY(check_dimensions(dimensions));
    TRY(gather(*function, parameters, extra, arguments));
    int device = context->device;
    bool is_late = reaches_freed(*function, arguments);
    work = {"kernel"};
    work.find_ranges = [=] { return is_late ? Ranges{nullptr} : reached(*function, arguments, device); };
    work.body = [=] { run_kernel(*function, arguments, dimensions); };
    auto kernel = std::make_shared<KernelLaunch>();
    auto &launch = kernel->launch;
    launch.func = handle;
    unsigned *sizes[] = {&launch.gridDimX, &launch.gridDimY, &launch.gridDimZ, &launch.blockDimX, &launch.blockDimY, &launch.blockDimZ};
    for (std::size_t i = 0; i < dimensions.size() && i < 6; ++i) *sizes[i] = dimensions[i];
    kernel->arguments = arguments;
    for (auto &argument : kernel->arguments) kernel->addresses.push_back(argument.data());
    launch.kernelParams = kernel->addresses.data();
    work.kernel = kernel;
    return CUDA_SUCCESS;
}

CUresult launch(Call &call, CUfunction handle, std::vector<unsigned> dimensions, CUstream stream_handle, void **parameters, void **extra) {
    shared_ptr<Stream> stream;
    Work work;
    REQUIRE(state().functions.find(handle), CUDA_ERROR_INVALID_HANDLE);
    TRY(find_stream(stream_handle, stream));
    REQUIRE(stream->context == call.context, CUDA_ERROR_INVALID_HANDLE);
    TRY(kernel_work(handle, call.context, dimensions, parameters, extra, work));
    submit(call.lock, stream, std::move(work));
    return CUDA_SUCCESS;
}

CUresult load_module(Call &call, CUmodule *handle, const void *image) {
    REQUIRE(handle && image, CUDA_ERROR_INVALID_VALUE);
    wait_for_context(call.lock, call.context);
    if (call.result() != CUDA_SUCCESS) return call.result();
    auto module = std::make_shared<Module>();
    module->context = call.context;
    *handle = state().modules.add(module);
    return CUDA_SUCCESS;
}

// One handle per name, as a module gives the same function each time, and a library the same kernel.
CUresult find_function(CUfunction *handle, const char *name, bool is_kernel = false) {
    REQUIRE(handle && name, CUDA_ERROR_INVALID_VALUE);
    for (auto &[known, function] : state().functions.live)
        if (function->name == name && !function->context && function->is_kernel == is_kernel)
            return *handle = known, CUDA_SUCCESS;
    auto kernel = known_kernels().find(name);
    REQUIRE(kernel != known_kernels().end(), CUDA_ERROR_NOT_FOUND);
    auto function = std::make_shared<Function>(kernel->second);
    function->is_kernel = is_kernel;
    *handle = state().functions.add(function);
    return CUDA_SUCCESS;
}

// The function of a kernel in a context.
CUfunction function_in(const shared_ptr<Context> &context, const Function &kernel) {
    for (auto &[known, function] : state().functions.live)
        if (function->name == kernel.name && function->context == context) return known;
    auto function = std::make_shared<Function>(kernel);
    function->context = context;
    function->is_kernel = false;
    return state().functions.add(function);
}

CUresult parameter_info(CUfunction handle, bool is_kernel, std::size_t index, std::size_t *offset, std::size_t *size) {
    auto function = state().functions.find(handle);
    REQUIRE(function && function->is_kernel == is_kernel, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE(offset && index < function->signature.size(), CUDA_ERROR_INVALID_VALUE);
    *offset = function->offset(index);
    if (size) *size = function->size(index);
    return CUDA_SUCCESS;
}

// ------------------------------------------------------------------------------------------------- contexts

void drop_streams(const shared_ptr<Context> &context) {
    for (auto &stream : std::vector<shared_ptr<Stream>>(context->streams)) {
        state().dropped += long(state().streams.live.count(stream->handle));
        destroy_stream(stream);
    }
    context->legacy = nullptr;
}

void drop_events(const shared_ptr<Context> &context) {
    auto &events = state().events;
    for (auto it = events.live.begin(); it != events.live.end();) {
        bool is_ours = it->second->context == context;
        state().dropped += is_ours;
        it = is_ours ? events.erase(it) : std::next(it);
    }
}

void drop_memory(const shared_ptr<Context> &context) {
    std::vector<shared_ptr<Range>> ours;
    for (auto &[start, range] : state().ranges)
        if (range->context == context && range->kind != Range::POOLED) ours.push_back(range);
    for (auto &range : ours) release(range);
    state().dropped += long(ours.size());
}

void drop_modules(const shared_ptr<Context> &context) {
    auto &modules = state().modules;
    for (auto it = modules.live.begin(); it != modules.live.end();)
        it = it->second->context == context ? modules.erase(it) : std::next(it);
}

// Everything that was made in a context ends with it.
void end_context(Lock &lock, const shared_ptr<Context> &context) {
    wait_for_context(lock, context);
    drop_streams(context);
    drop_events(context);
    drop_memory(context);
    drop_modules(context);
    context->is_alive = false;
    context->peers.clear();
}

void retain_primary(const shared_ptr<Context> &context) {
    if (!context->handle) {
        context->handle = state().contexts.add(context);
        context->id = ++state().ids;
    }
    context->is_alive = true;
    ++context->retained;
}

int live_contexts() {
    int n = 0;
    for (auto &[handle, context] : state().contexts.live) n += context->is_alive;
    return n;
}

// ------------------------------------------------------------------------------------------------- attributes

int device_attribute(CUdevice_attribute attribute) {
    static const std::map<int, int> values = {
        {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, int(MAX_THREADS_PER_BLOCK)},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 0x7fffffff},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
        {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 232448},
        {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 233472},
        {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536},
        {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
        {CU_DEVICE_ATTRIBUTE_MAX_PITCH, int(MAX_PITCH)},
        {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
        {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
        {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
        {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 32},
        {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1000000},
        {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 1000000},
        {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 5120},
        {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 50 << 20},
        {CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512},
        {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 132},
        {CU_DEVICE_ATTRIBUTE_GPU_OVERLAP, 1},
        {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 3},
        {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
        {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
        {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
        {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, 1},
        {CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1},
        {CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 1},
        {CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, 1},
        {CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES, 0},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
        {CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, CU_COMPUTEMODE_DEFAULT},
    };
    auto found = values.find(attribute);
    return found == values.end() ? 0 : found->second;
}

// Neighbours have the best link.
int peer_attribute(CUdevice_P2PAttribute attribute, int from, int to) {
    return attribute == CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK ? std::abs(from - to) - 1 : int(state().has_peers);
}

template <class T>
CUresult put(void *data, T value) {
    memcpy(data, &value, sizeof value);
    return CUDA_SUCCESS;
}

CUresult pointer_attribute(CUpointer_attribute attribute, Address address, const Range &range, void *data) {
    switch (attribute) {
        case CU_POINTER_ATTRIBUTE_CONTEXT: return put(data, range.pool || !range.context ? nullptr : range.context->handle);
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE: return put<unsigned>(data, range.is_host() ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
        case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: return put<CUdeviceptr>(data, address);
        case CU_POINTER_ATTRIBUTE_HOST_POINTER:
            REQUIRE(range.is_host() || range.kind == Range::MANAGED, CUDA_ERROR_INVALID_VALUE);
            return put(data, address);
        case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: return put<int>(data, 0);
        case CU_POINTER_ATTRIBUTE_BUFFER_ID: return put<unsigned long long>(data, range.id);
        case CU_POINTER_ATTRIBUTE_IS_MANAGED: return put<unsigned>(data, range.kind == Range::MANAGED);
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: return put<int>(data, range.device);
        case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE: return put<int>(data, 0);
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: return put<CUdeviceptr>(data, range.start);
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE: return put<std::size_t>(data, range.nbytes);
        case CU_POINTER_ATTRIBUTE_MAPPED: return put<int>(data, 1);
        case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: return put<std::uint64_t>(data, 0);
        case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE: return put(data, range.pool ? range.pool->handle : nullptr);
        default: return CUDA_ERROR_NOT_SUPPORTED;
    }
}

// What cuPointerGetAttributes says of memory that is not CUDA's.
CUresult unknown_pointer_attribute(CUpointer_attribute attribute, void *data) {
    static const std::set<int> of_four_bytes = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, CU_POINTER_ATTRIBUTE_IS_MANAGED,
        CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, CU_POINTER_ATTRIBUTE_MAPPED};
    if (attribute == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) return put<int>(data, -2);  // CU_DEVICE_INVALID
    return of_four_bytes.count(attribute) ? put<std::uint32_t>(data, 0) : put<std::uint64_t>(data, 0);
}

CUresult pool_attribute(const Pool &pool, CUmemPool_attribute attribute, void *value) {
    switch (attribute) {
        case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: return put<cuuint64_t>(value, pool.threshold);
        case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT: return put<cuuint64_t>(value, pool.reserved);
        case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH: return put<cuuint64_t>(value, pool.reserved_high);
        case CU_MEMPOOL_ATTR_USED_MEM_CURRENT: return put<cuuint64_t>(value, pool.used);
        case CU_MEMPOOL_ATTR_USED_MEM_HIGH: return put<cuuint64_t>(value, pool.used_high);
        default: break;
    }
    REQUIRE(pool.reuse.count(attribute), CUDA_ERROR_INVALID_VALUE);
    return put<int>(value, pool.reuse.at(attribute));
}

CUresult set_pool_attribute(Pool &pool, CUmemPool_attribute attribute, const void *value) {
    cuuint64_t wide = 0;
    bool is_wide = attribute >= CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
    memcpy(&wide, value, is_wide ? 8 : 4);
    switch (attribute) {
        case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: return pool.threshold = wide, CUDA_SUCCESS;
        case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
            REQUIRE(!wide, CUDA_ERROR_INVALID_VALUE);
            return pool.reserved_high = pool.reserved, CUDA_SUCCESS;
        case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
            REQUIRE(!wide, CUDA_ERROR_INVALID_VALUE);
            return pool.used_high = pool.used, CUDA_SUCCESS;
        default: break;
    }
    REQUIRE(pool.reuse.count(attribute), CUDA_ERROR_INVALID_VALUE);
    return pool.reuse[attribute] = int(wide), CUDA_SUCCESS;
}

CUresult set_pool_access(Pool &pool, const CUmemAccessDesc &wish) {
    int device = wish.location.id;
    REQUIRE(wish.location.type == CU_MEM_LOCATION_TYPE_DEVICE, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(is_device(device), CUDA_ERROR_INVALID_DEVICE);
    REQUIRE(can_access(device, pool.device), CUDA_ERROR_INVALID_DEVICE);
    REQUIRE(device != pool.device || wish.flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE, CUDA_ERROR_INVALID_VALUE);
    pool.access[device] = wish.flags;
    return CUDA_SUCCESS;
}

}  // namespace

// =================================================================================================== launches

// Who wants to know of launches: told of the stream by the thread that launches, without a lock of ours.
std::atomic<void (*)(CUstream)> launch_watcher{nullptr};

void tell_launch(CUstream stream) {
    if (auto watcher = launch_watcher.load()) watcher(stream);
}

// ================================================================================================= CUDA's functions

extern "C" {

// ------------------------------------------------------------------------------------------------- driver

CUresult CUDAAPI cuInit(unsigned flags) {
    ENTER(cuInit, NOTHING);
    REQUIRE(!flags, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(!state().devices.empty(), CUDA_ERROR_NO_DEVICE);
    state().is_initialized = true;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDriverGetVersion(int *version) {
    ENTER(cuDriverGetVersion, NOTHING);
    REQUIRE(version, CUDA_ERROR_INVALID_VALUE);
    *version = DRIVER_VERSION;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGetErrorName(CUresult error, const char **text) {
    ENTER(cuGetErrorName, NOTHING);
    const ErrorName *found = find_error(error);
    if (text) *text = found ? found->name : nullptr;
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGetErrorString(CUresult error, const char **text) {
    ENTER(cuGetErrorString, NOTHING);
    static std::map<CUresult, string> &words = *new std::map<CUresult, string>;
    const ErrorName *found = find_error(error);
    if (text) *text = found ? (words[error] = words_of(found->name)).c_str() : nullptr;
    return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// ------------------------------------------------------------------------------------------------- devices

CUresult CUDAAPI cuDeviceGetCount(int *count) {
    ENTER(cuDeviceGetCount, INITIALIZED);
    REQUIRE(count, CUDA_ERROR_INVALID_VALUE);
    *count = int(state().devices.size());
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGet(CUdevice *device, int ordinal) {
    ENTER(cuDeviceGet, INITIALIZED);
    REQUIRE(device, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(is_device(ordinal), CUDA_ERROR_INVALID_DEVICE);
    *device = ordinal;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetName(char *name, int n, CUdevice device) {
    ENTER(cuDeviceGetName, INITIALIZED);
    REQUIRE(name && n > 0, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(is_device(device), CUDA_ERROR_INVALID_DEVICE);
    snprintf(name, std::size_t(n), "Fake CUDA Device %d", device);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetUuid(CUuuid *uuid, CUdevice device) {
    ENTER(cuDeviceGetUuid, INITIALIZED);
    REQUIRE(uuid, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(is_device(device), CUDA_ERROR_INVALID_DEVICE);
    memcpy(uuid->bytes, "fakecuda device", 16);
    uuid->bytes[15] = char(device);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice device) {
    ENTER(cuDeviceGetAttribute, INITIALIZED);
    REQUIRE(value && attribute > 0 && attribute < CU_DEVICE_ATTRIBUTE_MAX, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(is_device(device), CUDA_ERROR_INVALID_DEVICE);
    *value = attribute == CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID ? device + 1 : device_attribute(attribute);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetPCIBusId(char *text, int n, CUdevice device) {
    ENTER(cuDeviceGetPCIBusId, INITIALIZED);
    REQUIRE(text && n > 0, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(is_device(device), CUDA_ERROR_INVALID_DEVICE);
    snprintf(text, std::size_t(n), "0000:00:%02x.0", device + 1);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceTotalMem(std::size_t *nbytes, CUdevice device) {
    ENTER(cuDeviceTotalMem, INITIALIZED);
    REQUIRE(nbytes, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(is_device(device), CUDA_ERROR_INVALID_DEVICE);
    *nbytes = state().capacity;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer) {
    ENTER(cuDeviceCanAccessPeer, INITIALIZED);
    REQUIRE(can, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(is_device(device) && is_device(peer), CUDA_ERROR_INVALID_DEVICE);
    *can = device != peer && state().has_peers;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attribute, CUdevice from, CUdevice to) {
    ENTER(cuDeviceGetP2PAttribute, INITIALIZED);
    REQUIRE(value && attribute >= 1 && attribute <= 5, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(is_device(from) && is_device(to) && from != to, CUDA_ERROR_INVALID_DEVICE);
    *value = peer_attribute(attribute, from, to);
    return CUDA_SUCCESS;
}

// ------------------------------------------------------------------------------------------------- contexts

CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext *handle, CUdevice device) {
    ENTER(cuDevicePrimaryCtxRetain, INITIALIZED);
    REQUIRE(handle, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(is_device(device), CUDA_ERROR_INVALID_DEVICE);
    retain_primary(state().devices[device].primary);
    *handle = state().devices[device].primary->handle;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevicePrimaryCtxRelease(CUdevice device) {
    ENTER(cuDevicePrimaryCtxRelease, INITIALIZED);
    REQUIRE(is_device(device), CUDA_ERROR_INVALID_DEVICE);
    auto context = state().devices[device].primary;
    REQUIRE(context->retained, CUDA_ERROR_INVALID_CONTEXT);
    if (--context->retained == 0) end_context(call.lock, context);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
    ENTER(cuDevicePrimaryCtxGetState, INITIALIZED);
    REQUIRE(flags && active, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(is_device(device), CUDA_ERROR_INVALID_DEVICE);
    *flags = state().devices[device].primary->flags;
    *active = state().devices[device].primary->is_alive;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxCreate(CUcontext *handle, CUctxCreateParams *, unsigned flags, CUdevice device) {
    ENTER(cuCtxCreate, INITIALIZED);
    REQUIRE(handle, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(is_device(device), CUDA_ERROR_INVALID_DEVICE);
    auto context = std::make_shared<Context>();
    context->device = device;
    context->flags = flags;
    retain_primary(context);
    current_contexts.push_back(*handle = context->handle);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxDestroy(CUcontext handle) {
    ENTER(cuCtxDestroy, INITIALIZED);
    REQUIRE(is_context(handle), CUDA_ERROR_INVALID_CONTEXT);
    auto context = state().contexts.find(handle);
    REQUIRE(context != state().devices[context->device].primary, CUDA_ERROR_INVALID_CONTEXT);
    if (!current_contexts.empty() && current_contexts.back() == handle) current_contexts.pop_back();
    end_context(call.lock, context);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxSetCurrent(CUcontext handle) {
    ENTER(cuCtxSetCurrent, INITIALIZED);
    if (handle && reinterpret_cast<std::uintptr_t>(handle) < 4096) {  // no error is told for what CUDA would follow
        std::fprintf(stderr, "cuCtxSetCurrent(%p): no address\n", static_cast<void *>(handle));
        std::abort();
    }
    REQUIRE(!handle || is_context(handle), CUDA_ERROR_INVALID_CONTEXT);
    if (!current_contexts.empty()) current_contexts.pop_back();
    if (handle) current_contexts.push_back(handle);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetCurrent(CUcontext *handle) {
    ENTER(cuCtxGetCurrent, INITIALIZED);
    REQUIRE(handle, CUDA_ERROR_INVALID_VALUE);
    *handle = current_context() ? current_contexts.back() : nullptr;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxPushCurrent(CUcontext handle) {
    ENTER(cuCtxPushCurrent, INITIALIZED);
    REQUIRE(is_context(handle), CUDA_ERROR_INVALID_CONTEXT);
    current_contexts.push_back(handle);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxPopCurrent(CUcontext *handle) {
    ENTER(cuCtxPopCurrent, INITIALIZED);
    REQUIRE(!current_contexts.empty(), CUDA_ERROR_INVALID_CONTEXT);
    if (handle) *handle = current_contexts.back();
    current_contexts.pop_back();
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetDevice(CUdevice *device) {
    ENTER(cuCtxGetDevice, INITIALIZED);
    REQUIRE(device, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(current_context(), CUDA_ERROR_INVALID_CONTEXT);
    *device = current_context()->device;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetDevice_v2(CUdevice *device, CUcontext handle) {
    ENTER(cuCtxGetDevice, INITIALIZED);
    auto context = handle ? state().contexts.find(handle) : current_context();
    REQUIRE(device, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(context, CUDA_ERROR_INVALID_CONTEXT);
    *device = context->device;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetId(CUcontext handle, unsigned long long *id) {
    ENTER(cuCtxGetId, INITIALIZED);
    auto context = handle ? state().contexts.find(handle) : current_context();
    REQUIRE(context, CUDA_ERROR_INVALID_CONTEXT);
    REQUIRE(id, CUDA_ERROR_INVALID_VALUE);
    *id = context->id;
    return CUDA_SUCCESS;
}

// A context cannot be waited for while a stream of it is captured, in whatever mode: that spoils the capture.
CUresult refuse_captured(const shared_ptr<Context> &context) {
    CUresult refused = CUDA_SUCCESS;
    for (auto &capture : state().captures) {
        auto stream = state().streams.find(capture->origin);
        if (stream && stream->context == context)
            refused = invalidate(capture, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "its context is waited for");
    }
    return refused;
}

CUresult CUDAAPI cuCtxSynchronize(void) {
    ENTER_UNSAFE(cuCtxSynchronize, CONTEXT);
    TRY(refuse_captured(call.context));
    wait_for_context(call.lock, call.context);
    return call.result();
}

CUresult CUDAAPI cuCtxSynchronize_v2(CUcontext handle) {
    ENTER_UNSAFE(cuCtxSynchronize, HEALTHY);
    auto context = handle ? state().contexts.find(handle) : current_context();
    REQUIRE(context && context->is_alive, CUDA_ERROR_INVALID_CONTEXT);
    TRY(refuse_captured(context));
    wait_for_context(call.lock, context);
    return call.result();
}

CUresult CUDAAPI cuCtxEnablePeerAccess(CUcontext handle, unsigned flags) {
    ENTER_UNSAFE(cuCtxEnablePeerAccess, CONTEXT);
    REQUIRE(!flags, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(is_context(handle), CUDA_ERROR_INVALID_CONTEXT);
    int peer = state().contexts.find(handle)->device;
    REQUIRE(peer != call.context->device, CUDA_ERROR_INVALID_DEVICE);
    REQUIRE(state().has_peers, CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
    REQUIRE(call.context->peers.insert(peer).second, CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxDisablePeerAccess(CUcontext handle) {
    ENTER(cuCtxDisablePeerAccess, CONTEXT);
    REQUIRE(is_context(handle), CUDA_ERROR_INVALID_CONTEXT);
    int peer = state().contexts.find(handle)->device;
    REQUIRE(call.context->peers.erase(peer), CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    ENTER(cuCtxGetStreamPriorityRange, CONTEXT);
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return CUDA_SUCCESS;
}

// ------------------------------------------------------------------------------------------------- streams

CUresult CUDAAPI cuStreamCreate(CUstream *handle, unsigned flags) {
    ENTER(cuStreamCreate, CONTEXT);
    return create_stream(call, handle, flags, 0);
}

CUresult CUDAAPI cuStreamCreateWithPriority(CUstream *handle, unsigned flags, int priority) {
    ENTER(cuStreamCreateWithPriority, CONTEXT);
    return create_stream(call, handle, flags, priority);
}

CUresult CUDAAPI cuStreamDestroy(CUstream handle) {
    ENTER(cuStreamDestroy, HEALTHY);
    auto stream = state().streams.find(handle);
    REQUIRE(stream, CUDA_ERROR_INVALID_HANDLE);
    if (stream->capture) invalidate(stream->capture, CUDA_SUCCESS, "a stream of it is destroyed");
    destroy_stream(stream);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamSynchronize(CUstream handle) {
    ENTER_UNSAFE(cuStreamSynchronize, HEALTHY);
    shared_ptr<Stream> stream;
    TRY(find_present(handle, stream));
    if (stream->is_legacy) wait_for_all(call.lock, blocking_streams(stream->context));
    wait_until_idle(call.lock, stream);
    return call.result();
}

CUresult CUDAAPI cuStreamQuery(CUstream handle) {
    ENTER_UNSAFE(cuStreamQuery, HEALTHY);
    shared_ptr<Stream> stream;
    TRY(find_present(handle, stream));
    return stream->completed == stream->submitted ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult CUDAAPI cuStreamWaitEvent(CUstream stream, CUevent event, unsigned) {
    ENTER(cuStreamWaitEvent, HEALTHY);
    return wait_for_event(call, stream, event);
}

CUresult CUDAAPI cuStreamGetCtx(CUstream handle, CUcontext *context) {
    ENTER(cuStreamGetCtx, HEALTHY);
    shared_ptr<Stream> stream;
    REQUIRE(context, CUDA_ERROR_INVALID_VALUE);
    TRY(find_stream(handle, stream));
    *context = stream->context->handle;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamGetCtx_v2(CUstream handle, CUcontext *context, CUgreenCtx *green) {
    if (green) *green = nullptr;
    return cuStreamGetCtx(handle, context);
}

CUresult CUDAAPI cuStreamGetDevice(CUstream handle, CUdevice *device) {
    ENTER(cuStreamGetDevice, HEALTHY);
    shared_ptr<Stream> stream;
    REQUIRE(device, CUDA_ERROR_INVALID_VALUE);
    TRY(find_stream(handle, stream));
    *device = stream->context->device;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamGetFlags(CUstream handle, unsigned *flags) {
    ENTER(cuStreamGetFlags, HEALTHY);
    shared_ptr<Stream> stream;
    REQUIRE(flags, CUDA_ERROR_INVALID_VALUE);
    TRY(find_stream(handle, stream));
    *flags = stream->flags;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamGetPriority(CUstream handle, int *priority) {
    ENTER(cuStreamGetPriority, HEALTHY);
    shared_ptr<Stream> stream;
    REQUIRE(priority, CUDA_ERROR_INVALID_VALUE);
    TRY(find_stream(handle, stream));
    *priority = stream->priority;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamGetId(CUstream handle, unsigned long long *id) {
    ENTER(cuStreamGetId, HEALTHY);
    shared_ptr<Stream> stream;
    REQUIRE(id, CUDA_ERROR_INVALID_VALUE);
    TRY(find_stream(handle, stream));
    *id = stream->id;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamBeginCapture(CUstream handle, CUstreamCaptureMode mode) {
    ENTER(cuStreamBeginCapture, HEALTHY);
    shared_ptr<Stream> stream;
    TRY(find_stream(handle, stream));
    auto graph = std::make_shared<Graph>();
    TRY(begin_capture(stream, mode, graph));
    graph->handle = state().graphs.add(graph);
    stream->capture->is_into = false;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamBeginCaptureToGraph(CUstream handle, CUgraph graph_handle, const CUgraphNode *after,
                                             const CUgraphEdgeData *, std::size_t count, CUstreamCaptureMode mode) {
    ENTER(cuStreamBeginCaptureToGraph, HEALTHY);
    shared_ptr<Stream> stream;
    std::set<int> tail;
    auto graph = state().graphs.find(graph_handle);
    TRY(find_stream(handle, stream));
    REQUIRE(graph, CUDA_ERROR_INVALID_VALUE);
    TRY(find_nodes(*graph, after, count, tail));
    TRY(begin_capture(stream, mode, graph));
    stream->tail = tail;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamEndCapture(CUstream handle, CUgraph *graph) {
    ENTER(cuStreamEndCapture, HEALTHY);
    auto stream = state().streams.find(handle);
    REQUIRE(graph && stream, CUDA_ERROR_INVALID_VALUE);
    auto capture = stream->capture;
    REQUIRE(capture, CUDA_ERROR_ILLEGAL_STATE);
    REQUIRE(capture->origin == handle, CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
    bool is_right_thread = capture->thread == std::this_thread::get_id() || capture->mode == CU_STREAM_CAPTURE_MODE_RELAXED;
    REQUIRE(is_right_thread, CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    bool is_joined = has_joined(*capture, *stream);
    end_capture(capture);
    *graph = capture->is_invalid || !is_joined ? nullptr : capture->graph->handle;
    if (!*graph && !capture->is_into) state().graphs.erase(capture->graph->handle);
    capture->graph = nullptr;  // events still know the capture
    REQUIRE(!capture->is_invalid, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    return is_joined ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
}

CUresult CUDAAPI cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode) {
    ENTER(cuThreadExchangeStreamCaptureMode, INITIALIZED);
    REQUIRE(mode, CUDA_ERROR_INVALID_VALUE);
    std::swap(*mode, thread_mode);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus *status) {
    return cuStreamGetCaptureInfo(handle, status, nullptr, nullptr, nullptr, nullptr, nullptr);
}

CUresult CUDAAPI cuStreamGetCaptureInfo(CUstream handle, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                                        const CUgraphNode **after, const CUgraphEdgeData **, std::size_t *count) {
    ENTER(cuStreamGetCaptureInfo, HEALTHY);
    shared_ptr<Stream> stream = state().streams.find(handle);
    REQUIRE(status, CUDA_ERROR_INVALID_VALUE);
    if (!stream) TRY(find_stream(handle, stream));
    auto &capture = stream->capture;
    *status = !capture ? CU_STREAM_CAPTURE_STATUS_NONE
              : capture->is_invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED : CU_STREAM_CAPTURE_STATUS_ACTIVE;
    if (capture && id) *id = capture->id;
    if (capture && graph) *graph = capture->graph->handle;
    if (!capture || !after || !count) return CUDA_SUCCESS;
    capture->tail.clear();
    for (int i : stream->tail) capture->tail.push_back(capture->graph->nodes[i].handle());
    *after = capture->tail.data();
    *count = capture->tail.size();
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamUpdateCaptureDependencies(CUstream handle, CUgraphNode *nodes, const CUgraphEdgeData *,
                                                   std::size_t count, unsigned flags) {
    ENTER(cuStreamUpdateCaptureDependencies, HEALTHY);
    shared_ptr<Stream> stream;
    std::set<int> found;
    TRY(find_stream(handle, stream));
    REQUIRE(stream->capture, CUDA_ERROR_ILLEGAL_STATE);
    TRY(find_nodes(*stream->capture->graph, nodes, count, found));
    if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES) stream->tail.clear();
    stream->tail.insert(found.begin(), found.end());
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuStreamWaitValue32(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags) {
    ENTER(cuStreamWaitValue32, HEALTHY);
    return on_value<cuuint32_t>(call, stream, address, [=](cuuint32_t *p) { poll_value(p, value, flags); });
}

CUresult CUDAAPI cuStreamWaitValue64(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags) {
    ENTER(cuStreamWaitValue64, HEALTHY);
    return on_value<cuuint64_t>(call, stream, address, [=](cuuint64_t *p) { poll_value(p, value, flags); });
}

CUresult CUDAAPI cuStreamWriteValue32(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned) {
    ENTER(cuStreamWriteValue32, HEALTHY);
    return on_value<cuuint32_t>(call, stream, address, [=](cuuint32_t *p) { __atomic_store_n(p, value, __ATOMIC_RELEASE); });
}

CUresult CUDAAPI cuStreamWriteValue64(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned) {
    ENTER(cuStreamWriteValue64, HEALTHY);
    return on_value<cuuint64_t>(call, stream, address, [=](cuuint64_t *p) { __atomic_store_n(p, value, __ATOMIC_RELEASE); });
}

CUresult CUDAAPI cuLaunchHostFunc(CUstream handle, CUhostFn function, void *data) {
    ENTER(cuLaunchHostFunc, HEALTHY);
    shared_ptr<Stream> stream;
    REQUIRE(function, CUDA_ERROR_INVALID_VALUE);
    TRY(find_stream(handle, stream));
    Work work{"host function"};
    work.body = [=] { function(data); };
    submit(call.lock, stream, std::move(work));
    return CUDA_SUCCESS;
}

// ------------------------------------------------------------------------------------------------- graphs

CUresult CUDAAPI cuGraphCreate(CUgraph *handle, unsigned flags) {
    ENTER(cuGraphCreate, HEALTHY);
    REQUIRE(handle && !flags, CUDA_ERROR_INVALID_VALUE);
    auto graph = std::make_shared<Graph>();
    *handle = graph->handle = state().graphs.add(graph);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphGetNodes(CUgraph handle, CUgraphNode *nodes, std::size_t *count) {
    ENTER(cuGraphGetNodes, HEALTHY);
    auto graph = state().graphs.find(handle);
    REQUIRE(graph && count, CUDA_ERROR_INVALID_VALUE);
    for (std::size_t i = 0; nodes && i < std::min(*count, graph->nodes.size()); ++i) nodes[i] = graph->nodes[i].handle();
    *count = nodes ? std::min(*count, graph->nodes.size()) : graph->nodes.size();
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphGetEdges(CUgraph handle, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *, std::size_t *count) {
    ENTER(cuGraphGetEdges, HEALTHY);
    auto graph = state().graphs.find(handle);
    REQUIRE(graph && count && !from && !to, CUDA_ERROR_INVALID_VALUE);  // counts them only
    *count = 0;
    for (auto &node : graph->nodes) *count += node.after.size();
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphNodeGetDependentNodes(CUgraphNode handle, CUgraphNode *nodes, CUgraphEdgeData *, std::size_t *count) {
    ENTER(cuGraphNodeGetDependentNodes, HEALTHY);
    REQUIRE(count, CUDA_ERROR_INVALID_VALUE);
    for (auto &[known, graph] : state().graphs.live) {
        int number = -1;
        for (std::size_t i = 0; i < graph->nodes.size(); ++i)
            if (graph->nodes[i].handle() == handle) number = int(i);
        if (number < 0) continue;
        std::size_t room = nodes ? *count : graph->nodes.size();
        *count = 0;
        for (auto &node : graph->nodes) {
            if (!node.after.count(number) || *count == room) continue;
            if (nodes) nodes[*count] = node.handle();
            ++*count;
        }
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGraphAddChildGraphNode(CUgraphNode *handle, CUgraph graph_handle, const CUgraphNode *after,
                                          std::size_t count, CUgraph child_handle) {
    ENTER(cuGraphAddChildGraphNode, HEALTHY);
    auto graph = state().graphs.find(graph_handle), child = state().graphs.find(child_handle);
    REQUIRE(handle && graph && child, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(!has_conditions(*child) && child->memory.empty(), CUDA_ERROR_NOT_SUPPORTED);
    Node node{{"child graph"}, {}, ++state().nodes_made, copy_of(child)};
    TRY(find_nodes(*graph, after, count, node.after));
    *handle = node.handle();
    graph->nodes.push_back(node);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphChildGraphNodeGetGraph(CUgraphNode handle, CUgraph *child) {
    ENTER(cuGraphChildGraphNodeGetGraph, HEALTHY);
    for (auto &[known, graph] : state().graphs.live)
        for (auto &node : graph->nodes)
            if (node.handle() == handle && node.inner && !node.condition && !graph->origin) {
                if (!node.inner->handle) node.inner->handle = state().graphs.add(node.inner);
                *child = node.inner->handle;
                return CUDA_SUCCESS;
            }
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult CUDAAPI cuGraphConditionalHandleCreate(CUgraphConditionalHandle *handle, CUgraph graph_handle, CUcontext context,
                                                unsigned at_launch, unsigned flags) {
    ENTER(cuGraphConditionalHandleCreate, HEALTHY);
    auto graph = state().graphs.find(graph_handle);
    REQUIRE(handle && graph && state().contexts.find(context), CUDA_ERROR_INVALID_VALUE);
    *handle = ++state().ids;
    state().conditions[*handle] = {0, at_launch, (flags & CU_GRAPH_COND_ASSIGN_DEFAULT) != 0};
    graph->conditions.push_back(*handle);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphAddNode(CUgraphNode *handle, CUgraph graph_handle, const CUgraphNode *after,
                                const CUgraphEdgeData *, std::size_t count, CUgraphNodeParams *what) {
    ENTER(cuGraphAddNode, HEALTHY);
    auto graph = state().graphs.find(graph_handle);
    REQUIRE(handle && graph && what, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(what->type == CU_GRAPH_NODE_TYPE_CONDITIONAL, CUDA_ERROR_NOT_SUPPORTED);
    auto &wanted = what->conditional;
    auto &known = graph->conditions;
    REQUIRE(wanted.size == 1 && wanted.type != CU_GRAPH_COND_TYPE_SWITCH, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(std::count(known.begin(), known.end(), wanted.handle) == 1, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(state().contexts.find(wanted.ctx), CUDA_ERROR_INVALID_VALUE);
    Node node{{"conditional"}, {}, ++state().nodes_made, std::make_shared<Graph>(), wanted.handle};
    node.is_loop = wanted.type == CU_GRAPH_COND_TYPE_WHILE;
    node.inner->handle = state().graphs.add(node.inner);
    TRY(find_nodes(*graph, after, count, node.after));
    *handle = node.handle();
    graph->nodes.push_back(node);
    static std::deque<CUgraph> bodies;
    bodies.push_back(node.inner->handle);
    wanted.phGraph_out = &bodies.back();
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphInstantiateWithFlags(CUgraphExec *exec, CUgraph handle, unsigned long long flags) {
    ENTER(cuGraphInstantiateWithFlags, HEALTHY);
    auto graph = state().graphs.find(handle);
    REQUIRE(exec && graph && !flags, CUDA_ERROR_INVALID_VALUE);
    for (auto &node : graph->nodes) REQUIRE(!node.condition || suits_condition(*node.inner), CUDA_ERROR_NOT_SUPPORTED);
    if (has_conditions(*graph) && !orders_conditions(*graph))
        set_error(CUDA_ERROR_LAUNCH_TIMEOUT, "a device decides about two parts of a graph at a time");
    *exec = state().execs.add(copy_of(graph));
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphExecUpdate(CUgraphExec handle, CUgraph graph_handle, CUgraphExecUpdateResultInfo *info) {
    ENTER(cuGraphExecUpdate, HEALTHY);
    auto exec = state().execs.find(handle);
    auto graph = state().graphs.find(graph_handle);
    REQUIRE(exec && graph && info, CUDA_ERROR_INVALID_VALUE);
    info->result = is_like(*exec, *graph) ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
    REQUIRE(info->result == CU_GRAPH_EXEC_UPDATE_SUCCESS, CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    become(*exec, *graph);
    exec->origin = graph;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphExecKernelNodeSetParams(CUgraphExec handle, CUgraphNode node_handle,
                                                const CUDA_KERNEL_NODE_PARAMS *p) {
    ENTER(cuGraphExecKernelNodeSetParams, HEALTHY);
    auto exec = state().execs.find(handle);
    Node *node = exec ? find_node(*exec, node_handle) : nullptr;
    REQUIRE(node && p && string(node->work.name) == "kernel", CUDA_ERROR_INVALID_VALUE);
    std::vector<unsigned> dimensions = {p->gridDimX, p->gridDimY, p->gridDimZ, p->blockDimX, p->blockDimY, p->blockDimZ};
    auto context = current_context();
    REQUIRE(context && !p->kern, CUDA_ERROR_INVALID_VALUE);
    return kernel_work(p->func, context, dimensions, p->kernelParams, p->extra, node->work);
}

CUresult CUDAAPI cuGraphKernelNodeGetParams(CUgraphNode handle, CUDA_KERNEL_NODE_PARAMS *p) {
    ENTER(cuGraphKernelNodeGetParams, HEALTHY);
    Node *node = find_node_anywhere(handle);
    REQUIRE(node && p && node->work.kernel, CUDA_ERROR_INVALID_VALUE);
    *p = node->work.kernel->launch;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphAddKernelNode(CUgraphNode *handle, CUgraph graph_handle, const CUgraphNode *after, std::size_t count,
                                      const CUDA_KERNEL_NODE_PARAMS *p) {
    ENTER(cuGraphAddKernelNode, HEALTHY);
    auto graph = state().graphs.find(graph_handle);
    auto context = current_context();
    REQUIRE(handle && graph && p && context && !p->kern, CUDA_ERROR_INVALID_VALUE);
    Node node{{"kernel"}, {}, ++state().nodes_made};
    std::vector<unsigned> dimensions = {p->gridDimX, p->gridDimY, p->gridDimZ, p->blockDimX, p->blockDimY, p->blockDimZ};
    TRY(kernel_work(p->func, context, dimensions, p->kernelParams, p->extra, node.work));
    TRY(find_nodes(*graph, after, count, node.after));
    *handle = node.handle();
    graph->nodes.push_back(node);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphKernelNodeCopyAttributes(CUgraphNode target, CUgraphNode source) {
    ENTER(cuGraphKernelNodeCopyAttributes, HEALTHY);
    Node *one = find_node_anywhere(target), *other = find_node_anywhere(source);
    REQUIRE(one && other && one->work.kernel && other->work.kernel, CUDA_ERROR_INVALID_VALUE);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphGetRootNodes(CUgraph handle, CUgraphNode *nodes, std::size_t *count) {
    ENTER(cuGraphGetRootNodes, HEALTHY);
    auto graph = state().graphs.find(handle);
    REQUIRE(graph && nodes && count, CUDA_ERROR_INVALID_VALUE);
    std::size_t room = *count;
    *count = 0;
    for (auto &node : graph->nodes)
        if (node.after.empty() && *count < room) nodes[(*count)++] = node.handle();
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphNodeGetDependencies(CUgraphNode handle, CUgraphNode *nodes, CUgraphEdgeData *, std::size_t *count) {
    ENTER(cuGraphNodeGetDependencies, HEALTHY);
    Graph *graph = nullptr;
    Node *node = find_node_anywhere(handle, &graph);
    REQUIRE(node && count, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(!nodes || *count >= node->after.size(), CUDA_ERROR_INVALID_VALUE);  // the rest is not told
    if (nodes)
        for (int before : node->after) *nodes++ = graph->nodes[before].handle();
    *count = node->after.size();
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphNodeGetType(CUgraphNode handle, CUgraphNodeType *type) {
    ENTER(cuGraphNodeGetType, HEALTHY);
    Node *node = find_node_anywhere(handle);
    REQUIRE(node && type, CUDA_ERROR_INVALID_VALUE);
    string name = node->work.name;
    *type = name == "copy" ? CU_GRAPH_NODE_TYPE_MEMCPY : name == "fill" ? CU_GRAPH_NODE_TYPE_MEMSET
          : name == "kernel" ? CU_GRAPH_NODE_TYPE_KERNEL : CU_GRAPH_NODE_TYPE_EMPTY;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphMemcpyNodeGetParams(CUgraphNode handle, CUDA_MEMCPY3D *p) {
    ENTER(cuGraphMemcpyNodeGetParams, HEALTHY);
    Node *node = find_node_anywhere(handle);
    REQUIRE(node && p && string(node->work.name) == "copy", CUDA_ERROR_INVALID_VALUE);
    *p = {};
    if (!node->work.line) {
        p->WidthInBytes = p->Height = p->Depth = 2;  // more than is asked for here
        return CUDA_SUCCESS;
    }
    auto &line = *node->work.line;
    p->WidthInBytes = line.width, p->Height = p->Depth = 1;
    p->srcMemoryType = line.from_type, p->dstMemoryType = line.to_type;
    (line.from_type == CU_MEMORYTYPE_HOST ? (void *&)p->srcHost : (void *&)p->srcDevice) = reinterpret_cast<void *>(line.from);
    (line.to_type == CU_MEMORYTYPE_HOST ? p->dstHost : (void *&)p->dstDevice) = reinterpret_cast<void *>(line.to);
    return CUDA_SUCCESS;
}

// The range of an address; as CUDA, memory of another device than before is refused.
bool is_of_like_memory(const Ranges &before, const Ranges &now) {
    if (before.size() != now.size()) return false;
    for (std::size_t i = 0; i < now.size(); ++i)
        if (!before[i] || !now[i] || before[i]->device != now[i]->device || before[i]->is_host() != now[i]->is_host()) return false;
    return true;
}

// CUDA 13.0 changes no copy of memory of pools between devices, and wants the context of the memory's device.
bool is_of_one_device(const Ranges &ranges, CUcontext context) {
    int device = state().contexts.find(context)->device;
    return std::all_of(ranges.begin(), ranges.end(), [=](auto &range) { return range->is_host() || range->device == device; });
}

CUresult CUDAAPI cuGraphExecMemcpyNodeSetParams(CUgraphExec handle, CUgraphNode node_handle, const CUDA_MEMCPY3D *p, CUcontext context) {
    ENTER(cuGraphExecMemcpyNodeSetParams, HEALTHY);
    auto exec = state().execs.find(handle);
    Node *node = exec ? find_node(*exec, node_handle) : nullptr;
    REQUIRE(node && p && node->work.line && is_context(context), CUDA_ERROR_INVALID_VALUE);
    REQUIRE(p->Height == 1 && p->Depth == 1 && p->WidthInBytes, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(p->srcMemoryType == node->work.line->from_type && p->dstMemoryType == node->work.line->to_type, CUDA_ERROR_INVALID_VALUE);
    Work work;
    shared_ptr<Range> to, from;
    TRY(copy_work(line(address_of(p->dstMemoryType, p->dstHost, p->dstDevice), p->dstMemoryType),
                  line(address_of(p->srcMemoryType, p->srcHost, p->srcDevice), p->srcMemoryType),
                  {p->WidthInBytes, 1, 1}, state().contexts.find(context)->device, true, work, to, from));
    REQUIRE(is_of_like_memory(node->work.ranges, work.ranges) && is_of_one_device(work.ranges, context), CUDA_ERROR_INVALID_VALUE);
    node->work = std::move(work);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphMemsetNodeGetParams(CUgraphNode handle, CUDA_MEMSET_NODE_PARAMS *p) {
    ENTER(cuGraphMemsetNodeGetParams, HEALTHY);
    Node *node = find_node_anywhere(handle);
    REQUIRE(node && p && node->work.area, CUDA_ERROR_INVALID_VALUE);
    *p = *node->work.area;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphExecMemsetNodeSetParams(CUgraphExec handle, CUgraphNode node_handle, const CUDA_MEMSET_NODE_PARAMS *p,
                                                CUcontext context) {
    ENTER(cuGraphExecMemsetNodeSetParams, HEALTHY);
    auto exec = state().execs.find(handle);
    Node *node = exec ? find_node(*exec, node_handle) : nullptr;
    REQUIRE(node && p && node->work.area && is_context(context), CUDA_ERROR_INVALID_VALUE);
    REQUIRE(p->width == node->work.area->width && p->height == node->work.area->height, CUDA_ERROR_INVALID_VALUE);
    Work work;
    TRY(fill_work(*p, state().contexts.find(context)->device, work));
    REQUIRE(is_of_like_memory(node->work.ranges, work.ranges) && is_of_one_device(work.ranges, context), CUDA_ERROR_INVALID_VALUE);
    node->work = std::move(work);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphExecChildGraphNodeSetParams(CUgraphExec handle, CUgraphNode node_handle, CUgraph child_handle) {
    ENTER(cuGraphExecChildGraphNodeSetParams, HEALTHY);
    auto exec = state().execs.find(handle);
    auto child = state().graphs.find(child_handle);
    Node *node = exec ? find_node(*exec, node_handle) : nullptr;
    REQUIRE(node && child && node->inner && !node->condition, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(child->nodes.size() == node->inner->nodes.size(), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    node->inner = copy_of(child);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphLaunch(CUgraphExec handle, CUstream stream_handle) {
    tell_launch(stream_handle);
    ENTER(cuGraphLaunch, HEALTHY);
    shared_ptr<Stream> stream;
    auto graph = state().execs.find(handle);
    REQUIRE(graph, CUDA_ERROR_INVALID_VALUE);
    TRY(find_stream(stream_handle, stream));
    REQUIRE(!stream->capture, CUDA_ERROR_NOT_SUPPORTED);
    static std::mt19937 random(state().seed);
    auto conditions = conditions_of(*graph);
    if (!conditions.empty()) {
        Work work{"conditions"};
        work.body = [=] {
            Lock lock(state().mutex);
            for (auto condition : conditions) {
                auto &known = state().conditions[condition];
                if (known.is_reset) known.value = known.at_launch;
            }
        };
        submit(call.lock, stream, std::move(work));
    }
    graph = copy_of(graph);  // which later updates do not change
    read_pageable(*graph);
    submit_graph(call.lock, stream, graph, random);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphDestroy(CUgraph handle) {
    ENTER(cuGraphDestroy, HEALTHY);
    REQUIRE(state().graphs.erase(handle), CUDA_ERROR_INVALID_VALUE);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuGraphExecDestroy(CUgraphExec handle) {
    ENTER(cuGraphExecDestroy, HEALTHY);
    REQUIRE(state().execs.erase(handle), CUDA_ERROR_INVALID_VALUE);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuUserObjectCreate(CUuserObject *handle, void *data, CUhostFn destroy, unsigned count, unsigned flags) {
    ENTER(cuUserObjectCreate, HEALTHY);
    REQUIRE(handle && destroy && count == 1 && flags == CU_USER_OBJECT_NO_DESTRUCTOR_SYNC, CUDA_ERROR_INVALID_VALUE);
    *handle = state().objects.add(shared_ptr<UserObject>(new UserObject{data, destroy}));
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuUserObjectRelease(CUuserObject handle, unsigned count) {
    ENTER(cuUserObjectRelease, HEALTHY);
    auto object = state().objects.find(handle);
    REQUIRE(object && count == 1, CUDA_ERROR_INVALID_VALUE);
    state().objects.erase(handle);
    return CUDA_SUCCESS;
}

// The graph takes over the caller's reference.
CUresult CUDAAPI cuGraphRetainUserObject(CUgraph graph_handle, CUuserObject handle, unsigned count, unsigned flags) {
    ENTER(cuGraphRetainUserObject, HEALTHY);
    auto graph = state().graphs.find(graph_handle);
    auto object = state().objects.find(handle);
    REQUIRE(graph && object && count == 1 && flags == CU_GRAPH_USER_OBJECT_MOVE, CUDA_ERROR_INVALID_VALUE);
    graph->objects.push_back(object);
    state().objects.erase(handle);
    return CUDA_SUCCESS;
}

// ------------------------------------------------------------------------------------------------- events

CUresult CUDAAPI cuEventCreate(CUevent *handle, unsigned flags) {
    ENTER(cuEventCreate, CONTEXT);
    REQUIRE(handle && flags <= 7, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(!(flags & CU_EVENT_INTERPROCESS), CUDA_ERROR_NOT_SUPPORTED);
    auto event = std::make_shared<Event>();
    event->context = call.context;
    event->flags = flags;
    *handle = state().events.add(event);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuEventDestroy(CUevent handle) {
    ENTER(cuEventDestroy, HEALTHY);
    REQUIRE(state().events.erase(handle), CUDA_ERROR_INVALID_HANDLE);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuEventRecord(CUevent event, CUstream stream) {
    ENTER(cuEventRecord, HEALTHY);
    return record(call, event, stream);
}

CUresult CUDAAPI cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags) {
    ENTER(cuEventRecordWithFlags, HEALTHY);
    REQUIRE(flags <= 1, CUDA_ERROR_INVALID_VALUE);
    return record(call, event, stream);
}

CUresult CUDAAPI cuEventQuery(CUevent handle) {
    ENTER_UNSAFE(cuEventQuery, HEALTHY);
    shared_ptr<Event> event;
    TRY(find_present(handle, event));
    return is_complete(*event) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult CUDAAPI cuEventSynchronize(CUevent handle) {
    ENTER_UNSAFE(cuEventSynchronize, HEALTHY);
    shared_ptr<Event> event;
    TRY(find_present(handle, event));
    auto mark = event->last;
    if (mark) state().progress.wait(call.lock, [&] { return mark->is_reached; });
    return call.result();
}

CUresult CUDAAPI cuEventElapsedTime(float *milliseconds, CUevent from_handle, CUevent to_handle) {
    ENTER(cuEventElapsedTime, HEALTHY);
    shared_ptr<Event> from, to;
    REQUIRE(milliseconds, CUDA_ERROR_INVALID_VALUE);
    TRY(find_event(from_handle, from));
    TRY(find_event(to_handle, to));
    REQUIRE(from->last && to->last, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE(!((from->flags | to->flags) & CU_EVENT_DISABLE_TIMING), CUDA_ERROR_INVALID_HANDLE);
    REQUIRE(from->context == to->context, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE(is_complete(*from) && is_complete(*to), CUDA_ERROR_NOT_READY);
    *milliseconds = std::chrono::duration<float, std::milli>(to->last->time - from->last->time).count();
    return CUDA_SUCCESS;
}

// ------------------------------------------------------------------------------------------------- memory

CUresult CUDAAPI cuMemGetInfo(std::size_t *available, std::size_t *total) {
    ENTER(cuMemGetInfo, CONTEXT);
    REQUIRE(available && total, CUDA_ERROR_INVALID_VALUE);
    *available = state().capacity - state().devices[call.context->device].used;
    *total = state().capacity;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAlloc(CUdeviceptr *address, std::size_t nbytes) {
    ENTER_UNSAFE(cuMemAlloc, CONTEXT);
    return allocate(call, address, nbytes);
}

CUresult CUDAAPI cuMemAllocManaged(CUdeviceptr *address, std::size_t nbytes, unsigned flags) {
    ENTER(cuMemAllocManaged, CONTEXT);
    return allocate_managed(call, address, nbytes, flags);
}

CUresult CUDAAPI cuMemFree(CUdeviceptr address) {
    ENTER_UNSAFE(cuMemFree, CONTEXT);
    return free_now(call, address);
}

CUresult CUDAAPI cuMemGetAddressRange(CUdeviceptr *start, std::size_t *nbytes, CUdeviceptr address) {
    ENTER(cuMemGetAddressRange, CONTEXT);
    auto range = touched_range(address, 1);
    REQUIRE(range, CUDA_ERROR_NOT_FOUND);
    if (start) *start = range->start;
    if (nbytes) *nbytes = range->nbytes;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAllocAsync(CUdeviceptr *address, std::size_t nbytes, CUstream stream) {
    ENTER(cuMemAllocAsync, HEALTHY);
    return allocate_async(call, address, nbytes, nullptr, stream);
}

CUresult CUDAAPI cuMemAllocFromPoolAsync(CUdeviceptr *address, std::size_t nbytes, CUmemoryPool handle, CUstream stream) {
    ENTER(cuMemAllocFromPoolAsync, HEALTHY);
    auto pool = state().pools.find(handle);
    REQUIRE(pool, CUDA_ERROR_INVALID_VALUE);
    return allocate_async(call, address, nbytes, pool, stream);
}

CUresult CUDAAPI cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
    ENTER(cuMemFreeAsync, HEALTHY);
    return free_async(call, address, stream);
}

CUresult CUDAAPI cuMemGetAllocationGranularity(std::size_t *nbytes, const CUmemAllocationProp *wish,
                                                CUmemAllocationGranularity_flags) {
    ENTER(cuMemGetAllocationGranularity, INITIALIZED);
    REQUIRE(nbytes && wish, CUDA_ERROR_INVALID_VALUE);
    *nbytes = GRANULARITY;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemAddressReserve(CUdeviceptr *address, std::size_t nbytes, std::size_t alignment, CUdeviceptr,
                                     unsigned long long flags) {
    ENTER_UNSAFE(cuMemAddressReserve, HEALTHY);
    REQUIRE(!flags, CUDA_ERROR_INVALID_VALUE);
    return reserve_addresses(address, nbytes, alignment);
}

CUresult CUDAAPI cuMemAddressFree(CUdeviceptr address, std::size_t nbytes) {
    ENTER_UNSAFE(cuMemAddressFree, INITIALIZED);
    return free_addresses(address, nbytes);
}

CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle *handle, std::size_t nbytes, const CUmemAllocationProp *wish,
                             unsigned long long flags) {
    ENTER_UNSAFE(cuMemCreate, HEALTHY);
    REQUIRE(!flags, CUDA_ERROR_INVALID_VALUE);
    return create_physical(handle, nbytes, wish);
}

CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle handle) {
    ENTER_UNSAFE(cuMemRelease, INITIALIZED);
    auto found = state().physicals.find(handle);
    REQUIRE(found != state().physicals.end(), CUDA_ERROR_INVALID_VALUE);
    auto physical = found->second;
    state().physicals.erase(found);
    physical->is_released = true;
    forget_physical(physical);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemMap(CUdeviceptr address, std::size_t nbytes, std::size_t offset, CUmemGenericAllocationHandle handle,
                          unsigned long long flags) {
    ENTER_UNSAFE(cuMemMap, HEALTHY);
    REQUIRE(!flags, CUDA_ERROR_INVALID_VALUE);
    return map_physical(address, nbytes, offset, handle);
}

CUresult CUDAAPI cuMemUnmap(CUdeviceptr address, std::size_t nbytes) {
    ENTER_UNSAFE(cuMemUnmap, INITIALIZED);
    return for_mappings(address, nbytes, [](const shared_ptr<Range> &piece) { unmap(piece); });
}

CUresult CUDAAPI cuMemSetAccess(CUdeviceptr address, std::size_t nbytes, const CUmemAccessDesc *wishes, std::size_t n) {
    ENTER_UNSAFE(cuMemSetAccess, HEALTHY);
    return set_access(address, nbytes, wishes, n);
}

CUresult CUDAAPI cuMemHostAlloc(void **address, std::size_t nbytes, unsigned flags) {
    ENTER_UNSAFE(cuMemHostAlloc, CONTEXT);
    REQUIRE(flags <= 7, CUDA_ERROR_INVALID_VALUE);
    return allocate_host(call, address, nbytes, flags);
}

CUresult CUDAAPI cuMemAllocHost(void **address, std::size_t nbytes) {
    ENTER_UNSAFE(cuMemAllocHost, CONTEXT);
    return allocate_host(call, address, nbytes, 0);
}

CUresult CUDAAPI cuMemFreeHost(void *address) {
    ENTER_UNSAFE(cuMemFreeHost, CONTEXT);
    if (!address) return CUDA_SUCCESS;
    auto range = range_at(Address(address));
    REQUIRE(range && range->kind == Range::PINNED, CUDA_ERROR_INVALID_VALUE);
    wait_for_context(call.lock, range->context);
    release(range);
    return call.result();
}

CUresult CUDAAPI cuMemHostRegister(void *start, std::size_t nbytes, unsigned flags) {
    ENTER_UNSAFE(cuMemHostRegister, CONTEXT);
    return register_host(call, start, nbytes, flags);
}

CUresult CUDAAPI cuMemHostUnregister(void *start) {
    ENTER_UNSAFE(cuMemHostUnregister, CONTEXT);
    return unregister_host(call, start);
}

CUresult CUDAAPI cuMemHostGetDevicePointer(CUdeviceptr *address, void *host, unsigned flags) {
    ENTER(cuMemHostGetDevicePointer, CONTEXT);
    auto range = touched_range(Address(host), 1);
    REQUIRE(address && !flags && range && range->is_host(), CUDA_ERROR_INVALID_VALUE);
    *address = CUdeviceptr(host);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemHostGetFlags(unsigned *flags, void *host) {
    ENTER(cuMemHostGetFlags, CONTEXT);
    auto range = range_at(Address(host));
    REQUIRE(flags && range && range->kind == Range::PINNED, CUDA_ERROR_INVALID_VALUE);
    *flags = range->flags | CU_MEMHOSTALLOC_DEVICEMAP;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuPointerGetAttribute(void *data, CUpointer_attribute attribute, CUdeviceptr address) {
    ENTER(cuPointerGetAttribute, INITIALIZED);
    auto range = touched_range(address, 1);
    REQUIRE(data && range, CUDA_ERROR_INVALID_VALUE);
    return pointer_attribute(attribute, address, *range, data);
}

CUresult CUDAAPI cuPointerGetAttributes(unsigned n, CUpointer_attribute *attributes, void **data, CUdeviceptr address) {
    ENTER(cuPointerGetAttributes, INITIALIZED);
    REQUIRE(n && attributes && data, CUDA_ERROR_INVALID_VALUE);
    auto range = touched_range(address, 1);
    for (unsigned i = 0; i < n; ++i) {
        CUresult result = range ? pointer_attribute(attributes[i], address, *range, data[i]) : CUDA_ERROR_INVALID_VALUE;
        if (result == CUDA_ERROR_NOT_SUPPORTED) return result;
        if (result != CUDA_SUCCESS) unknown_pointer_attribute(attributes[i], data[i]);
    }
    return CUDA_SUCCESS;
}

// ------------------------------------------------------------------------------------------------- pools

CUresult CUDAAPI cuMemPoolCreate(CUmemoryPool *handle, const CUmemPoolProps *wish) {
    ENTER_UNSAFE(cuMemPoolCreate, INITIALIZED);
    REQUIRE(handle && wish && wish->allocType == CU_MEM_ALLOCATION_TYPE_PINNED, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(wish->location.type == CU_MEM_LOCATION_TYPE_DEVICE, CUDA_ERROR_NOT_SUPPORTED);
    REQUIRE(is_device(wish->location.id), CUDA_ERROR_INVALID_DEVICE);
    REQUIRE(wish->handleTypes == CU_MEM_HANDLE_TYPE_NONE, CUDA_ERROR_NOT_SUPPORTED);
    auto pool = make_pool(wish->location.id);
    pool->max_size = wish->maxSize;
    *handle = pool->handle = state().pools.add(pool);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemPoolDestroy(CUmemoryPool handle) {
    ENTER_UNSAFE(cuMemPoolDestroy, INITIALIZED);
    auto pool = state().pools.find(handle);
    REQUIRE(pool && pool != state().devices[pool->device].default_pool, CUDA_ERROR_INVALID_VALUE);
    Device &device = state().devices[pool->device];
    if (device.current_pool == pool) device.current_pool = device.default_pool;
    state().pools.erase(handle);
    trim_pool(*pool, 0);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemPoolSetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *value) {
    ENTER(cuMemPoolSetAttribute, INITIALIZED);
    auto pool = state().pools.find(handle);
    REQUIRE(pool && value, CUDA_ERROR_INVALID_VALUE);
    return set_pool_attribute(*pool, attribute, value);
}

CUresult CUDAAPI cuMemPoolGetAttribute(CUmemoryPool handle, CUmemPool_attribute attribute, void *value) {
    ENTER(cuMemPoolGetAttribute, INITIALIZED);
    auto pool = state().pools.find(handle);
    REQUIRE(pool && value, CUDA_ERROR_INVALID_VALUE);
    return pool_attribute(*pool, attribute, value);
}

CUresult CUDAAPI cuMemPoolTrimTo(CUmemoryPool handle, std::size_t keep) {
    ENTER_UNSAFE(cuMemPoolTrimTo, INITIALIZED);
    auto pool = state().pools.find(handle);
    REQUIRE(pool, CUDA_ERROR_INVALID_VALUE);
    trim_pool(*pool, keep);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemPoolSetAccess(CUmemoryPool handle, const CUmemAccessDesc *wishes, std::size_t n) {
    ENTER(cuMemPoolSetAccess, INITIALIZED);
    auto pool = state().pools.find(handle);
    REQUIRE(pool && wishes && n, CUDA_ERROR_INVALID_VALUE);
    for (std::size_t i = 0; i < n; ++i) TRY(set_pool_access(*pool, wishes[i]));
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool handle, CUmemLocation *location) {
    ENTER(cuMemPoolGetAccess, INITIALIZED);
    auto pool = state().pools.find(handle);
    REQUIRE(flags && pool && location, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(location->type == CU_MEM_LOCATION_TYPE_DEVICE && is_device(location->id), CUDA_ERROR_INVALID_VALUE);
    auto found = pool->access.find(location->id);
    *flags = found == pool->access.end() ? CU_MEM_ACCESS_FLAGS_PROT_NONE : found->second;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetDefaultMemPool(CUmemoryPool *pool, CUdevice device) {
    ENTER(cuDeviceGetDefaultMemPool, INITIALIZED);
    REQUIRE(pool, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(is_device(device), CUDA_ERROR_INVALID_DEVICE);
    *pool = state().devices[device].default_pool->handle;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice device) {
    ENTER(cuDeviceGetMemPool, INITIALIZED);
    REQUIRE(pool, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(is_device(device), CUDA_ERROR_INVALID_DEVICE);
    *pool = state().devices[device].current_pool->handle;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuDeviceSetMemPool(CUdevice device, CUmemoryPool handle) {
    ENTER(cuDeviceSetMemPool, INITIALIZED);
    auto pool = state().pools.find(handle);
    REQUIRE(is_device(device), CUDA_ERROR_INVALID_DEVICE);
    REQUIRE(pool && pool->device == device, CUDA_ERROR_INVALID_VALUE);
    state().devices[device].current_pool = pool;
    return CUDA_SUCCESS;
}

// ------------------------------------------------------------------------------------------------- copies
// The synchronous ones run in the default stream, which is waited for anyway.

CUresult CUDAAPI cuMemcpy(CUdeviceptr to, CUdeviceptr from, std::size_t n) {
    ENTER(cuMemcpy, CONTEXT);
    return copy_line(call, to, CU_MEMORYTYPE_UNIFIED, from, CU_MEMORYTYPE_UNIFIED, n, nullptr);
}

CUresult CUDAAPI cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, std::size_t n, CUstream stream) {
    ENTER(cuMemcpyAsync, CONTEXT);
    return copy_line(call, to, CU_MEMORYTYPE_UNIFIED, from, CU_MEMORYTYPE_UNIFIED, n, stream);
}

CUresult CUDAAPI cuMemcpyHtoD(CUdeviceptr to, const void *from, std::size_t n) {
    ENTER(cuMemcpyHtoD, CONTEXT);
    return copy_line(call, to, CU_MEMORYTYPE_DEVICE, Address(from), CU_MEMORYTYPE_HOST, n, nullptr, true);
}

CUresult CUDAAPI cuMemcpyHtoDAsync(CUdeviceptr to, const void *from, std::size_t n, CUstream stream) {
    ENTER(cuMemcpyHtoDAsync, CONTEXT);
    return copy_line(call, to, CU_MEMORYTYPE_DEVICE, Address(from), CU_MEMORYTYPE_HOST, n, stream);
}

CUresult CUDAAPI cuMemcpyDtoH(void *to, CUdeviceptr from, std::size_t n) {
    ENTER(cuMemcpyDtoH, CONTEXT);
    return copy_line(call, Address(to), CU_MEMORYTYPE_HOST, from, CU_MEMORYTYPE_DEVICE, n, nullptr);
}

CUresult CUDAAPI cuMemcpyDtoHAsync(void *to, CUdeviceptr from, std::size_t n, CUstream stream) {
    ENTER(cuMemcpyDtoHAsync, CONTEXT);
    return copy_line(call, Address(to), CU_MEMORYTYPE_HOST, from, CU_MEMORYTYPE_DEVICE, n, stream);
}

CUresult CUDAAPI cuMemcpyDtoD(CUdeviceptr to, CUdeviceptr from, std::size_t n) {
    ENTER(cuMemcpyDtoD, CONTEXT);
    return copy_line(call, to, CU_MEMORYTYPE_DEVICE, from, CU_MEMORYTYPE_DEVICE, n, nullptr);
}

CUresult CUDAAPI cuMemcpyDtoDAsync(CUdeviceptr to, CUdeviceptr from, std::size_t n, CUstream stream) {
    ENTER(cuMemcpyDtoDAsync, CONTEXT);
    return copy_line(call, to, CU_MEMORYTYPE_DEVICE, from, CU_MEMORYTYPE_DEVICE, n, stream);
}

CUresult CUDAAPI cuMemcpyPeer(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context, std::size_t n) {
    ENTER(cuMemcpyPeer, CONTEXT);
    return copy_peer(call, to, to_context, from, from_context, n, nullptr);
}

CUresult CUDAAPI cuMemcpyPeerAsync(CUdeviceptr to, CUcontext to_context, CUdeviceptr from, CUcontext from_context,
                                   std::size_t n, CUstream stream) {
    ENTER(cuMemcpyPeerAsync, CONTEXT);
    return copy_peer(call, to, to_context, from, from_context, n, stream);
}

CUresult CUDAAPI cuMemcpy2D(const CUDA_MEMCPY2D *c) {
    ENTER(cuMemcpy2D, CONTEXT);
    return copy_2d(call, c, nullptr);
}

CUresult CUDAAPI cuMemcpy2DUnaligned(const CUDA_MEMCPY2D *c) {
    ENTER(cuMemcpy2DUnaligned, CONTEXT);
    return copy_2d(call, c, nullptr);
}

CUresult CUDAAPI cuMemcpy2DAsync(const CUDA_MEMCPY2D *c, CUstream stream) {
    ENTER(cuMemcpy2DAsync, CONTEXT);
    return copy_2d(call, c, stream);
}

CUresult CUDAAPI cuMemcpy3D(const CUDA_MEMCPY3D *c) {
    ENTER(cuMemcpy3D, CONTEXT);
    return copy_3d(call, c, nullptr);
}

CUresult CUDAAPI cuMemcpy3DAsync(const CUDA_MEMCPY3D *c, CUstream stream) {
    ENTER(cuMemcpy3DAsync, CONTEXT);
    return copy_3d(call, c, stream);
}

CUresult CUDAAPI cuMemcpy3DPeer(const CUDA_MEMCPY3D_PEER *c) {
    ENTER(cuMemcpy3DPeer, CONTEXT);
    return copy_3d_peer(call, c, nullptr);
}

CUresult CUDAAPI cuMemcpy3DPeerAsync(const CUDA_MEMCPY3D_PEER *c, CUstream stream) {
    ENTER(cuMemcpy3DPeerAsync, CONTEXT);
    return copy_3d_peer(call, c, stream);
}

// ------------------------------------------------------------------------------------------------- fills

CUresult CUDAAPI cuMemsetD8(CUdeviceptr to, unsigned char value, std::size_t n) {
    ENTER(cuMemsetD8, CONTEXT);
    return fill(call, to, 0, value, n, 1, nullptr);
}

CUresult CUDAAPI cuMemsetD16(CUdeviceptr to, unsigned short value, std::size_t n) {
    ENTER(cuMemsetD16, CONTEXT);
    return fill(call, to, 0, value, n, 1, nullptr);
}

CUresult CUDAAPI cuMemsetD32(CUdeviceptr to, unsigned value, std::size_t n) {
    ENTER(cuMemsetD32, CONTEXT);
    return fill(call, to, 0, value, n, 1, nullptr);
}

CUresult CUDAAPI cuMemsetD8Async(CUdeviceptr to, unsigned char value, std::size_t n, CUstream stream) {
    ENTER(cuMemsetD8Async, CONTEXT);
    return fill(call, to, 0, value, n, 1, stream);
}

CUresult CUDAAPI cuMemsetD16Async(CUdeviceptr to, unsigned short value, std::size_t n, CUstream stream) {
    ENTER(cuMemsetD16Async, CONTEXT);
    return fill(call, to, 0, value, n, 1, stream);
}

CUresult CUDAAPI cuMemsetD32Async(CUdeviceptr to, unsigned value, std::size_t n, CUstream stream) {
    ENTER(cuMemsetD32Async, CONTEXT);
    return fill(call, to, 0, value, n, 1, stream);
}

CUresult CUDAAPI cuMemsetD2D8Async(CUdeviceptr to, std::size_t pitch, unsigned char value, std::size_t width,
                                   std::size_t rows, CUstream stream) {
    ENTER(cuMemsetD2D8Async, CONTEXT);
    return fill(call, to, pitch, value, width, rows, stream);
}

CUresult CUDAAPI cuMemsetD2D16Async(CUdeviceptr to, std::size_t pitch, unsigned short value, std::size_t width,
                                    std::size_t rows, CUstream stream) {
    ENTER(cuMemsetD2D16Async, CONTEXT);
    return fill(call, to, pitch, value, width, rows, stream);
}

CUresult CUDAAPI cuMemsetD2D32Async(CUdeviceptr to, std::size_t pitch, unsigned value, std::size_t width, std::size_t rows,
                                    CUstream stream) {
    ENTER(cuMemsetD2D32Async, CONTEXT);
    return fill(call, to, pitch, value, width, rows, stream);
}

// ------------------------------------------------------------------------------------------------- kernels
// A library and a kernel are a module and a function under other names.

CUresult CUDAAPI cuModuleLoadData(CUmodule *module, const void *image) {
    ENTER_UNSAFE(cuModuleLoadData, CONTEXT);
    return load_module(call, module, image);
}

CUresult CUDAAPI cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned, CUjit_option *, void **) {
    ENTER_UNSAFE(cuModuleLoadDataEx, CONTEXT);
    return load_module(call, module, image);
}

CUresult CUDAAPI cuModuleUnload(CUmodule module) {
    ENTER_UNSAFE(cuModuleUnload, CONTEXT);
    REQUIRE(state().modules.find(module), CUDA_ERROR_INVALID_HANDLE);
    wait_for_context(call.lock, call.context);
    state().modules.erase(module);
    return call.result();
}

CUresult CUDAAPI cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    ENTER(cuModuleGetFunction, CONTEXT);
    REQUIRE(state().modules.find(module), CUDA_ERROR_INVALID_HANDLE);
    return find_function(function, name);
}

CUresult CUDAAPI cuLibraryLoadData(CUlibrary *library, const void *image, CUjit_option *, void **, unsigned,
                                   CUlibraryOption *, void **, unsigned) {
    ENTER_UNSAFE(cuLibraryLoadData, CONTEXT);
    return load_module(call, reinterpret_cast<CUmodule *>(library), image);
}

CUresult CUDAAPI cuLibraryUnload(CUlibrary library) {
    ENTER(cuLibraryUnload, HEALTHY);
    REQUIRE(state().modules.erase(reinterpret_cast<CUmodule>(library)), CUDA_ERROR_INVALID_HANDLE);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuLibraryGetKernel(CUkernel *kernel, CUlibrary library, const char *name) {
    ENTER(cuLibraryGetKernel, HEALTHY);
    REQUIRE(state().modules.find(reinterpret_cast<CUmodule>(library)), CUDA_ERROR_INVALID_HANDLE);
    return find_function(reinterpret_cast<CUfunction *>(kernel), name, true);
}

CUresult CUDAAPI cuKernelGetFunction(CUfunction *function, CUkernel kernel) {
    ENTER(cuKernelGetFunction, CONTEXT);
    REQUIRE(function, CUDA_ERROR_INVALID_VALUE);
    auto found = state().functions.find(reinterpret_cast<CUfunction>(kernel));
    REQUIRE(found && found->is_kernel, CUDA_ERROR_INVALID_HANDLE);
    *function = function_in(call.context, *found);
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuFuncGetAttribute(int *value, CUfunction_attribute attribute, CUfunction function) {
    ENTER(cuFuncGetAttribute, INITIALIZED);
    REQUIRE(value, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(state().functions.find(function), CUDA_ERROR_INVALID_HANDLE);
    *value = attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK            ? 1024
             : attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES ? 48 << 10
                                                                            : 0;
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction handle, int threads, std::size_t shared) {
    ENTER(cuOccupancyMaxActiveBlocksPerMultiprocessor, CONTEXT);
    REQUIRE(blocks && threads > 0 && state().functions.find(handle), CUDA_ERROR_INVALID_VALUE);
    constexpr int RESERVED = 1024;  // bytes of shared memory, for each block
    int by_threads = device_attribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR) / threads;
    int by_memory = device_attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR) / int(shared + RESERVED);
    *blocks = std::min({by_threads, by_memory, device_attribute(CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR)});
    return CUDA_SUCCESS;
}

CUresult CUDAAPI cuFuncGetParamInfo(CUfunction function, std::size_t index, std::size_t *offset, std::size_t *size) {
    ENTER(cuFuncGetParamInfo, INITIALIZED);
    return parameter_info(function, false, index, offset, size);
}

CUresult CUDAAPI cuKernelGetParamInfo(CUkernel kernel, std::size_t index, std::size_t *offset, std::size_t *size) {
    ENTER(cuKernelGetParamInfo, INITIALIZED);
    return parameter_info(reinterpret_cast<CUfunction>(kernel), true, index, offset, size);
}

CUresult CUDAAPI cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                                unsigned block_y, unsigned block_z, unsigned, CUstream stream, void **parameters, void **extra) {
    tell_launch(stream);
    ENTER(cuLaunchKernel, CONTEXT);
    return launch(call, function, {grid_x, grid_y, grid_z, block_x, block_y, block_z}, stream, parameters, extra);
}

CUresult CUDAAPI cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction function, void **parameters, void **extra) {
    if (c) tell_launch(c->hStream);
    ENTER(cuLaunchKernelEx, CONTEXT);
    REQUIRE(c, CUDA_ERROR_INVALID_VALUE);
    std::vector<unsigned> dimensions = {c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX, c->blockDimY, c->blockDimZ};
    return launch(call, function, dimensions, c->hStream, parameters, extra);
}

}  // extern "C"

// ================================================================================================= finding functions

namespace {

constexpr int STUBS = 1024;
std::vector<string> &stub_names() {
    static auto &names = *new std::vector<string>;
    return names;
}

CUresult refuse(int i) {
    Lock lock(state().mutex);
    const string &name = stub_names()[i];
    ++state().calls[name];
    if (state().trace) fprintf(stderr, "fakecuda: %s is not supported\n", name.c_str());
    return CUDA_ERROR_NOT_SUPPORTED;
}

// A stub takes whatever arguments it is given: callers clean up after themselves on x86-64 and aarch64.
template <int I>
CUresult CUDAAPI stub() {
    return refuse(I);
}

template <int... I>
std::vector<void *> make_stubs(std::integer_sequence<int, I...>) {
    return {reinterpret_cast<void *>(&stub<I>)...};
}

void *stub_named(const string &name) {
    static auto &stubs = *new std::vector<void *>(make_stubs(std::make_integer_sequence<int, STUBS>()));
    auto &names = stub_names();
    auto found = std::find(names.begin(), names.end(), name);
    std::size_t i = std::size_t(found - names.begin());
    if (i == STUBS) return nullptr;
    if (found == names.end()) names.push_back(name);
    return stubs[i];
}

int lookup(const std::map<string, int> &versions, const string &name) {
    auto found = versions.find(name);
    return found == versions.end() ? 0 : found->second;
}

// The first version with the parameters that we take, where older ones differ.
int oldest_version(const string &name) { return lookup({{"cuStreamGetCaptureInfo", 12030}}, name); }

// The version of NAME_v2, where we have NAME too.
int second_version(const string &name) {
    return lookup({{"cuGetProcAddress", 12000}, {"cuStreamGetCtx", 12050}, {"cuCtxGetDevice", 13000}, {"cuCtxSynchronize", 13000}},
                  name);
}

void *own_symbol(const string &name, int version) {
    static void *self = [] {
        Dl_info info;
        dladdr(reinterpret_cast<void *>(&cuInit), &info);
        return dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    }();
    if (version < second_version(name)) return dlsym(self, name.c_str());
    for (const char *suffix : {"_v4", "_v3", "_v2", ""})
        if (void *found = dlsym(self, (name + suffix).c_str())) return found;
    return nullptr;
}

void *find_symbol(const string &name, int version) {
    void *found = version >= oldest_version(name) ? own_symbol(name, version) : nullptr;
    if (found) return found;
    if (state().trace > 1) fprintf(stderr, "fakecuda: %s (%d) is asked for and not there\n", name.c_str(), version);
    return stub_named(name);
}

struct Loaded {
    Loaded() { read_settings(); }
} loaded;

void drop_everything(Lock &lock) {
    State &s = state();
    s.error = s.error == CUDA_SUCCESS ? CUDA_ERROR_UNKNOWN : s.error;  // lets waits for a value end
    for (auto &[handle, context] : std::map<CUcontext, shared_ptr<Context>>(s.contexts.live)) end_context(lock, context);
    for (auto &[start, range] : std::map<Address, shared_ptr<Range>>(s.ranges)) release(range);
    for (auto &[start, nbytes] : s.reservations) munmap(reinterpret_cast<void *>(start), nbytes);
    for (auto &[handle, physical] : s.physicals) {
        physical->is_released = true;
        forget_physical(physical);
    }
    s.reservations.clear();
    s.physicals.clear();
    s.contexts.clear();
    s.pools.clear();
    s.captures.clear();
    s.graphs.clear();
    s.execs.clear();
    s.objects.clear();
    s.functions.clear();
}

void put_calls(std::ostringstream &out) {
    const char *separator = "";
    for (auto &[name, n] : state().calls) {
        out << separator << '"' << name << "\": " << n;
        separator = ", ";
    }
}

std::map<string, long> live_objects() {
    State &s = state();
    std::map<string, long> n = {{"streams", s.streams.live.size()}, {"events", s.events.live.size()},
                                {"contexts", live_contexts()}, {"modules", s.modules.live.size()},
                                {"graphs", s.graphs.live.size() + s.execs.live.size()}, {"objects", s.objects.live.size()},
                                {"pools", s.pools.live.size() - s.devices.size()}, {"dropped", s.dropped},
                                {"reservations", s.reservations.size()}, {"physicals", s.physicals.size()}, {"mappings", 0},
                                {"allocations", 0}, {"host_allocations", 0}, {"registrations", 0}};
    static const char *const names[] = {"allocations",   "allocations", "host_allocations",
                                        "registrations", "allocations", "mappings"};
    for (auto &[start, range] : s.ranges) ++n[names[range->kind]];
    return n;
}

}  // namespace

// ------------------------------------------------------------------------------------------------- NVRTC
// What it compiles is a text that says so; a source with "#error" is none. Kernels are found by their names.

extern "C" {

struct NvrtcProgram {
    string source, log;
};

int nvrtcVersion(int *major, int *minor) { return *major = 13, *minor = 99, 0; }
const char *nvrtcGetErrorString(int) { return "NVRTC_ERROR_COMPILATION"; }

int nvrtcGetNumSupportedArchs(int *n) { return *n = 2, 0; }
int nvrtcGetSupportedArchs(int *capabilities) { return capabilities[0] = 75, capabilities[1] = 90, 0; }

int nvrtcCreateProgram(NvrtcProgram **program, const char *source, const char *, int, const char **, const char **) {
    *program = new NvrtcProgram{source, ""};
    return 0;
}

int nvrtcCompileProgram(NvrtcProgram *program, int, const char **) {
    const auto at = program->source.find("#error");
    if (at == string::npos) return 0;
    program->log = "stf.cu: error: " + program->source.substr(at, program->source.find('\n', at) - at);
    return 6;
}

int nvrtcGetProgramLogSize(NvrtcProgram *program, std::size_t *size) { return *size = program->log.size() + 1, 0; }
int nvrtcGetProgramLog(NvrtcProgram *program, char *log) { return std::strcpy(log, program->log.c_str()), 0; }
int nvrtcGetCUBINSize(NvrtcProgram *program, std::size_t *size) { return *size = program->source.size() + 1, 0; }
int nvrtcGetCUBIN(NvrtcProgram *program, char *cubin) { return std::strcpy(cubin, program->source.c_str()), 0; }
int nvrtcGetPTXSize(NvrtcProgram *program, std::size_t *size) { return nvrtcGetCUBINSize(program, size); }
int nvrtcGetPTX(NvrtcProgram *program, char *ptx) { return nvrtcGetCUBIN(program, ptx); }
int nvrtcDestroyProgram(NvrtcProgram **program) { return delete *program, *program = nullptr, 0; }

}  // extern "C"

extern "C" {

CUresult CUDAAPI cuGetProcAddress(const char *name, void **found, int version, cuuint64_t,
                                  CUdriverProcAddressQueryResult *status) {
    ENTER(cuGetProcAddress, NOTHING);
    REQUIRE(name && found, CUDA_ERROR_INVALID_VALUE);
    *found = find_symbol(base_name(name), version);
    if (status) *status = *found ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return *found ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

#undef cuGetProcAddress
CUresult CUDAAPI cuGetProcAddress(const char *name, void **found, int version, cuuint64_t flags) {
    return cuGetProcAddress_v2(name, found, version, flags, nullptr);
}

// ================================================================================================= our own functions

// What is alive and how often what was called, as JSON; valid until the thread asks again.
const char *fakecuda_counts() {
    thread_local string text;
    Lock lock(state().mutex);
    std::ostringstream out;
    out << '{';
    for (auto &[name, n] : live_objects()) out << '"' << name << "\": " << n << ", ";
    out << "\"error\": " << int(state().error) << ", \"description\": \"" << state().description << "\", ";
    out << "\"calls\": {";
    put_calls(out);
    out << "}}";
    text = out.str();
    return text.c_str();
}

// Counts calls from zero again, and fails them by a new plan (null: none).
void fakecuda_reset_calls(const char *plan) {
    Lock lock(state().mutex);
    state().calls.clear();
    plan_failures(plan);
}

// As in a new process: nothing is alive, nothing has failed, the environment is read again. Old handles are invalid.
void fakecuda_reset() {
    Lock lock(state().mutex);
    drop_everything(lock);
    state().error = CUDA_SUCCESS;
    state().description = "";
    state().is_initialized = false;
    state().dropped = 0;
    state().calls.clear();
    read_settings();
}

// Tells a function of the stream of each launch from now on.
void fakecuda_watch_launches(void (*watcher)(CUstream)) { launch_watcher = watcher; }

// Lets modules find a kernel of the caller's. Pointers ('p' in the signature) are checked to lie in live memory.
int fakecuda_add_kernel(const char *name, const char *signature, fakecuda_kernel code) {
    Lock lock(state().mutex);
    if (strspn(signature, "pqdif1234") != strlen(signature)) return CUDA_ERROR_INVALID_VALUE;
    known_kernels()[name] = {name, signature, code, 0, false};
    return CUDA_SUCCESS;
}

}  // extern "C"
