/* Two buffers of one dtype side by side: what is needed to say how far apart they are, in one pass.
 *
 * Sums are in double, LANES at a time, so that the compiler may use vectors without reordering anything. ULP are counted on
 * the bits as ordered integers. A buffer with a value that is not finite is only said to have one: numpy does the rest. */
#ifndef TENSONDE_PAIR_H
#define TENSONDE_PAIR_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define LANES 16
#if defined(__x86_64__) && defined(__GLIBC__)
#define CLONED __attribute__((target_clones("arch=skylake-avx512", "avx2", "default"), noinline))
#else
#define CLONED
#endif

typedef struct {
    double apart, norm_a, norm_b, product, largest;
    uint64_t ulp;
    int odd;
} Pair;

/* Bits of a floating number as an integer in the order of the numbers; -0 and 0 are the same. */
#define ORDERED(kind, bits, top) ((bits) < 0 ? (kind)((top) - (bits)) : (bits))

#define PAIR_OF(name, type, integer, unsigned_integer, top, exponent, WIDE)                                       \
    CLONED static void name(const type *restrict a, const type *restrict b, size_t n, Pair *out)                  \
    {                                                                                                             \
        double apart[LANES] = {0}, norm_a[LANES] = {0}, norm_b[LANES] = {0}, product[LANES] = {0};                \
        double largest[LANES] = {0};                                                                              \
        unsigned_integer ulp[LANES] = {0}, odd[LANES] = {0};                                                      \
        for (size_t i = 0; i + LANES <= n; i += LANES)                                                            \
            for (int j = 0; j < LANES; j++) {                                                                     \
                double x = WIDE(a[i + j]), y = WIDE(b[i + j]), d = x - y, m = d < 0 ? -d : d;                     \
                apart[j] += d * d;                                                                                \
                norm_a[j] += x * x;                                                                               \
                norm_b[j] += y * y;                                                                               \
                product[j] += x * y;                                                                              \
                largest[j] = m > largest[j] ? m : largest[j];                                                     \
                integer p, q;                                                                                     \
                memcpy(&p, a + i + j, sizeof p);                                                                  \
                memcpy(&q, b + i + j, sizeof q);                                                                  \
                odd[j] |= ((p & exponent) == exponent) | ((q & exponent) == exponent);                            \
                integer r = ORDERED(integer, p, top), s = ORDERED(integer, q, top);                               \
                unsigned_integer u = r > s ? (unsigned_integer)r - (unsigned_integer)s                            \
                                           : (unsigned_integer)s - (unsigned_integer)r;                           \
                ulp[j] = u > ulp[j] ? u : ulp[j];                                                                 \
            }                                                                                                     \
        for (size_t i = n - n % LANES; i < n; i++) {                                                              \
            double x = WIDE(a[i]), y = WIDE(b[i]), d = x - y, m = d < 0 ? -d : d;                                 \
            apart[0] += d * d;                                                                                    \
            norm_a[0] += x * x;                                                                                   \
            norm_b[0] += y * y;                                                                                   \
            product[0] += x * y;                                                                                  \
            largest[0] = m > largest[0] ? m : largest[0];                                                         \
            integer p, q;                                                                                         \
            memcpy(&p, a + i, sizeof p);                                                                          \
            memcpy(&q, b + i, sizeof q);                                                                          \
            odd[0] |= ((p & exponent) == exponent) | ((q & exponent) == exponent);                                \
            integer r = ORDERED(integer, p, top), s = ORDERED(integer, q, top);                                   \
            unsigned_integer u = r > s ? (unsigned_integer)r - (unsigned_integer)s                                \
                                       : (unsigned_integer)s - (unsigned_integer)r;                               \
            ulp[0] = u > ulp[0] ? u : ulp[0];                                                                     \
        }                                                                                                         \
        for (int j = 0; j < LANES; j++) {                                                                         \
            out->apart += apart[j];                                                                               \
            out->norm_a += norm_a[j];                                                                             \
            out->norm_b += norm_b[j];                                                                             \
            out->product += product[j];                                                                           \
            out->largest = largest[j] > out->largest ? largest[j] : out->largest;                                 \
            out->ulp = ulp[j] > out->ulp ? ulp[j] : out->ulp;                                                     \
            out->odd |= odd[j] != 0;                                                                              \
        }                                                                                                         \
        out->odd |= !isfinite(out->apart + out->norm_a + out->norm_b + out->product);                             \
    }

static inline double widen_bfloat(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}
#define AS_DOUBLE(x) ((double)(x))

PAIR_OF(pair_f32, float, int32_t, uint32_t, INT32_MIN, 0x7f800000, AS_DOUBLE)
PAIR_OF(pair_f64, double, int64_t, uint64_t, INT64_MIN, 0x7ff0000000000000, AS_DOUBLE)
PAIR_OF(pair_bf16, uint16_t, int16_t, uint16_t, INT16_MIN, 0x7f80, widen_bfloat)

static PyObject *pair_of(PyObject *module, PyObject *args)
{
    (void)module;
    const char *dtype;
    Py_buffer a, b;
    if (!PyArg_ParseTuple(args, "y*y*s:pair", &a, &b, &dtype))
        return NULL;
    Pair found = {0};
    size_t size = !strcmp(dtype, "float32") ? 4 : !strcmp(dtype, "float64") ? 8 : !strcmp(dtype, "bfloat16") ? 2 : 0;
    PyObject *result = NULL;
    if (!size || a.len != b.len || a.len % (Py_ssize_t)size || (uintptr_t)a.buf % size || (uintptr_t)b.buf % size) {
        PyErr_Format(PyExc_ValueError, "pair: two aligned buffers of one length of float32, float64 or bfloat16, not %s", dtype);
    } else {
        Py_BEGIN_ALLOW_THREADS
        size_t n = (size_t)a.len / size;
        if (size == 4)
            pair_f32(a.buf, b.buf, n, &found);
        else if (size == 8)
            pair_f64(a.buf, b.buf, n, &found);
        else
            pair_bf16(a.buf, b.buf, n, &found);
        Py_END_ALLOW_THREADS
        result = Py_BuildValue("(dddddKN)", found.apart, found.norm_a, found.norm_b, found.product, found.largest,
                               (unsigned long long)found.ulp, PyBool_FromLong(found.odd));
    }
    PyBuffer_Release(&a);
    PyBuffer_Release(&b);
    return result;
}

#endif
