/* A tensor's scalar products with eight vectors of signs, in logical order (adapters/signs.py says why and which).
 *
 * `signs` holds one byte per position of a piece, bit k for vector k. The signs of a piece are those of its number. Sums of a
 * piece are in double. What is not finite counts as 0. */
#include "block.h"
#include "pair.h"

enum { PROJECTIONS = 8, ABREAST = 4 };

static double sign_of[256][PROJECTIONS];

static void sketch_prepare(void)
{
    for (int byte = 0; byte < 256; byte++)
        for (int k = 0; k < PROJECTIONS; k++)
            sign_of[byte][k] = byte >> k & 1 ? 1 : -1;
}

#define PROJECT(name, type)                                                                                       \
    CLONED static void name(const type *restrict x, const uint8_t *restrict signs, size_t n, double *restrict out) \
    {                                                                                                             \
        double sums[ABREAST][PROJECTIONS] = {{0}};                                                                \
        size_t i = 0;                                                                                             \
        for (; i + ABREAST <= n; i += ABREAST)                                                                    \
            for (int j = 0; j < ABREAST; j++) {                                                                   \
                double value = (double)x[i + j];                                                                  \
                value = value - value == 0 ? value : 0;                                                           \
                const double *sign = sign_of[signs[i + j]];                                                       \
                for (int k = 0; k < PROJECTIONS; k++)                                                             \
                    sums[j][k] += value * sign[k];                                                                \
            }                                                                                                     \
        for (; i < n; i++) {                                                                                      \
            double value = (double)x[i];                                                                          \
            value = value - value == 0 ? value : 0;                                                               \
            for (int k = 0; k < PROJECTIONS; k++)                                                                 \
                sums[0][k] += value * sign_of[signs[i]][k];                                                       \
        }                                                                                                         \
        for (int k = 0; k < PROJECTIONS; k++)                                                                     \
            out[k] += sums[0][k] + sums[1][k] + sums[2][k] + sums[3][k];                                          \
    }

PROJECT(project_floats, float)
PROJECT(project_doubles, double)

static void sketch_view(const View *view, const uint8_t *signs, int64_t period, double *out)
{
    View flat = *view;
    if (flat.dims == 0) {
        flat.dims = 1;
        flat.size[0] = 1;
        flat.stride[0][0] = ITEM_SIZE[flat.dtype];
    }
    union {
        float floats[CHUNK];
        double doubles[CHUNK];
    } buffer;
    double piece[PROJECTIONS] = {0};
    for (int64_t at = 0; at < flat.count;) {
        int64_t place = at % period, left = period - place, n = flat.count - at;
        n = n < left ? n : left;
        n = n < CHUNK ? n : CHUNK;
        load_run(isa, &flat, 0, at, (size_t)n, &buffer);
        if (reduces_in_float(flat.dtype))
            project_floats(buffer.floats, signs + place, (size_t)n, piece);
        else
            project_doubles(buffer.doubles, signs + place, (size_t)n, piece);
        at += n;
        if (at % period == 0 || at == flat.count) {
            const double *sign = sign_of[signs[((at - 1) / period * 7 + 3) % period]];
            for (int k = 0; k < PROJECTIONS; k++) {
                out[k] += piece[k] * sign[k];
                piece[k] = 0;
            }
        }
    }
}

static PyObject *sketch_of(PyObject *module, PyObject *args)
{
    (void)module;
    PyObject *object;
    Py_buffer signs;
    if (!PyArg_ParseTuple(args, "Oy*:sketch", &object, &signs))
        return NULL;
    Borrowed borrowed;
    double out[PROJECTIONS] = {0};
    PyObject *result = NULL;
    if (!signs.len)
        PyErr_SetString(PyExc_ValueError, "sketch: there are no signs");
    else if (!borrow(object, &borrowed) || borrowed.view.dtype == C64 || borrowed.view.dtype == C128) { /* a complex one is shown as two real ones */
        release(&borrowed);
        result = Py_NewRef(Py_None);
    } else {
        Py_BEGIN_ALLOW_THREADS
        sketch_view(&borrowed.view, signs.buf, signs.len, out);
        Py_END_ALLOW_THREADS
        double sign = borrowed.negated ? -1 : 1;
        release(&borrowed);
        result = PyTuple_New(PROJECTIONS);
        for (int k = 0; result && k < PROJECTIONS; k++)
            PyTuple_SetItem(result, k, PyFloat_FromDouble(sign * out[k]));
    }
    PyBuffer_Release(&signs);
    return result;
}
