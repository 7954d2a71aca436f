/* x86-64: SSE2, which every such machine has, AVX2 and AVX-512. */
#include <immintrin.h>

#if defined(__clang__)
#define BEGIN_AVX2 _Pragma("clang attribute push(__attribute__((target(\"avx2,fma,popcnt\"))), apply_to = function)")
#define BEGIN_AVX512 \
    _Pragma("clang attribute push(__attribute__((target(\"avx512f,avx512bw,avx512dq,avx512vl,fma,popcnt\"))), apply_to = function)")
#define END_TARGET _Pragma("clang attribute pop")
#else
#define BEGIN_AVX2 _Pragma("GCC push_options") _Pragma("GCC target(\"avx2,fma,popcnt\")")
#define BEGIN_AVX512 \
    _Pragma("GCC push_options") _Pragma("GCC target(\"avx512f,avx512bw,avx512dq,avx512vl,fma,popcnt,prefer-vector-width=512\")")
#define END_TARGET _Pragma("GCC pop_options")
#endif

/* Baseline. */
INLINE int count_byte_baseline(const uint8_t *bytes, size_t n, char wanted)
{
    __m128i count = _mm_setzero_si128(), byte = _mm_set1_epi8(wanted); /* at most 32 in a lane */
    for (size_t i = 0; i < n; i += 16)
        count = _mm_sub_epi8(count, _mm_cmpeq_epi8(_mm_loadu_si128((const __m128i *)(bytes + i)), byte));
    count = _mm_sad_epu8(count, _mm_setzero_si128());
    return _mm_cvtsi128_si32(count) + _mm_cvtsi128_si32(_mm_unpackhi_epi64(count, count));
}
#define COUNT_BYTE count_byte_baseline
#define PACK_FINITE pack_finite
#define T(name) name##_baseline
#define T_NAME "baseline"
#define VF __m128
#define VI __m128i
#define VD __m128d
#define VL __m128i
#define WF 4
#define WD 2
#define NF 4
#define ND 4
#define LOAD_F _mm_loadu_ps
#define STORE_F _mm_storeu_ps
#define SET_F _mm_set1_ps
#define ADD_F _mm_add_ps
#define SUB_F _mm_sub_ps
#define FMA_F(a, b, c) _mm_add_ps(c, _mm_mul_ps(a, b))
#define ZERO_F _mm_setzero_ps
#define MIN_F _mm_min_ps
#define MAX_F _mm_max_ps
#define ABS_F(v) _mm_and_ps(v, _mm_castsi128_ps(_mm_set1_epi32(0x7fffffff)))
#define ZERO_I _mm_setzero_si128
#define STORE_I(p, v) _mm_storeu_si128((__m128i *)(p), v)
#define COUNT_LT0(n, v) _mm_sub_epi32(n, _mm_castps_si128(_mm_cmplt_ps(v, _mm_setzero_ps())))
#define COUNT_EQ0(n, v) _mm_sub_epi32(n, _mm_castps_si128(_mm_cmpeq_ps(v, _mm_setzero_ps())))
#define COUNT_FOUR(acc, v, size)                             \
    for (int j_ = 0; j_ < 4; j_++) {                         \
        (acc)->less = COUNT_LT0((acc)->less, (v)[j_]);       \
        (acc)->none = COUNT_EQ0((acc)->none, (v)[j_]);       \
    }
#define WIDEN_ADD(acc, s)                                                                    \
    do {                                                                                     \
        __m128 even_ = _mm_add_ps((s)[0], (s)[2]), odd_ = _mm_add_ps((s)[1], (s)[3]);        \
        (acc)[0] = _mm_add_pd((acc)[0], _mm_cvtps_pd(even_));                                \
        (acc)[1] = _mm_add_pd((acc)[1], _mm_cvtps_pd(_mm_movehl_ps(even_, even_)));          \
        (acc)[2] = _mm_add_pd((acc)[2], _mm_cvtps_pd(odd_));                                 \
        (acc)[3] = _mm_add_pd((acc)[3], _mm_cvtps_pd(_mm_movehl_ps(odd_, odd_)));            \
    } while (0)
#define LOAD_D _mm_loadu_pd
#define STORE_D _mm_storeu_pd
#define SET_D _mm_set1_pd
#define ZERO_D _mm_setzero_pd
#define ADD_D _mm_add_pd
#define SUB_D _mm_sub_pd
#define MUL_D _mm_mul_pd
#define MIN_D _mm_min_pd
#define MAX_D _mm_max_pd
#define ABS_D(v) _mm_and_pd(v, _mm_castsi128_pd(_mm_set1_epi64x(0x7fffffffffffffff)))
#define ZERO_L _mm_setzero_si128
#define STORE_L(p, v) _mm_storeu_si128((__m128i *)(p), v)
#define COUNT_LT0_D(n, v) _mm_sub_epi64(n, _mm_castpd_si128(_mm_cmplt_pd(v, _mm_setzero_pd())))
#define COUNT_EQ0_D(n, v) _mm_sub_epi64(n, _mm_castpd_si128(_mm_cmpeq_pd(v, _mm_setzero_pd())))
#include "chunk.h"
#include "isa_end.h"

/* AVX2. */
BEGIN_AVX2
INLINE int count_byte_avx2(const uint8_t *bytes, size_t n, char wanted)
{
    __m256i count = _mm256_setzero_si256(), byte = _mm256_set1_epi8(wanted);
    for (size_t i = 0; i < n; i += 32)
        count = _mm256_sub_epi8(count, _mm256_cmpeq_epi8(_mm256_loadu_si256((const __m256i *)(bytes + i)), byte));
    count = _mm256_sad_epu8(count, _mm256_setzero_si256());
    __m128i half = _mm_add_epi64(_mm256_castsi256_si128(count), _mm256_extracti128_si256(count, 1));
    return _mm_cvtsi128_si32(half) + _mm_cvtsi128_si32(_mm_unpackhi_epi64(half, half));
}
#define COUNT_BYTE count_byte_avx2
#define PACK_FINITE pack_finite
#define T(name) name##_avx2
#define T_NAME "avx2"
#define VF __m256
#define VI __m256i
#define VD __m256d
#define VL __m256i
#define WF 8
#define WD 4
#define NF 2
#define ND 2
#define LOAD_F _mm256_loadu_ps
#define STORE_F _mm256_storeu_ps
#define SET_F _mm256_set1_ps
#define ADD_F _mm256_add_ps
#define SUB_F _mm256_sub_ps
#define FMA_F _mm256_fmadd_ps
#define ZERO_F _mm256_setzero_ps
#define MIN_F _mm256_min_ps
#define MAX_F _mm256_max_ps
#define ABS_F(v) _mm256_and_ps(v, _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff)))
#define ZERO_I _mm256_setzero_si256
#define STORE_I(p, v) _mm256_storeu_si256((__m256i *)(p), v)
#define COUNT_LT0(n, v) \
    _mm256_sub_epi32(n, _mm256_castps_si256(_mm256_cmp_ps(v, _mm256_setzero_ps(), _CMP_LT_OQ)))
#define COUNT_EQ0(n, v) \
    _mm256_sub_epi32(n, _mm256_castps_si256(_mm256_cmp_ps(v, _mm256_setzero_ps(), _CMP_EQ_OQ)))
/* Saturating packs keep the sign of a float's bits, and whether those of its magnitude are 0: four registers become one
 * of bytes, which costs less than counting in each. -0 has the sign but is not negative. */
#define BYTES_256(v)                                                                                \
    _mm256_packs_epi16(_mm256_packs_epi32(_mm256_castps_si256((v)[0]), _mm256_castps_si256((v)[1])), \
                       _mm256_packs_epi32(_mm256_castps_si256((v)[2]), _mm256_castps_si256((v)[3])))
#define COUNT_FOUR(acc, v, size)                                                                           \
    do {                                                                                                   \
        uint32_t sign_ = (uint32_t)_mm256_movemask_epi8(BYTES_256(v));                                     \
        uint32_t zero_ = (uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(BYTES_256(size), ZERO_I()));     \
        (acc)->negative += __builtin_popcount(sign_ & ~zero_);                                             \
        (acc)->zero += __builtin_popcount(zero_);                                                          \
    } while (0)
#define WIDEN_ADD(acc, s)                                                                      \
    do {                                                                                       \
        __m256 both_ = _mm256_add_ps((s)[0], (s)[1]);                                          \
        (acc)[0] = _mm256_add_pd((acc)[0], _mm256_cvtps_pd(_mm256_castps256_ps128(both_)));    \
        (acc)[1] = _mm256_add_pd((acc)[1], _mm256_cvtps_pd(_mm256_extractf128_ps(both_, 1)));  \
    } while (0)
#define LOAD_D _mm256_loadu_pd
#define STORE_D _mm256_storeu_pd
#define SET_D _mm256_set1_pd
#define ZERO_D _mm256_setzero_pd
#define ADD_D _mm256_add_pd
#define SUB_D _mm256_sub_pd
#define MUL_D _mm256_mul_pd
#define MIN_D _mm256_min_pd
#define MAX_D _mm256_max_pd
#define ABS_D(v) _mm256_and_pd(v, _mm256_castsi256_pd(_mm256_set1_epi64x(0x7fffffffffffffff)))
#define ZERO_L _mm256_setzero_si256
#define STORE_L(p, v) _mm256_storeu_si256((__m256i *)(p), v)
#define COUNT_LT0_D(n, v) \
    _mm256_sub_epi64(n, _mm256_castpd_si256(_mm256_cmp_pd(v, _mm256_setzero_pd(), _CMP_LT_OQ)))
#define COUNT_EQ0_D(n, v) \
    _mm256_sub_epi64(n, _mm256_castpd_si256(_mm256_cmp_pd(v, _mm256_setzero_pd(), _CMP_EQ_OQ)))
#include "chunk.h"
#include "isa_end.h"
END_TARGET

/* AVX-512. */
BEGIN_AVX512
INLINE int count_byte_avx512(const uint8_t *bytes, size_t n, char wanted)
{
    int count = 0;
    for (size_t i = 0; i < n; i += 64)
        count += __builtin_popcountll(_mm512_cmpeq_epi8_mask(_mm512_loadu_si512(bytes + i), _mm512_set1_epi8(wanted)));
    return count;
}
#define COUNT_BYTE count_byte_avx512
INLINE size_t pack_finite_avx512(const float *x, size_t n, float *out)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i += 16) {
        __mmask16 here = n - i < 16 ? (__mmask16)((1u << (n - i)) - 1) : (__mmask16)0xffff;
        __m512 v = _mm512_maskz_loadu_ps(here, x + i);
        here = _mm512_mask_cmp_ps_mask(here, _mm512_sub_ps(v, v), _mm512_setzero_ps(), _CMP_EQ_OQ);
        _mm512_storeu_ps(out + kept, _mm512_maskz_compress_ps(here, v));
        kept += (size_t)__builtin_popcount(here);
    }
    return kept;
}
#define PACK_FINITE pack_finite_avx512
#define T(name) name##_avx512
#define T_NAME "avx512"
#define VF __m512
#define VI __m512i
#define VD __m512d
#define VL __m512i
#define WF 16
#define WD 8
#define NF 1
#define ND 1
#define LOAD_F _mm512_loadu_ps
#define STORE_F _mm512_storeu_ps
#define SET_F _mm512_set1_ps
#define ADD_F _mm512_add_ps
#define SUB_F _mm512_sub_ps
#define FMA_F _mm512_fmadd_ps
#define ZERO_F _mm512_setzero_ps
#define MIN_F _mm512_min_ps
#define MAX_F _mm512_max_ps
#define ABS_F _mm512_abs_ps
#define ZERO_I _mm512_setzero_si512
#define STORE_I(p, v) _mm512_storeu_si512(p, v)
#define ONE_MORE(n, mask) _mm512_mask_sub_epi32(n, mask, n, _mm512_set1_epi32(-1))
#define COUNT_LT0(n, v) ONE_MORE(n, _mm512_cmp_ps_mask(v, _mm512_setzero_ps(), _CMP_LT_OQ))
#define COUNT_EQ0(n, v) ONE_MORE(n, _mm512_cmp_ps_mask(v, _mm512_setzero_ps(), _CMP_EQ_OQ))
#define BYTES_512(v)                                                                                 \
    _mm512_packs_epi16(_mm512_packs_epi32(_mm512_castps_si512((v)[0]), _mm512_castps_si512((v)[1])), \
                       _mm512_packs_epi32(_mm512_castps_si512((v)[2]), _mm512_castps_si512((v)[3])))
#define COUNT_FOUR(acc, v, size)                                                                     \
    do {                                                                                             \
        __m512i sizes_ = BYTES_512(size);                                                            \
        uint64_t sign_ = _mm512_movepi8_mask(BYTES_512(v)), zero_ = _mm512_testn_epi8_mask(sizes_, sizes_); \
        (acc)->negative += __builtin_popcountll(sign_ & ~zero_);                                     \
        (acc)->zero += __builtin_popcountll(zero_);                                                  \
    } while (0)
#define WIDEN_ADD(acc, s)                                                                        \
    do {                                                                                         \
        __m256 both_ = _mm256_add_ps(_mm512_castps512_ps256((s)[0]),                             \
                                     _mm512_extractf32x8_ps((s)[0], 1));                         \
        (acc)[0] = _mm512_add_pd((acc)[0], _mm512_cvtps_pd(both_));                              \
    } while (0)
#define LOAD_D _mm512_loadu_pd
#define STORE_D _mm512_storeu_pd
#define SET_D _mm512_set1_pd
#define ZERO_D _mm512_setzero_pd
#define ADD_D _mm512_add_pd
#define SUB_D _mm512_sub_pd
#define MUL_D _mm512_mul_pd
#define MIN_D _mm512_min_pd
#define MAX_D _mm512_max_pd
#define ABS_D _mm512_abs_pd
#define ZERO_L _mm512_setzero_si512
#define STORE_L(p, v) _mm512_storeu_si512(p, v)
#define ONE_MORE_D(n, mask) _mm512_mask_sub_epi64(n, mask, n, _mm512_set1_epi64(-1))
#define COUNT_LT0_D(n, v) ONE_MORE_D(n, _mm512_cmp_pd_mask(v, _mm512_setzero_pd(), _CMP_LT_OQ))
#define COUNT_EQ0_D(n, v) ONE_MORE_D(n, _mm512_cmp_pd_mask(v, _mm512_setzero_pd(), _CMP_EQ_OQ))
#include "chunk.h"
#include "isa_end.h"
END_TARGET

/* `wish` is the value of TENSONDE_ISA: the tests run every instruction set with it. A wish beyond the machine is ignored. */
static const Isa *isa_choose(const char *wish)
{
    __builtin_cpu_init();
    int avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("popcnt");
    int avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                 __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (wish && strcmp(wish, "baseline") == 0)
        return &ISA_baseline;
    if (avx2 && wish && strcmp(wish, "avx2") == 0)
        return &ISA_avx2;
    return avx512 ? &ISA_avx512 : avx2 ? &ISA_avx2 : &ISA_baseline;
}
