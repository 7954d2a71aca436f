/* From tensors in memory to rows: chunks in memory order, segments of chunks over threads, the sampled histogram.
 *
 * Partials add up over the chunks of a segment, then over the segments, always in the same order: the result does not
 * depend on the number of threads. */
#ifndef TENSONDE_WALK_H
#define TENSONDE_WALK_H

#include <stdatomic.h>

#include "isa.h"
#include "team.h"

enum {
    MAX_DIMS = 64,
    SEGMENT = 16 * CHUNK,       /* what one thread takes at a time */
    THREADS_ABOVE = 1024 * 1024, /* elements; a team costs microseconds, or a time slice where others want the cores */
};

/* A tensor in CPU memory, or the difference of two of the same dtype and shape (`operands` 2). Strides are in bytes. */
typedef struct {
    const char *base[2];
    int operands, dims, dtype;
    int64_t count;
    int64_t size[MAX_DIMS];
    int64_t stride[2][MAX_DIMS];
} View;

static const uint8_t ITEM_SIZE[DTYPE_COUNT] = {8, 4, 2, 2, 8, 4, 2, 1, 1, 1, 8, 4, 2, 8, 16, 1, 1, 1, 1, 1};

/* Half precisions are reduced in float, as float32 is; everything else in double. */
static inline int reduces_in_float(int dtype) { return dtype == F32 || dtype == F16 || dtype == BF16 || dtype >= F8_E4M3FN; }

/* The reduction of one tensor. */
typedef struct {
    const Isa *isa;
    View order;           /* dimensions in the order of the walk */
    int64_t count, every; /* `every`: distance of sampled elements, 0 if the walk's order is not the logical one */
    double scale;
    size_t sampled;
    int64_t first; /* among the segments of a batch, the first one of this tensor */
    uint8_t bins[SAMPLE];
} Job;

static inline int64_t segments_of(const Job *job) { return (job->count + SEGMENT - 1) / SEGMENT; }

/* Fills `dims` of `out` with those of `view` in memory order, merged where two are one run of elements. No statistic but
 * the histogram depends on the order, so a transposed tensor is walked as it lies. Returns whether the order changed. */
static int walk_order(const View *view, View *out)
{
    int changed = 0, n = 0, order[MAX_DIMS];
    out->operands = view->operands;
    out->dtype = view->dtype;
    out->count = view->count;
    for (int o = 0; o < view->operands; o++)
        out->base[o] = view->base[o];
    int64_t stride[2][MAX_DIMS];
    for (int d = 0; d < view->dims; d++) {
        if (view->size[d] == 1)
            continue;
        stride[0][d] = view->stride[0][d];
        stride[1][d] = view->operands == 2 ? view->stride[1][d] : 0;
        if (view->operands == 1 && stride[0][d] < 0) {
            out->base[0] += (view->size[d] - 1) * stride[0][d];
            stride[0][d] = -stride[0][d];
            changed = 1;
        }
        int at = n++;
        for (; at > 0 && llabs(stride[0][order[at - 1]]) < llabs(stride[0][d]); at--) {
            order[at] = order[at - 1];
            changed = 1;
        }
        order[at] = d;
    }
    int dims = 0;
    for (int i = 0; i < n; i++) {
        int d = order[i], last = dims - 1, merges = dims > 0;
        for (int o = 0; o < view->operands && merges; o++)
            merges = out->stride[o][last] == stride[o][d] * view->size[d];
        if (merges)
            out->size[last] *= view->size[d];
        else
            out->size[dims++] = view->size[d];
        for (int o = 0; o < view->operands; o++)
            out->stride[o][dims - 1] = stride[o][d];
    }
    if (dims == 0) {
        out->size[dims] = 1;
        out->stride[0][dims] = out->stride[1][dims] = ITEM_SIZE[view->dtype];
        dims = 1;
    }
    out->dims = dims;
    return changed;
}

/* Loads n elements of one operand from logical position `at`. */
static void load_run(const Isa *isa, const View *view, int operand, int64_t at, size_t n, void *target)
{
    int inner = view->dims - 1;
    int64_t index[MAX_DIMS], rest = at;
    const char *row = view->base[operand];
    for (int d = inner; d >= 0; d--) {
        index[d] = rest % view->size[d];
        rest /= view->size[d];
        if (d < inner)
            row += index[d] * view->stride[operand][d];
    }
    size_t width = reduces_in_float(view->dtype) ? sizeof(float) : sizeof(double);
    for (char *out = target; n > 0;) {
        size_t run = (size_t)(view->size[inner] - index[inner]);
        run = run < n ? run : n;
        int64_t step = view->stride[operand][inner];
        isa->load[view->dtype](row + index[inner] * step, (ptrdiff_t)step, run, out);
        out += run * width;
        n -= run;
        index[inner] = 0;
        for (int d = inner - 1; d >= 0; d--) {
            row += view->stride[operand][d];
            if (++index[d] < view->size[d])
                break;
            row -= view->size[d] * view->stride[operand][d];
            index[d] = 0;
        }
    }
}

/* One operand's elements: in place if they are floats in a row, else loaded into `buffer`. */
static const void *operand_at(const Job *job, int operand, int64_t at, size_t n, void *buffer)
{
    const View *view = &job->order;
    if (view->dtype == F32 && view->dims == 1 && view->stride[operand][0] == sizeof(float))
        return view->base[operand] + at * (int64_t)sizeof(float);
    load_run(job->isa, view, operand, at, n, buffer);
    return buffer;
}

static const void *floats_at(const Job *job, int64_t at, size_t n, float *buffer)
{
    const float *values = operand_at(job, 0, at, n, buffer);
    if (job->order.operands == 1)
        return values;
    float other[CHUNK], first[CHUNK];
    if (values == buffer) /* subtract_f32 must not write what it reads */
        values = memcpy(first, buffer, n * sizeof(float));
    job->isa->subtract_f32(buffer, values, operand_at(job, 1, at, n, other), n);
    return buffer;
}

static double *doubles_at(const Job *job, int64_t at, size_t n, double *buffer)
{
    load_run(job->isa, &job->order, 0, at, n, buffer);
    if (job->order.operands == 2) {
        double other[CHUNK];
        load_run(job->isa, &job->order, 1, at, n, other);
        for (size_t i = 0; i < n; i++)
            buffer[i] -= other[i];
    }
    if (job->scale != 1)
        for (size_t i = 0; i < n; i++)
            buffer[i] *= job->scale;
    return buffer;
}

static void reduce_chunk(Job *job, int64_t at, size_t n, Partial *out)
{
    double buffer[CHUNK];
    int64_t every = job->every, k = every ? (at + every - 1) / every : 0, first = k * every - at;
    int sampled = every && first < (int64_t)n; /* whether one of the histogram's elements is in this chunk */
    if (reduces_in_float(job->order.dtype)) {
        const float *values = floats_at(job, at, n, (float *)buffer);
        if (sampled)
            job->isa->bin_f32(values + first, (size_t)(((int64_t)n - first + every - 1) / every), (size_t)every,
                              job->bins + k);
        job->isa->chunk_floats(values, n, out);
        return;
    }
    double *values = doubles_at(job, at, n, buffer);
    if (sampled)
        for (int64_t i = first; i < (int64_t)n; i += every)
            job->bins[k++] = bin_of_double(values[i]);
    job->isa->chunk_doubles(values, n, out);
}

static void reduce_segment(Job *job, int64_t segment, Partial *out)
{
    int64_t from = segment * SEGMENT, to = from + SEGMENT < job->count ? from + SEGMENT : job->count;
    *out = NOTHING;
    for (int64_t at = from; at < to; at += CHUNK) {
        Partial part;
        reduce_chunk(job, at, (size_t)(to - at < CHUNK ? to - at : CHUNK), &part);
        if (at == from)
            *out = part;
        else
            partial_add(out, &part);
    }
}

/* Tensors that threads reduce together, segment by segment. */
typedef struct {
    Job *jobs;
    int64_t total;
    Partial *segments;
    atomic_int_fast64_t next;
} Batch;

static void reduce_next(void *argument)
{
    Batch *batch = argument;
    Job *job = batch->jobs;
    for (int64_t i; (i = atomic_fetch_add(&batch->next, 1)) < batch->total;) {
        while (i >= job->first + segments_of(job))
            job++;
        reduce_segment(job, i - job->first, &batch->segments[i]);
    }
}

static void reduce_alone(Job *job, Partial *out)
{
    *out = NOTHING;
    if (job->count)
        reduce_segment(job, 0, out);
    for (int64_t i = 1; i < segments_of(job); i++) {
        Partial part;
        reduce_segment(job, i, &part);
        partial_add(out, &part);
    }
}

/* Fills out[i] for each of n jobs. */
static void reduce_together(Job *jobs, int n, int threads, Partial *out)
{
    Batch batch = {.jobs = jobs};
    int64_t elements = 0;
    for (int i = 0; i < n; i++) {
        jobs[i].first = batch.total;
        batch.total += segments_of(&jobs[i]);
        elements += jobs[i].count;
    }
    if (threads > 1 && elements > THREADS_ABOVE)
        batch.segments = malloc((size_t)batch.total * sizeof(Partial));
    if (!batch.segments) {
        for (int i = 0; i < n; i++)
            reduce_alone(&jobs[i], &out[i]);
        return;
    }
    atomic_init(&batch.next, 0);
    team_run(reduce_next, &batch, threads);
    for (int i = 0; i < n; i++) {
        const Partial *part = &batch.segments[jobs[i].first], *end = part + segments_of(&jobs[i]);
        out[i] = part < end ? *part++ : NOTHING;
        for (; part < end; part++)
            partial_add(&out[i], part);
    }
    free(batch.segments);
}

/* The histogram where the walk's order is not the logical order: looks up every sampled element. */
static void sample_bins(const Isa *isa, const View *view, int64_t every, uint8_t *bins)
{
    for (int64_t at = 0, k = 0; at < view->count; at += every, k++) {
        double one[2] = {0};
        for (int o = 0; o < view->operands; o++)
            load_run(isa, view, o, at, 1, &one[o]);
        if (reduces_in_float(view->dtype)) {
            float a, b = 0;
            memcpy(&a, &one[0], sizeof a);
            if (view->operands == 2)
                memcpy(&b, &one[1], sizeof b);
            bins[k] = bin_of_float(a - b);
        } else
            bins[k] = bin_of_double(view->operands == 2 ? one[0] - one[1] : one[0]);
    }
}

static void job_begin(const Isa *isa, const View *view, Job *job)
{
    job->isa = isa;
    job->count = view->count;
    job->scale = 1;
    job->every = (view->count + SAMPLE - 1) / SAMPLE;
    job->sampled = job->every ? (size_t)((view->count + job->every - 1) / job->every) : 0;
    memset(job->bins, NO_BIN, (job->sampled + 63) / 64 * 64);
    if (walk_order(view, &job->order)) {
        sample_bins(isa, view, job->every, job->bins);
        job->every = 0;
    }
}

/* Fills the statistics of `row` (not its place: step, site, call, phase). */
static void job_end(Job *job, Partial *all, Row *row)
{
    int unscale = 0;
    double most = all->max > -all->min ? all->max : -all->min;
    if (all->finite && most != 0 && (most > 0x1p500 || most < 0x1p-400)) { /* float64 only: squares would not fit */
        frexp(most, &unscale);
        unscale = unscale < -1000 ? -1000 : unscale > 1000 ? 1000 : unscale;
        job->scale = ldexp(1, -unscale);
        job->every = 0;
        Partial scaled;
        reduce_alone(job, &scaled);
        all->mean = scaled.mean;
        all->deviation = scaled.deviation;
        all->abs = scaled.abs;
    }
    row->dtype = (uint8_t)job->order.dtype;
    row_fill(row, all, unscale);
    if (job->sampled)
        job->isa->count_bins(job->bins, job->sampled, row->exponents);
    else
        memset(row->exponents, 0, sizeof row->exponents);
}

static void digest(const Isa *isa, const View *view, int threads, Row *row)
{
    Job job;
    Partial all;
    job_begin(isa, view, &job);
    reduce_together(&job, 1, threads, &all);
    job_end(&job, &all, row);
}

#endif
