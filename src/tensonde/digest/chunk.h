/* The reduction of one chunk of at most CHUNK elements in memory order. Included once per instruction set by isa.h,
 * which defines T(name) and the vector operations. Every instruction set adds the same lanes in the same order, so all
 * give the same bits, but for the squares of floats, which the baseline of x86-64 has to round before it adds them.
 *
 * One pass, no second look at the data: squares are taken of the distance d to a guessed mean, a float close enough that
 * deviation = sum(d*d) - sum(d)**2/n loses nothing. The guess comes from every eighth row; a sample that is a fraction p
 * of the chunk cannot be farther than sqrt((1-p)/p) standard deviations from the chunk's own mean. If the sample spreads
 * wider than it lies from 0, the guess is 0, and the loop that need not subtract it runs.
 *
 * The float kernel sums 16 rows of 16 lanes in float before it widens to double: at most 17 roundings of 2**-24.
 * It assumes finite values of ordinary size, finds out at the end whether that held, and says so. */

typedef struct {
    VF lo, hi;
    VI less, none; /* lanes that count negatives and zeros */
    int64_t negative, zero;
    VD sum[ND], abs[ND], square[ND];
} T(Floats);

/* Up to 16 rows of 16 floats. `centred`: whether the guess is 0, a constant for the compiler. */
INLINE void T(rows_f32)(T(Floats) * acc, const float *x, int rows, VF guess, int centred)
{
    VF s[NF], a[NF], q[NF];
    for (int k = 0; k < NF; k++)
        s[k] = a[k] = q[k] = ZERO_F();
    int r = 0;
    for (; r + 4 <= rows; r += 4)
        for (int b = 0; b < NF; b++) { /* four registers at a time, for the counts */
            VF v[4], size[4];
            for (int j = 0; j < 4; j += 64 / (4 * WF)) /* the next chunk, which the guess would else wait for */
                __builtin_prefetch(x + 16 * r + (4 * b + j) * WF + CHUNK);
            for (int j = 0; j < 4; j++) {
                int k = j % NF;
                v[j] = LOAD_F(x + 16 * r + (4 * b + j) * WF);
                VF d = centred ? v[j] : SUB_F(v[j], guess);
                size[j] = ABS_F(v[j]);
                s[k] = ADD_F(s[k], d);
                a[k] = ADD_F(a[k], size[j]);
                q[k] = FMA_F(d, d, q[k]);
                acc->lo = MIN_F(acc->lo, v[j]);
                acc->hi = MAX_F(acc->hi, v[j]);
            }
            COUNT_FOUR(acc, v, size);
        }
    for (; r < rows; r++)
        for (int k = 0; k < NF; k++) {
            VF v = LOAD_F(x + 16 * r + k * WF), d = SUB_F(v, guess);
            s[k] = ADD_F(s[k], d);
            a[k] = ADD_F(a[k], ABS_F(v));
            q[k] = FMA_F(d, d, q[k]);
            acc->lo = MIN_F(acc->lo, v);
            acc->hi = MAX_F(acc->hi, v);
            acc->less = COUNT_LT0(acc->less, v);
            acc->none = COUNT_EQ0(acc->none, v);
        }
    WIDEN_ADD(acc->sum, s);
    WIDEN_ADD(acc->abs, a);
    WIDEN_ADD(acc->square, q);
}

INLINE void T(all_rows_f32)(T(Floats) * out, const float *x, size_t rows, VF guess, int centred)
{
    T(Floats) acc = *out; /* a copy that the compiler can keep in registers */
    size_t r = 0;
    for (; r + 16 <= rows; r += 16)
        T(rows_f32)(&acc, x + 16 * r, 16, guess, centred);
    if (r < rows)
        T(rows_f32)(&acc, x + 16 * r, (int)(rows - r), guess, centred);
    *out = acc;
}

INLINE double T(sum8)(const VD *v)
{
    double d[8];
    for (int k = 0; k < ND; k++)
        STORE_D(d + k * WD, v[k]);
    return ((d[0] + d[4]) + (d[2] + d[6])) + ((d[1] + d[5]) + (d[3] + d[7]));
}

/* The guess, or NaN if the sample is so small that its squares would be denormal, which the processor is slow at. */
INLINE float T(guess_f32)(const float *x, size_t rows)
{
    VF g[NF], h[NF];
    VD sum[ND], size[ND];
    for (int k = 0; k < ND; k++)
        sum[k] = size[k] = ZERO_D();
    for (int k = 0; k < NF; k++)
        g[k] = h[k] = ZERO_F();
    for (size_t r = 0; r < rows; r += 8)
        for (int k = 0; k < NF; k++) {
            VF v = LOAD_F(x + 16 * r + k * WF);
            g[k] = ADD_F(g[k], v);
            h[k] = ADD_F(h[k], ABS_F(v));
        }
    WIDEN_ADD(sum, g);
    WIDEN_ADD(size, h);
    double n = (double)(16 * ((rows + 7) / 8)), mean = T(sum8)(sum) / n, reach = T(sum8)(size) / n;
    if (reach != 0 && reach < 0x1p-50)
        return NAN;
    return 2 * fabs(mean) < reach ? 0 : (float)mean;
}

/* Returns 0 if the chunk has NaN, Inf, or values too large or small to square in float. */
static int T(chunk_f32)(const float *x, size_t n, Partial *out)
{
    size_t rows = n / 16, tail = n % 16;
    float guess = x[0], lo = x[0], hi = x[0];
    double sum = 0, abs = 0, square = 0;
    int64_t negative = 0, zero = 0;
    if (rows) {
        T(Floats) acc;
        acc.lo = acc.hi = LOAD_F(x);
        acc.less = acc.none = ZERO_I();
        acc.negative = acc.zero = 0;
        for (int k = 0; k < ND; k++)
            acc.sum[k] = acc.abs[k] = acc.square[k] = ZERO_D();
        guess = T(guess_f32)(x, rows);
        if (guess != guess)
            return 0;
        if (guess == 0)
            T(all_rows_f32)(&acc, x, rows, ZERO_F(), 1);
        else
            T(all_rows_f32)(&acc, x, rows, SET_F(guess), 0);
        sum = T(sum8)(acc.sum);
        abs = T(sum8)(acc.abs);
        square = T(sum8)(acc.square);
        float least[WF], most[WF];
        int32_t less[WF], none[WF];
        STORE_F(least, acc.lo);
        STORE_F(most, acc.hi);
        STORE_I(less, acc.less);
        STORE_I(none, acc.none);
        negative = acc.negative;
        zero = acc.zero;
        for (int k = 0; k < WF; k++) {
            lo = least[k] < lo ? least[k] : lo;
            hi = most[k] > hi ? most[k] : hi;
            negative += less[k];
            zero += none[k];
        }
    }
    for (const float *v = x + 16 * rows; v < x + 16 * rows + tail; v++) {
        double d = (double)(*v - guess);
        sum += d;
        square += d * d;
        abs += fabs((double)*v);
        lo = *v < lo ? *v : lo;
        hi = *v > hi ? *v : hi;
        negative += *v < 0;
        zero += *v == 0;
    }
    float above = hi - guess, below = guess - lo, reach = above > below ? above : below;
    if (!(abs - abs == 0) || !(square - square == 0) || (reach != 0 && reach < 0x1p-50f))
        return 0;
    double shift = sum / (double)n, deviation = square - sum * shift;
    *out = (Partial){.finite = (int64_t)n, .zero = zero, .negative = negative, .min = lo, .max = hi, .abs = abs,
                     .mean = (double)guess + shift, .deviation = deviation > 0 ? deviation : 0};
    return 1;
}

/* The same in double. Returns 0 if the chunk has NaN or Inf, or values beyond 1e150 (`out` is filled even so). */
static int T(chunk_f64)(const double *x, size_t n, Partial *out)
{
    size_t rows = n / 8;
    double guess = x[0], lo = x[0], hi = x[0], sum = 0, abs = 0, square = 0;
    int64_t negative = 0, zero = 0;
    if (rows) {
        VD g[ND], s[ND], a[ND], q[ND], least = LOAD_D(x), most = least;
        VL less = ZERO_L(), none = ZERO_L();
        for (int k = 0; k < ND; k++) {
            g[k] = LOAD_D(x + k * WD);
            s[k] = a[k] = q[k] = ZERO_D();
        }
        for (size_t r = 8; r < rows; r += 8)
            for (int k = 0; k < ND; k++)
                g[k] = ADD_D(g[k], LOAD_D(x + 8 * r + k * WD));
        guess = T(sum8)(g) / (double)(8 * ((rows + 7) / 8));
        VD guesses = SET_D(guess);
        for (size_t r = 0; r < rows; r++)
            for (int k = 0; k < ND; k++) {
                VD v = LOAD_D(x + 8 * r + k * WD), d = SUB_D(v, guesses);
                s[k] = ADD_D(s[k], d);
                a[k] = ADD_D(a[k], ABS_D(v));
                q[k] = ADD_D(q[k], MUL_D(d, d));
                least = MIN_D(least, v);
                most = MAX_D(most, v);
                less = COUNT_LT0_D(less, v);
                none = COUNT_EQ0_D(none, v);
            }
        sum = T(sum8)(s);
        abs = T(sum8)(a);
        square = T(sum8)(q);
        double los[WD], his[WD];
        int64_t lesses[WD], nones[WD];
        STORE_D(los, least);
        STORE_D(his, most);
        STORE_L(lesses, less);
        STORE_L(nones, none);
        for (int k = 0; k < WD; k++) {
            lo = los[k] < lo ? los[k] : lo;
            hi = his[k] > hi ? his[k] : hi;
            negative += lesses[k];
            zero += nones[k];
        }
    }
    for (const double *v = x + 8 * rows; v < x + n; v++) {
        double d = *v - guess;
        sum += d;
        square += d * d;
        abs += fabs(*v);
        lo = *v < lo ? *v : lo;
        hi = *v > hi ? *v : hi;
        negative += *v < 0;
        zero += *v == 0;
    }
    double shift = sum / (double)n, deviation = square - sum * shift;
    *out = (Partial){.finite = (int64_t)n, .zero = zero, .negative = negative, .min = lo, .max = hi, .abs = abs,
                     .mean = guess + shift, .deviation = deviation > 0 ? deviation : 0};
    return abs - abs == 0 && square - square == 0;
}

/* Any chunk of doubles: counts NaN and Inf and packs the finite values together, in place. */
static void T(chunk_doubles)(double *x, size_t n, Partial *out)
{
    if (T(chunk_f64)(x, n, out))
        return;
    int64_t nan = 0, pos_inf = 0, neg_inf = 0;
    for (size_t i = 0; i < n; i++) {
        nan += x[i] != x[i];
        pos_inf += x[i] == INFINITY;
        neg_inf += x[i] == -INFINITY;
    }
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        double v = x[i];
        x[kept] = v;
        kept += v - v == 0;
    }
    *out = NOTHING;
    if (kept)
        (void)T(chunk_f64)(x, kept, out);
    out->nan = nan;
    out->pos_inf = pos_inf;
    out->neg_inf = neg_inf;
}

/* Any chunk of floats: as they are; else without NaN and Inf (masked attention is full of -Inf); else as doubles. */
static void T(chunk_floats)(const float *x, size_t n, Partial *out)
{
    if (T(chunk_f32)(x, n, out))
        return;
    float finite[CHUNK + 16];
    int32_t nan = 0, pos_inf = 0, neg_inf = 0;
    for (size_t i = 0; i < n; i++) {
        nan += x[i] != x[i];
        pos_inf += x[i] == INFINITY;
        neg_inf += x[i] == -INFINITY;
    }
    size_t kept = PACK_FINITE(x, n, finite);
    if (kept == 0)
        *out = NOTHING;
    else if (kept == n || !T(chunk_f32)(finite, kept, out)) {
        double wide[CHUNK];
        for (size_t i = 0; i < kept; i++)
            wide[i] = finite[i];
        T(chunk_doubles)(wide, kept, out);
    }
    out->nan = nan;
    out->pos_inf = pos_inf;
    out->neg_inf = neg_inf;
}

static void T(subtract_f32)(float *restrict out, const float *a, const float *b, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = a[i] - b[i];
}

/* Loads: n elements `step` bytes apart, widened to float (half precisions) or double (the rest). */
#define LOADER(name, from, to, expression)                                                      \
    static void T(load_##name)(const char *source, ptrdiff_t step, size_t n, void *target)      \
    {                                                                                           \
        to *restrict out = target;                                                              \
        if (step == (ptrdiff_t)sizeof(from)) {                                                  \
            for (size_t i = 0; i < n; i++) {                                                    \
                from v;                                                                         \
                memcpy(&v, source + i * sizeof(from), sizeof v);                                \
                out[i] = expression;                                                            \
            }                                                                                   \
            return;                                                                             \
        }                                                                                       \
        for (size_t i = 0; i < n; i++) {                                                        \
            from v;                                                                             \
            memcpy(&v, source + (ptrdiff_t)i * step, sizeof v);                                 \
            out[i] = expression;                                                                \
        }                                                                                       \
    }

LOADER(f64, double, double, v)
LOADER(f32, float, float, v)
LOADER(f16, uint16_t, float, half_to_float(v))
LOADER(bf16, uint16_t, float, bits_to_float((uint32_t)v << 16))
LOADER(i64, int64_t, double, (double)v)
LOADER(i32, int32_t, double, (double)v)
LOADER(i16, int16_t, double, (double)v)
LOADER(i8, int8_t, double, (double)v)
LOADER(u8, uint8_t, double, (double)v)
LOADER(bool, uint8_t, double, (double)(v != 0))
LOADER(u64, uint64_t, double, (double)v)
LOADER(u32, uint32_t, double, (double)v)
LOADER(u16, uint16_t, double, (double)v)
LOADER(c64, FloatPair, double, magnitude_float(v))
LOADER(c128, DoublePair, double, magnitude_double(v))
LOADER(e4m3fn, uint8_t, float, FLOAT8[0][v])
LOADER(e5m2, uint8_t, float, FLOAT8[1][v])
LOADER(e4m3fnuz, uint8_t, float, FLOAT8[2][v])
LOADER(e5m2fnuz, uint8_t, float, FLOAT8[3][v])
LOADER(e8m0fnu, uint8_t, float, FLOAT8[4][v])
#undef LOADER

/* How often each bin stands among the first n bytes, which are NO_BIN from there to a multiple of 64. Comparing all of them
 * with one bin after the other beats incrementing a counter per byte, which waits for the last increment of that bin. */
static void T(count_bins)(const uint8_t *bins, size_t n, uint16_t *counts)
{
    for (int bin = 0; bin < BINS; bin++)
        counts[bin] = (uint16_t)COUNT_BYTE(bins, n, (char)bin);
}

/* The bins of n <= SAMPLE floats, `step` apart: fetched first, so that the arithmetic vectorises. */
static void T(bin_f32)(const float *x, size_t n, size_t step, uint8_t *restrict bins)
{
    float near[SAMPLE];
    if (step > 1) {
        for (size_t i = 0; i < n; i++)
            near[i] = x[i * step];
        x = near;
    }
    for (size_t i = 0; i < n; i++)
        bins[i] = bin_of_float(x[i]);
}

static const Isa T(ISA) = {
    T_NAME, T(chunk_floats), T(chunk_doubles), T(subtract_f32), T(count_bins), T(bin_f32),
    {T(load_f64), T(load_f32), T(load_f16), T(load_bf16), T(load_i64), T(load_i32), T(load_i16), T(load_i8),
     T(load_u8), T(load_bool), T(load_u64), T(load_u32), T(load_u16), T(load_c64), T(load_c128),
     T(load_e4m3fn), T(load_e5m2), T(load_e4m3fnuz), T(load_e5m2fnuz), T(load_e8m0fnu)}};
