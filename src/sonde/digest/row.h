/* One digest, as `layout.py` lays it out, and the partial statistics that add up to one. */
#ifndef SONDE_ROW_H
#define SONDE_ROW_H

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
    F64, F32, F16, BF16, I64, I32, I16, I8, U8, BOOL, U64, U32, U16, C64, C128, DTYPE_COUNT
};

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

/* `unscale` is the power of two that the elements were divided by (0 nearly always). */
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
    double min = p->min + 0.0, max = p->max + 0.0, mean = p->mean, deviation = p->deviation;
    if (min == max) { /* a constant is exactly itself */
        mean = min;
        deviation = 0;
    }
    double values[7] = {min, max, mean, sqrt(deviation / n), max > -min ? max : -min, p->abs / n,
                        sqrt(deviation + n * mean * mean)};
    if (unscale)
        for (int i = 0; i < 7; i++)
            values[i] = ldexp(values[i], unscale);
    row->min = values[0];
    row->max = values[1];
    row->mean = values[2];
    row->std = values[3];
    row->absmax = values[4] + 0.0;
    row->absmean = min == max ? fabs(min == 0 ? 0 : values[0]) : values[5];
    row->norm = values[6];
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
