/* A fully connected layer: y = W x + b, with W (outputs, inputs) row by row. */

#include "kernel.h"

/* The vectors of a tile: of `group` blocks, and of n outputs. */
#define FOR_VECTORS(group)                  \
    UNROLL for (int g = 0; g < group; g++) \
    UNROLL for (int p = 0; p < PARTS; p++)
#define FOR_ALL(n, group) UNROLL for (int t = 0; t < n; t++) FOR_VECTORS(group)

/* y[o][lane] = b[o] + sum_i W[o][i] x[i][lane], for n outputs and `group` blocks.

   Loop order: the inputs are the inner loop; n x group x PARTS accumulators stay in registers, and
   one step of the loop loads the vectors x[i] and n scalars of W for as many multiply-adds. */
INLINE void dense_forward_tile(const int n, const int group, int inputs, const float *w,
                               const float *b, const float *x, int64_t x_block, float *y,
                               int64_t y_block, int relu) {
    vec sum[TILE][PAIR][PARTS];
    FOR_ALL(n, group) sum[t][g][p] = (vec){0} + b[t];
    for (int i = 0; i < inputs; i++) {
        const float *in = x + (int64_t)i * LANES;
        UNROLL for (int t = 0; t < n; t++) {
            float weight = w[(int64_t)t * inputs + i];
            FOR_VECTORS(group) sum[t][g][p] += weight * ((const vec *)(in + g * x_block))[p];
        }
    }
    FOR_ALL(n, group) ((vec *)(y + g * y_block + t * LANES))[p] =
        relu ? max_zero(sum[t][g][p]) : sum[t][g][p];
}

/* grad_x[i][lane] = sum_o W[o][i] grad_y[o][lane], for n inputs. The same loop, W by column. */
INLINE void dense_backward_tile(const int n, const int group, int inputs, int outputs,
                                const float *w, const float *grad_y, float *grad_x) {
    vec sum[TILE][PAIR][PARTS];
    int64_t y_block = (int64_t)outputs * LANES, x_block = (int64_t)inputs * LANES;
    FOR_ALL(n, group) sum[t][g][p] = (vec){0};
    for (int o = 0; o < outputs; o++) {
        const float *in = grad_y + (int64_t)o * LANES;
        UNROLL for (int t = 0; t < n; t++) {
            float weight = w[(int64_t)o * inputs + t];
            FOR_VECTORS(group) sum[t][g][p] += weight * ((const vec *)(in + g * y_block))[p];
        }
    }
    FOR_ALL(n, group) ((vec *)(grad_x + g * x_block + t * LANES))[p] = sum[t][g][p];
}

/* The gradient of n rows of W at group x LANES columns, and their update:
   g[o][i] = sum_b grad_y[o][b] x[b][i].

   Loop order: the samples are the inner loop; vectors run along the columns i, which are
   contiguous in W, so that the gradient never goes through memory. `dense_update` goes along n rows
   of W before the next ones, because the processor then loads W and its velocity ahead. */
INLINE void dense_weights_tile(const int n, const int group, int batch, int inputs, int outputs,
                               int first_input, int64_t at, const float *grad_y, const float *rows,
                               int64_t row_stride, const Update *up) {
    vec sum[TILE][PAIR][PARTS];
    FOR_ALL(n, group) sum[t][g][p] = (vec){0};
    for (int b = 0; b < batch; b++) {
        const float *in = rows + b * row_stride;
        const float *error = grad_y + (int64_t)(b / LANES) * outputs * LANES + b % LANES;
        UNROLL for (int t = 0; t < n; t++) {
            float e = error[t * LANES];
            FOR_VECTORS(group) sum[t][g][p] += e * ((const vec *)(in + g * LANES))[p];
        }
    }
    vec value = {0}; /* of the penalty */
    UNROLL for (int t = 0; t < n; t++) UNROLL for (int g = 0; g < group; g++) {
        int64_t to = at + (int64_t)t * inputs + g * LANES;
        int columns = min_int(LANES, inputs - first_input - g * LANES);
        if (columns == LANES) {
            UNROLL for (int p = 0; p < PARTS; p++)
                descend_vec(up, to + p * WIDTH, sum[t][g][p], &value);
        } else {
            const float *numbers = (const float *)sum[t][g];
            for (int c = 0; c < columns; c++) descend_one(up, to + c, numbers[c]);
        }
    }
    if (up->penalty) *up->penalty_value += sum_lanes(value);
}

#define FOR_TILE_SIZES(CALL, ...)         \
    switch (n) {                          \
    case 1: CALL(1, ##__VA_ARGS__) break; \
    case 2: CALL(2, ##__VA_ARGS__) break; \
    case 3: CALL(3, ##__VA_ARGS__) break; \
    TILE_CASES(CALL, ##__VA_ARGS__)       \
    }
#if TILE >= 6
#define TILE_CASES_6(CALL, ...)           \
    case 4: CALL(4, ##__VA_ARGS__) break; \
    case 5: CALL(5, ##__VA_ARGS__) break; \
    case 6: CALL(6, ##__VA_ARGS__) break;
#else
#define TILE_CASES_6(CALL, ...)
#endif
#if TILE >= 12
#define TILE_CASES(CALL, ...)               \
    TILE_CASES_6(CALL, ##__VA_ARGS__)       \
    case 7: CALL(7, ##__VA_ARGS__) break;   \
    case 8: CALL(8, ##__VA_ARGS__) break;   \
    case 9: CALL(9, ##__VA_ARGS__) break;   \
    case 10: CALL(10, ##__VA_ARGS__) break; \
    case 11: CALL(11, ##__VA_ARGS__) break; \
    case 12: CALL(12, ##__VA_ARGS__) break;
#else
#define TILE_CASES(CALL, ...) TILE_CASES_6(CALL, ##__VA_ARGS__)
#endif

#define FOR_GROUP_SIZES(CALL)           \
    if (group == PAIR) {               \
        FOR_TILE_SIZES(CALL, PAIR)     \
    } else {                            \
        FOR_TILE_SIZES(CALL, 1)         \
    }

/* All blocks: the tile of W stays in the first-level cache while the blocks pass. */
static void dense_forward(const Layer *layer, const float *params, const float *x, int blocks,
                          float *y, int64_t y_block) {
    int64_t x_block = (int64_t)layer->inputs * LANES;
    int tiles = count_tiles(layer->outputs, TILE);
    for (int tile = 0; tile < tiles; tile++) {
        int first = tile_start(layer->outputs, tile, tiles);
        int n = tile_start(layer->outputs, tile + 1, tiles) - first;
        const float *w = params + layer->weight + (int64_t)first * layer->inputs;
        const float *b = params + layer->bias + first;
        for (int block = 0; block < blocks; block += PAIR) {
            const float *in = x + block * x_block;
            float *out = y + block * y_block + (int64_t)first * LANES;
            int group = min_int(PAIR, blocks - block);
#define CALL(N, G) \
    dense_forward_tile(N, G, layer->inputs, w, b, in, x_block, out, y_block, layer->relu);
            FOR_GROUP_SIZES(CALL)
#undef CALL
        }
    }
}

static void dense_backward(const Layer *layer, const float *params, const float *grad_y,
                           int blocks, float *grad_x) {
    int tiles = count_tiles(layer->inputs, TILE);
    for (int block = 0; block < blocks; block += PAIR) {
        const float *in = grad_y + (int64_t)block * layer->outputs * LANES;
        int group = min_int(PAIR, blocks - block);
        for (int tile = 0; tile < tiles; tile++) {
            int first = tile_start(layer->inputs, tile, tiles);
            int n = tile_start(layer->inputs, tile + 1, tiles) - first;
            const float *w = params + layer->weight + first;
            float *out = grad_x + ((int64_t)block * layer->inputs + first) * LANES;
#define CALL(N, G) dense_backward_tile(N, G, layer->inputs, layer->outputs, w, in, out);
            FOR_GROUP_SIZES(CALL)
#undef CALL
        }
    }
}

static void dense_update(const Layer *layer, const float *grad_y, int batch, const float *rows,
                         int64_t row_stride, const Update *up) {
    int tiles = count_tiles(layer->outputs, TILE);
    for (int tile = 0; tile < tiles; tile++) {
        int first = tile_start(layer->outputs, tile, tiles);
        int n = tile_start(layer->outputs, tile + 1, tiles) - first;
        for (int first_input = 0; first_input < layer->inputs; first_input += PAIR * LANES) {
            int group = min_int(PAIR, count_tiles(layer->inputs - first_input, LANES));
            int64_t at = layer->weight + (int64_t)first * layer->inputs + first_input;
            const float *errors = grad_y + (int64_t)first * LANES;
#define CALL(N, G)                                                                               \
    dense_weights_tile(N, G, batch, layer->inputs, layer->outputs, first_input, at, errors,      \
                       rows + first_input, row_stride, up);
            FOR_GROUP_SIZES(CALL)
#undef CALL
        }
    }
    int blocks = count_tiles(batch, LANES);
    for (int o = 0; o < layer->outputs; o++) {
        vec sum = {0};
        for (int block = 0; block < blocks; block++)
            UNROLL for (int p = 0; p < PARTS; p++)
                sum += ((const vec *)(grad_y + ((int64_t)block * layer->outputs + o) * LANES))[p];
        descend_one(up, layer->bias + o, sum_lanes(sum));
    }
}

/* Copy activations [feature][LANES] of all blocks to rows [sample][feature]. */
static void to_rows(const float *x, int features, int batch, float *rows, int64_t row_stride) {
    for (int block = 0; block * LANES < batch; block++) {
        const float *in = x + (int64_t)block * features * LANES;
        int count = min_int(LANES, batch - block * LANES);
        for (int lane = 0; lane < count; lane++) {
            float *out = rows + (int64_t)(block * LANES + lane) * row_stride;
            for (int f = 0; f < features; f++) out[f] = in[(int64_t)f * LANES + lane];
        }
    }
}
