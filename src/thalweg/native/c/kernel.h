/* Shared declarations of the native kernel.

   The kernel trains one client for one round, or predicts, in one call. It is plain C without
   dependencies, compiled once per instruction set (see setup.py) and called through ctypes.

   Memory layout. A mini-batch is cut into blocks of LANES samples. The activations of a block are
   stored with the sample as the innermost axis:

       images   [channel][row][column][LANES]
       vectors  [feature][LANES]

   so that every operation on a block is a loop over vectors of LANES numbers, whatever the shape
   of the layer, and flattening an image is free. Samples that fill up the last block are zero.

   Vectors are GCC and Clang vector types: the compiler maps them to AVX2, AVX-512, NEON or SSE2. */

#ifndef THALWEG_KERNEL_H
#define THALWEG_KERNEL_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define LANES 16
#define INTERFACE 6 /* increased with every change of an entry point or record */

/* WIDTH: floats per vector register. TILE: outputs that are accumulated together; TILE * PARTS
   accumulators and the operands fit the registers, and hide the latency of the multiply-add. */
#if defined(__AVX512F__)
#define WIDTH 16
#define TILE 12
#elif defined(__AVX2__)
#define WIDTH 8
#define TILE 6
#elif defined(__aarch64__)
#define WIDTH 4
#define TILE 6
#else
#define WIDTH 4
#define TILE 3
#endif
#define PARTS (LANES / WIDTH)
/* PAIR: blocks, positions or channels that a tile computes together. It is two where a block is a
   single vector: then two vectors share each scalar operand, and small tiles hide the latency. */
#define PAIR (PARTS == 1 ? 2 : 1)

typedef float vec __attribute__((vector_size(4 * WIDTH)));                   /* aligned */
typedef float uvec __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias)); /* anywhere */
typedef int32_t ivec __attribute__((vector_size(4 * WIDTH)));
typedef int8_t bvec __attribute__((vector_size(WIDTH), aligned(1), may_alias));

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

enum { DENSE = 0, CONV_POOL = 1, WORD_MEAN = 2 };
enum { UINT8_IMAGES = 0, FLOAT_ROWS = 1, CODES_UINT8 = 2, CODES_UINT16 = 3 };
enum { CROSS_ENTROPY = 0, SQUARED_ERROR = 1 };

/* A layer of the net; the fields mirror native.program.LayerRecord. */
typedef struct {
    int32_t kind;
    int32_t inputs, outputs; /* features, channels, or words of a text */
    int32_t height, width;   /* of the input image; 1, 1 for vectors */
    int32_t kernel, padding;
    int32_t relu;            /* 1: max(x, 0) follows */
    int32_t codes;           /* WORD_MEAN: number of different words */
    int64_t weight, bias;    /* positions in the parameter vector */
} Layer;

/* The samples of one part of a data set; the fields mirror native.program.SamplesRecord. */
typedef struct {
    const void *x; /* uint8 (N, height, width, channels), float32 (N, features), codes (N, width) */
    int32_t kind, channels, height, width;
    const float *scale, *shift; /* per channel: x * scale + shift */
} Samples;

/* A quadratic penalty on parameters w, as in local.quadratic.Quadratic: the sum of
   scale / 2 * curvature * (w - centre)^2 + slope * (w - centre). The arrays are (P,), or (K, P) for
   K clients; null: curvature one, centre and slope zero. */
typedef struct {
    const float *curvature, *centre, *slope;
    float scale;
} Penalty;

/* What happens to a gradient: an SGD step in place, or, if `gradient` is given, storage. */
typedef struct {
    float *params, *velocity, *gradient; /* (P,) each; velocity and gradient may be null */
    float lr, momentum, decay;
    const Penalty *penalty; /* null: none. Its gradient is added by an SGD step, and its value, */
    double *penalty_value;  /* before the step, to this number */
} Update;

/* Buffers of one layer, in the workspace. */
typedef struct {
    float *x;      /* its input by block; images with their padding; int32 codes by text */
    float *grad_x; /* gradient of the input by block, without padding */
    float *rows;   /* DENSE: its input by sample [B][row_stride], for the weight gradient */
    int8_t *place; /* CONV_POOL: which of the four pooled positions won, -1 if ReLU is zero */
    float *errors;  /* WORD_MEAN: gradients of the words of each text [B][outputs] */
    int32_t *starts, *texts; /* WORD_MEAN: the texts with each word, see sort_words */
    uint8_t *moves; /* WORD_MEAN: which rows have a velocity or penalty */
    uint8_t *used;  /* WORD_MEAN: which rows are in the samples of a client */
    int64_t block, grad_block, place_block; /* numbers per block */
    int64_t row_stride;
} Buffers;

#define MAX_LAYERS 32

typedef struct {
    Buffers layer[MAX_LAYERS];
    float *logits, *grad_logits; /* by block [C][LANES] */
    float *scratch;
    int64_t bytes;
} Workspace;

INLINE int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }
INLINE int min_int(int a, int b) { return a < b ? a : b; }
INLINE int max_int(int a, int b) { return a > b ? a : b; }

/* Return the gradient of the penalty in one number of the parameter vector. */
INLINE float penalise_one(const Penalty *penalty, int64_t at, float w, double *value) {
    float away = penalty->centre ? w - penalty->centre[at] : w;
    float slope = penalty->slope ? penalty->slope[at] : 0;
    float pull = penalty->scale * away;
    if (penalty->curvature) pull *= penalty->curvature[at];
    *value += away * (pull / 2 + slope);
    return pull + slope;
}

/* The same for WIDTH consecutive numbers. The value is that of each of them. */
INLINE vec penalise_vec(const Penalty *penalty, int64_t at, vec w, vec *value) {
    vec away = w, slope = {0};
    if (penalty->centre) away -= *(const uvec *)(penalty->centre + at);
    if (penalty->slope) slope = *(const uvec *)(penalty->slope + at);
    vec pull = penalty->scale * away;
    if (penalty->curvature) pull *= *(const uvec *)(penalty->curvature + at);
    *value += away * (pull / 2 + slope);
    return pull + slope;
}

/* One number of the parameter vector receives its gradient. */
INLINE void descend_one(const Update *up, int64_t at, float g) {
    if (up->gradient) {
        up->gradient[at] = g;
        return;
    }
    if (up->penalty) g += penalise_one(up->penalty, at, up->params[at], up->penalty_value);
    g += up->decay * up->params[at];
    if (up->velocity) {
        g += up->momentum * up->velocity[at];
        up->velocity[at] = g;
    }
    up->params[at] -= up->lr * g;
}

/* WIDTH consecutive numbers of the parameter vector receive their gradients. The values of their
   penalties are added to `value`. */
INLINE void descend_vec(const Update *up, int64_t at, vec g, vec *value) {
    if (up->gradient) {
        *(uvec *)(up->gradient + at) = g;
        return;
    }
    vec w = *(uvec *)(up->params + at);
    if (up->penalty) g += penalise_vec(up->penalty, at, w, value);
    g += up->decay * w;
    if (up->velocity) {
        g += up->momentum * *(uvec *)(up->velocity + at);
        *(uvec *)(up->velocity + at) = g;
    }
    *(uvec *)(up->params + at) = w - up->lr * g;
}

INLINE float sum_lanes(vec v) {
    float total = 0;
    UNROLL for (int i = 0; i < WIDTH; i++) total += v[i];
    return total;
}

INLINE vec choose(ivec mask, vec yes, vec no) {
    return (vec)(((ivec)yes & mask) | ((ivec)no & ~mask));
}

/* ReLU. A number that is not a number stays one, as in PyTorch: hence ~(v <= 0), not v > 0. */
INLINE ivec is_passed(vec v) { return ~(ivec)(v <= 0); }
INLINE vec max_zero(vec v) { return (vec)((ivec)v & is_passed(v)); }

/* Split n outputs into tiles of nearly equal size, at most TILE. */
INLINE int count_tiles(int n, int most) { return (n + most - 1) / most; }
INLINE int tile_start(int n, int tile, int tiles) { return (int)((int64_t)n * tile / tiles); }

#endif
