/* One digest, as `layout.py` lays it out, and the partial statistics that add up to one. */
#ifndef TENSONDE_ROW_H
#define TENSONDE_ROW_H

#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>

enum { BINS = 32, SAMPLE = 512, NO_BIN = 255 };

typedef struct {
    int64_t step;
    int32_t site, call;
    uint8_t phase, dtype;
    uint16_t flags;
    uint32_t reserved;
    int64_t count, nan, pos_inf, neg_inf, zero, negative;
    double min, max, mean, std, absmax, absmean, norm;
    uint16_t exponents[BINS];
} Row;
_Static_assert(sizeof(Row) == 192, "layout.py and row.h disagree");

/* The order of DTYPES in layout.py. */
enum {
    F64, F32, F16, BF16, I64, I32, I16, I8, U8, BOOL, U64, U32, U16, C64, C128, F8_E4M3FN, F8_E5M2, F8_E4M3FNUZ,
    F8_E5M2FNUZ, F8_E8M0FNU, DTYPE_COUNT
};

/* What the 256 numbers of each kind of float8 are. */
static float FLOAT8[DTYPE_COUNT - F8_E4M3FN][256];

static void float8_fill(void)
{
    static const struct { int mantissa, bias; } kinds[] = {{3, 7}, {2, 15}, {3, 8}, {2, 16}, {0, 127}};
    for (int kind = 0; kind < DTYPE_COUNT - F8_E4M3FN; kind++)
        for (int bits = 0; bits < 256; bits++) {
            int dtype = F8_E4M3FN + kind, width = kinds[kind].mantissa, size = dtype == F8_E8M0FNU ? bits : bits & 0x7f;
            int exponent = size >> width, rest = size & ((1 << width) - 1), least = 1 - kinds[kind].bias;
            double value = exponent || dtype == F8_E8M0FNU
                ? ldexp((1 << width) + rest, exponent - kinds[kind].bias - width)
                : ldexp(rest, least - width);
            if (dtype == F8_E4M3FN ? size == 0x7f : dtype == F8_E8M0FNU ? bits == 0xff : dtype == F8_E5M2 ? size > 0x7c : bits == 0x80)
                value = NAN;
            else if (dtype == F8_E5M2 && size == 0x7c)
                value = INFINITY;
            FLOAT8[kind][bits] = (float)(dtype != F8_E8M0FNU && bits & 0x80 ? -value : value);
        }
}

/* Statistics of a part of a tensor. `deviation` is the sum of squared distances to `mean`: kept like this, neither the
 * variance nor the norm ever subtracts two large numbers. */
typedef struct {
    int64_t finite, nan, pos_inf, neg_inf, zero, negative;
    double min, max, mean, deviation, abs;
} Partial;

static const Partial NOTHING = {.min = INFINITY, .max = -INFINITY};

/* Adds `b` to `a`: the pairwise update of Chan, Golub and LeVeque. */
static inline void partial_add(Partial *a, const Partial *b)
{
    a->nan += b->nan;
    a->pos_inf += b->pos_inf;
    a->neg_inf += b->neg_inf;
    a->zero += b->zero;
    a->negative += b->negative;
    if (b->finite == 0)
        return;
    if (b->min < a->min)
        a->min = b->min;
    if (b->max > a->max)
        a->max = b->max;
    a->abs += b->abs;
    double total = (double)(a->finite + b->finite), apart = b->mean - a->mean;
    double share = (double)b->finite / total;
    a->deviation += b->deviation + apart * apart * ((double)a->finite * share);
    a->mean += apart * share;
    a->finite += b->finite;
}

/* `mean`, `deviation` and `abs` are of the elements divided by 2**unscale (0 nearly always); the rest is as it is. */
static inline void row_fill(Row *row, const Partial *p, int unscale)
{
    row->count = p->finite + p->nan + p->pos_inf + p->neg_inf;
    row->nan = p->nan;
    row->pos_inf = p->pos_inf;
    row->neg_inf = p->neg_inf;
    row->zero = p->zero;
    row->negative = p->negative;
    if (p->finite == 0) {
        row->min = row->max = row->mean = row->std = row->absmax = row->absmean = NAN;
        row->norm = 0;
        return;
    }
    double n = (double)p->finite;
    /* Adding 0 turns -0 into 0: which of the two a minimum returns depends on the instruction set. */
    row->min = p->min + 0.0;
    row->max = p->max + 0.0;
    row->absmax = row->max > -row->min ? row->max : 0.0 - row->min;
    if (row->min == row->max) { /* a constant is exactly itself */
        row->mean = row->min;
        row->std = 0;
        row->absmean = row->absmax;
        row->norm = row->absmax * sqrt(n);
        return;
    }
    row->mean = p->mean;
    row->std = sqrt(p->deviation / n);
    row->absmean = p->abs / n;
    row->norm = sqrt(p->deviation + n * p->mean * p->mean);
    if (unscale) {
        row->mean = ldexp(row->mean, unscale);
        row->std = ldexp(row->std, unscale);
        row->absmean = ldexp(row->absmean, unscale);
        double norm = row->norm;
        row->norm = ldexp(norm, unscale);
        if (isinf(row->norm) && !isinf(ldexp(norm * (1 - 0x1p-40), unscale)))
            row->norm = DBL_MAX; /* only rounding took it out of range */
    }
    /* What holds for exact numbers holds for these: rounding must not take a mean out of the range of the values. */
    row->mean = row->mean < row->min ? row->min : row->mean > row->max ? row->max : row->mean;
    row->std = row->std < row->absmax ? row->std : row->absmax;
    row->absmean = row->absmean < row->absmax ? row->absmean : row->absmax;
    row->norm = row->norm > row->absmax ? row->norm : row->absmax;
}

/* The digest of -x from that of x. */
static inline void row_negate(Row *row)
{
    int64_t finite = row->count - row->nan - row->pos_inf - row->neg_inf, inf = row->pos_inf;
    double min = row->min;
    row->pos_inf = row->neg_inf;
    row->neg_inf = inf;
    row->negative = finite - row->zero - row->negative;
    row->min = 0.0 - row->max;
    row->max = 0.0 - min;
    row->mean = 0.0 - row->mean;
}

#endif
