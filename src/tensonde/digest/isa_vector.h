/* Any other machine: the compiler's own 16-byte vectors. On arm64 these are NEON registers. */
typedef float v4f __attribute__((vector_size(16)));
typedef int32_t v4i __attribute__((vector_size(16)));
typedef double v2d __attribute__((vector_size(16)));
typedef int64_t v2l __attribute__((vector_size(16)));
typedef float v2f __attribute__((vector_size(8)));

#define LOADED(type, pointer)                      \
    ({                                             \
        type loaded_;                              \
        memcpy(&loaded_, (pointer), sizeof loaded_); \
        loaded_;                                   \
    })
#define STORED(pointer, value)                     \
    do {                                           \
        __typeof__(value) stored_ = (value);       \
        memcpy((pointer), &stored_, sizeof stored_); \
    } while (0)

#if defined(__aarch64__)
#include <arm_neon.h>
INLINE v4f min4(v4f a, v4f b) { return (v4f)vminq_f32((float32x4_t)a, (float32x4_t)b); }
INLINE v4f max4(v4f a, v4f b) { return (v4f)vmaxq_f32((float32x4_t)a, (float32x4_t)b); }
INLINE v2d min2(v2d a, v2d b) { return (v2d)vminq_f64((float64x2_t)a, (float64x2_t)b); }
INLINE v2d max2(v2d a, v2d b) { return (v2d)vmaxq_f64((float64x2_t)a, (float64x2_t)b); }
INLINE v4f fma4(v4f a, v4f b, v4f c) { return (v4f)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b); }
#else
INLINE v4f fma4(v4f a, v4f b, v4f c) { return c + a * b; }
INLINE v4f pick4(v4i m, v4f a, v4f b) { return (v4f)((m & (v4i)a) | (~m & (v4i)b)); }
INLINE v2d pick2(v2l m, v2d a, v2d b) { return (v2d)((m & (v2l)a) | (~m & (v2l)b)); }
INLINE v4f min4(v4f a, v4f b) { return pick4(a < b, a, b); }
INLINE v4f max4(v4f a, v4f b) { return pick4(a > b, a, b); }
INLINE v2d min2(v2d a, v2d b) { return pick2(a < b, a, b); }
INLINE v2d max2(v2d a, v2d b) { return pick2(a > b, a, b); }
#endif
INLINE v2d low2(v4f v) { return __builtin_convertvector(((v2f){v[0], v[1]}), v2d); }
INLINE v2d high2(v4f v) { return __builtin_convertvector(((v2f){v[2], v[3]}), v2d); }

INLINE int count_byte_vector(const uint8_t *bytes, size_t n, char wanted)
{
    int count = 0;
    for (size_t i = 0; i < n; i++)
        count += bytes[i] == (uint8_t)wanted;
    return count;
}
#define COUNT_BYTE count_byte_vector
#define PACK_FINITE pack_finite
#define T(name) name##_vector
#if defined(__aarch64__)
#define T_NAME "neon"
#else
#define T_NAME "vector"
#endif
#define VF v4f
#define VI v4i
#define VD v2d
#define VL v2l
#define WF 4
#define WD 2
#define NF 4
#define ND 4
#define LOAD_F(p) LOADED(v4f, p)
#define STORE_F STORED
#define SET_F(x) ((v4f){(x), (x), (x), (x)})
#define ADD_F(a, b) ((a) + (b))
#define SUB_F(a, b) ((a) - (b))
#define FMA_F fma4
#define ZERO_F() ((v4f){0})
#define MIN_F min4
#define MAX_F max4
#define ABS_F(v) ((v4f)((v4i)(v) & 0x7fffffff))
#define ZERO_I() ((v4i){0})
#define STORE_I STORED
#define COUNT_LT0(n, v) ((n) - ((v) < 0))
#define COUNT_EQ0(n, v) ((n) - ((v) == 0))
#define COUNT_FOUR(acc, v, size)                             \
    for (int j_ = 0; j_ < 4; j_++) {                         \
        (acc)->less = COUNT_LT0((acc)->less, (v)[j_]);       \
        (acc)->none = COUNT_EQ0((acc)->none, (v)[j_]);       \
    }
#define WIDEN_ADD(acc, s)                                          \
    do {                                                           \
        v4f even_ = (s)[0] + (s)[2], odd_ = (s)[1] + (s)[3];       \
        (acc)[0] += low2(even_);                                   \
        (acc)[1] += high2(even_);                                  \
        (acc)[2] += low2(odd_);                                    \
        (acc)[3] += high2(odd_);                                   \
    } while (0)
#define LOAD_D(p) LOADED(v2d, p)
#define STORE_D STORED
#define SET_D(x) ((v2d){(x), (x)})
#define ZERO_D() ((v2d){0})
#define ADD_D ADD_F
#define SUB_D SUB_F
#define MUL_D(a, b) ((a) * (b))
#define MIN_D min2
#define MAX_D max2
#define ABS_D(v) ((v2d)((v2l)(v) & 0x7fffffffffffffff))
#define ZERO_L() ((v2l){0})
#define STORE_L STORED
#define COUNT_LT0_D COUNT_LT0
#define COUNT_EQ0_D COUNT_EQ0
#include "chunk.h"
#include "isa_end.h"

static const Isa *isa_choose(const char *wish)
{
    (void)wish;
    return &ISA_vector;
}
