// Arithmetic of scalars by a program that comes with the launch (scalars.py writes it): one thread, one kernel for all.
//
// Registers hold 64 bits: a double, an integer, or 0 and 1 for truth values. What is narrower than that is computed wide
// and rounded: for +, -, *, / and square roots of up to 24 bits that gives what narrow arithmetic gives, since 53 bits
// are more than twice as many and two (S. A. Figueroa, "When is double rounding innocuous?", SIGNUM Newsletter 30, 1995).
//
// NVRTC compiles it when it is used for the first time; tests/fakecuda compiles it for the host.

typedef unsigned long long Word;
typedef long long Signed;

#define STF_ARRAYS 8
#define STF_WORDS 56
#define STF_REGISTERS 32

struct Program {
    Word at[STF_ARRAYS];   // addresses
    Word code[STF_WORDS];  // of each instruction its number, target, one, other, type, a byte each; perhaps a number
};

#ifndef __CUDACC__
#define __device__
#define __forceinline__ inline
#endif

union Bits { Word word; double number; };
static __device__ __forceinline__ double as_double(Word word) { Bits bits; bits.word = word; return bits.number; }
static __device__ __forceinline__ Word as_word(double number) { Bits bits; bits.number = number; return bits.word; }

static __device__ __forceinline__ double power_of_two(int n) { return as_double((Word)(1023 + n) << 52); }

// The bits of a number in a format of `mantissa` and `exponent` bits, rounded to nearest, ties to even.
static __device__ __forceinline__ unsigned narrowed(double x, int mantissa, int exponent) {
    const Word bits = as_word(x);
    const unsigned sign = (unsigned)(bits >> 63) << (mantissa + exponent);
    const unsigned infinity = ((1u << exponent) - 1) << mantissa;
    const int least = 2 - (1 << (exponent - 1));
    int n = (int)(bits >> 52 & 0x7ff) - 1023;
    if (x != x) return infinity | 1u << (mantissa - 1) | sign;
    if (n > 1 - least) return infinity | sign;
    if (n < least) n = least;
    const unsigned full = (unsigned)rint(fabs(x) * power_of_two(mantissa - n));
    const unsigned found = full < 1u << mantissa ? full : ((unsigned)(n - least + 1) << mantissa) + full - (1u << mantissa);
    return (found < infinity ? found : infinity) | sign;
}

// The number with such bits.
static __device__ __forceinline__ double widened(unsigned code, int mantissa, int exponent) {
    const int n = (int)(code >> mantissa & ((1u << exponent) - 1)), least = 2 - (1 << (exponent - 1));
    const unsigned fraction = code & ((1u << mantissa) - 1);
    const bool is_negative = code >> (mantissa + exponent) & 1;
    double size;
    if (n == (1 << exponent) - 1)
        size = fraction ? as_double(0x7ff8ull << 48) : as_double(0x7ffull << 52);
    else if (n == 0)
        size = fraction * power_of_two(least - mantissa);
    else
        size = (fraction + (1u << mantissa)) * power_of_two(n - 1 + least - mantissa);
    return is_negative ? -size : size;
}

enum Type { BOOL, INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64, FLOAT16, BFLOAT16, FLOAT32, FLOAT64 };

static __device__ __forceinline__ Word loaded(Word at, int type) {
    switch (type) {
        case BOOL: return *(const unsigned char *)at != 0;
        case INT8: return (Word)(Signed) * (const signed char *)at;
        case INT16: return (Word)(Signed) * (const short *)at;
        case INT32: return (Word)(Signed) * (const int *)at;
        case UINT8: return *(const unsigned char *)at;
        case UINT16: return *(const unsigned short *)at;
        case UINT32: return *(const unsigned *)at;
        case FLOAT16: return as_word(widened(*(const unsigned short *)at, 10, 5));
        case BFLOAT16: return as_word(widened(*(const unsigned short *)at, 7, 8));
        case FLOAT32: return as_word((double)*(const float *)at);
        default: return *(const Word *)at;
    }
}

static __device__ __forceinline__ void stored(Word at, Word x, int type) {
    switch (type) {
        case BOOL: *(unsigned char *)at = x != 0; break;
        case INT8:
        case UINT8: *(unsigned char *)at = (unsigned char)x; break;
        case INT16:
        case UINT16: *(unsigned short *)at = (unsigned short)x; break;
        case INT32:
        case UINT32: *(unsigned *)at = (unsigned)x; break;
        case FLOAT16: *(unsigned short *)at = (unsigned short)narrowed(as_double(x), 10, 5); break;
        case BFLOAT16:  // by way of 32 bits, as ml_dtypes
            *(unsigned short *)at = (unsigned short)narrowed((float)as_double(x), 7, 8);
            break;
        case FLOAT32: *(float *)at = (float)as_double(x); break;
        default: *(Word *)at = x;
    }
}

// Quotients towards minus infinity, and what is left; 0 where the divisor is 0, as in NumPy.
static __device__ __forceinline__ Signed quotient(Signed a, Signed b) {
    if (b == 0) return 0;
    if (b == -1) return (Signed)(0 - (Word)a);
    const Signed whole = a / b;
    return whole - (a % b != 0 && (a < 0) != (b < 0));
}

static __device__ __forceinline__ Signed remainder_of(Signed a, Signed b) {
    if (b == 0 || b == -1) return 0;
    const Signed left = a % b;
    return left != 0 && (a < 0) != (b < 0) ? left + b : left;
}

// The same of floats, as NumPy has them: in 32 bits, or in 64.
static __device__ __forceinline__ double of_width(double x, int type) { return type == FLOAT64 ? x : (double)(float)x; }

static __device__ __forceinline__ double with_sign_of(double y) { return as_double(as_word(y) & 1ull << 63); }

static __device__ __forceinline__ double float_divided(double x, double y, int type, bool wants_remainder) {
    const double left = fmod(x, y);
    if (y == 0) return wants_remainder ? left : x / y;
    const bool is_beyond = left != 0 && (y < 0) != (left < 0);
    if (wants_remainder) return left == 0 ? with_sign_of(y) : is_beyond ? of_width(left + y, type) : left;
    double whole = of_width(of_width(x - left, type) / y, type);
    if (is_beyond) whole = of_width(whole - 1, type);
    if (whole == 0) return with_sign_of(x / y);
    const double below = floor(whole);
    return whole - below > 0.5 ? of_width(below + 1, type) : below;
}

enum Operation {
    END, LOAD, CONSTANT, STORE, NARROW, TO_FLOAT, UNSIGNED_TO_FLOAT, TO_INTEGER, TO_UNSIGNED, IS_NOT_ZERO,
    FLOAT_ADD, FLOAT_SUBTRACT, FLOAT_MULTIPLY, FLOAT_DIVIDE, FLOAT_NEGATIVE, FLOAT_ABSOLUTE, FLOAT_SQRT, FLOAT_MAXIMUM,
    FLOAT_MINIMUM, FLOAT_FLOOR_DIVIDE, FLOAT_REMAINDER, FLOAT_LESS, FLOAT_LESS_EQUAL, FLOAT_EQUAL, FLOAT_NOT_EQUAL,
    ADD, SUBTRACT, MULTIPLY, NEGATIVE, ABSOLUTE, FLOOR_DIVIDE, REMAINDER, UNSIGNED_FLOOR_DIVIDE, UNSIGNED_REMAINDER, LESS,
    LESS_EQUAL, UNSIGNED_LESS, UNSIGNED_LESS_EQUAL, EQUAL, NOT_EQUAL, MAXIMUM, MINIMUM, UNSIGNED_MAXIMUM, UNSIGNED_MINIMUM,
    AND, OR, XOR, NOT
};

static __device__ __forceinline__ void run(const Program &program) {
    Word registers[STF_REGISTERS];
    for (int next = 0; next < STF_WORDS;) {
        const Word instruction = program.code[next++];
        const int operation = instruction & 255, target = instruction >> 8 & 255, other_number = instruction >> 24 & 255;
        const int one_number = instruction >> 16 & 255, type = instruction >> 32 & 255;
        const Word a = registers[one_number % STF_REGISTERS], b = registers[other_number % STF_REGISTERS];
        const double x = as_double(a), y = as_double(b);
        const Signed i = (Signed)a, j = (Signed)b;
        Word found;
        switch (operation) {
            case LOAD: found = loaded(program.at[one_number % STF_ARRAYS], other_number); break;
            case CONSTANT: found = program.code[next++ % STF_WORDS]; break;
            case STORE: stored(program.at[target % STF_ARRAYS], a, other_number); continue;
            case NARROW: {  // as what a number of the type would be that it is stored in
                Word room;
                stored((Word)&room, a, other_number);
                found = loaded((Word)&room, other_number);
                break;
            }
            case TO_FLOAT: found = as_word(other_number == FLOAT64 ? (double)i : (double)(float)i); break;
            case UNSIGNED_TO_FLOAT: found = as_word(other_number == FLOAT64 ? (double)a : (double)(float)a); break;
            case TO_INTEGER: found = (Word)(Signed)x; break;
            case TO_UNSIGNED: found = x < 0 ? (Word)(Signed)x : (Word)x; break;
            case IS_NOT_ZERO: found = x != 0; break;
            case FLOAT_ADD: found = as_word(x + y); break;
            case FLOAT_SUBTRACT: found = as_word(x - y); break;
            case FLOAT_MULTIPLY: found = as_word(x * y); break;
            case FLOAT_DIVIDE: found = as_word(x / y); break;
            case FLOAT_NEGATIVE: found = a ^ 1ull << 63; break;
            case FLOAT_ABSOLUTE: found = a & ~(1ull << 63); break;
            case FLOAT_SQRT: found = as_word(sqrt(x)); break;
            case FLOAT_MAXIMUM: found = x >= y || x != x ? a : b; break;
            case FLOAT_MINIMUM: found = x <= y || x != x ? a : b; break;
            case FLOAT_FLOOR_DIVIDE:
            case FLOAT_REMAINDER: found = as_word(float_divided(x, y, type, operation == FLOAT_REMAINDER)); break;
            case FLOAT_LESS: found = x < y; break;
            case FLOAT_LESS_EQUAL: found = x <= y; break;
            case FLOAT_EQUAL: found = x == y; break;
            case FLOAT_NOT_EQUAL: found = x != y; break;
            case ADD: found = a + b; break;
            case SUBTRACT: found = a - b; break;
            case MULTIPLY: found = a * b; break;
            case NEGATIVE: found = 0 - a; break;
            case ABSOLUTE: found = i < 0 ? 0 - a : a; break;
            case FLOOR_DIVIDE: found = (Word)quotient(i, j); break;
            case REMAINDER: found = (Word)remainder_of(i, j); break;
            case UNSIGNED_FLOOR_DIVIDE: found = b ? a / b : 0; break;
            case UNSIGNED_REMAINDER: found = b ? a % b : 0; break;
            case LESS: found = i < j; break;
            case LESS_EQUAL: found = i <= j; break;
            case UNSIGNED_LESS: found = a < b; break;
            case UNSIGNED_LESS_EQUAL: found = a <= b; break;
            case EQUAL: found = a == b; break;
            case NOT_EQUAL: found = a != b; break;
            case MAXIMUM: found = i >= j ? a : b; break;
            case MINIMUM: found = i <= j ? a : b; break;
            case UNSIGNED_MAXIMUM: found = a >= b ? a : b; break;
            case UNSIGNED_MINIMUM: found = a <= b ? a : b; break;
            case AND: found = a & b; break;
            case OR: found = a | b; break;
            case XOR: found = a ^ b; break;
            case NOT: found = a ^ 1; break;
            default: return;
        }
        registers[target % STF_REGISTERS] = found;
    }
}

#ifdef __CUDACC__
extern "C" __global__ void stf_compute(const __grid_constant__ Program program) { run(program); }
#endif
