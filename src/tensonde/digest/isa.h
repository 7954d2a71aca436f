/* The instruction sets: each compiles chunk.h once, and the best that this machine has is chosen at run time. */
#ifndef TENSONDE_ISA_H
#define TENSONDE_ISA_H

#include <stdlib.h>
#include <string.h>

#include "row.h"

enum { CHUNK = 4096 };

typedef void (*Loader)(const char *source, ptrdiff_t step, size_t n, void *target);

typedef struct {
    const char *name;
    void (*chunk_floats)(const float *, size_t, Partial *);
    void (*chunk_doubles)(double *, size_t, Partial *);
    void (*subtract_f32)(float *, const float *, const float *, size_t);
    void (*count_bins)(const uint8_t *, size_t, uint16_t *);
    void (*bin_f32)(const float *, size_t, size_t, uint8_t *);
    Loader load[DTYPE_COUNT];
} Isa;

typedef struct { float re, im; } FloatPair;
typedef struct { double re, im; } DoublePair;

#define INLINE static inline __attribute__((always_inline))

INLINE float bits_to_float(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

INLINE float half_to_float(uint16_t half)
{
    uint32_t magnitude = (uint32_t)(half & 0x7fff) << 13, rebias = 112u << 23, bits;
    float small = bits_to_float(magnitude + (113u << 23)) - bits_to_float(113u << 23); /* exact for denormals */
    memcpy(&bits, &small, sizeof bits);
    uint32_t normal = magnitude + rebias + ((half & 0x7fff) >= 0x7c00 ? rebias : 0);
    bits = (half & 0x7fff) < 0x0400 ? bits : normal;
    return bits_to_float(bits | (uint32_t)(half & 0x8000) << 16);
}

/* |z| is infinite if either part is NaN-free infinite; a NaN part makes it NaN even beside an infinite one. */
INLINE double magnitude_float(FloatPair z)
{
    double re = z.re, im = z.im, square = re * re + im * im;
    return sqrt(square);
}

INLINE double magnitude_double(DoublePair z)
{
    return z.re != z.re || z.im != z.im ? (double)NAN : hypot(z.re, z.im);
}

/* Copies the finite values of x next to each other and returns how many there are. `out` has room for n + 16. */
INLINE size_t pack_finite(const float *x, size_t n, float *out)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        out[kept] = x[i];
        kept += x[i] - x[i] == 0;
    }
    return kept;
}

/* The bin of the magnitude histogram, NO_BIN for 0, NaN and Inf. */
INLINE uint8_t bin_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits &= 0x7fffffff;
    int32_t bin = ((int32_t)(bits >> 23) - 127 + 40) >> 1;
    bin = bin < 0 ? 0 : bin > BINS - 1 ? BINS - 1 : bin;
    return bits == 0 || bits >= 0x7f800000 ? NO_BIN : (uint8_t)bin;
}

INLINE uint8_t bin_of_double(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits &= 0x7fffffffffffffff;
    int32_t bin = ((int32_t)(bits >> 52) - 1023 + 40) >> 1;
    bin = bin < 0 ? 0 : bin > BINS - 1 ? BINS - 1 : bin;
    return bits == 0 || bits >= 0x7ff0000000000000 ? NO_BIN : (uint8_t)bin;
}

#if defined(__x86_64__)
#include "isa_x86.h"
#else
#include "isa_vector.h"
#endif

#endif
