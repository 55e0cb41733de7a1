/* Convolution with stride 1, 2x2 max-pooling, bias and ReLU in one layer, on one block of samples.

   The input x [I][height + 2 padding][width + 2 padding][LANES] has its padding in memory. The
   output has half the sides; an odd last row or column of the convolution is dropped. */

#include "kernel.h"

INLINE int conv_rows(const Layer *layer) { /* rows of the convolution that are pooled */
    return (layer->height + 2 * layer->padding - layer->kernel + 1) / 2 * 2;
}
INLINE int conv_columns(const Layer *layer) {
    return (layer->width + 2 * layer->padding - layer->kernel + 1) / 2 * 2;
}

/* Where a layer writes its output: numbers between channels and rows, in LANES. */
typedef struct {
    int64_t channel, row;
} Strides;

/* n channels of one pooled position.

   Loop order: the four positions, PAIR at a time; within them the input channels and the kernel
   taps; n x PAIR x PARTS accumulators stay in registers. The best of the four is kept with its
   number. A later position must be greater to win, or not a number, as in PyTorch. */
INLINE void conv_forward_tile(const int n, const int k, int inputs, const float *w, const float *b,
                              const float *x, int64_t x_channel, int64_t x_row, float *y,
                              int64_t y_channel, int8_t *place, int64_t place_channel) {
    vec best[TILE][PARTS];
    ivec where[TILE][PARTS];
    int64_t w_output = (int64_t)inputs * k * k;
    for (int first = 0; first < 4; first += PAIR) {
        const float *corner = x + (first / 2) * x_row + (first % 2) * LANES;
        vec sum[TILE][PAIR][PARTS];
        UNROLL for (int t = 0; t < n; t++) UNROLL for (int s = 0; s < PAIR; s++)
            UNROLL for (int p = 0; p < PARTS; p++) sum[t][s][p] = (vec){0};
        for (int i = 0; i < inputs; i++)
            for (int kr = 0; kr < k; kr++) {
                const float *in = corner + i * x_channel + kr * x_row;
                const float *taps = w + (int64_t)(i * k + kr) * k;
                UNROLL for (int kc = 0; kc < k; kc++) {
                    const vec *v = (const vec *)(in + kc * LANES);
                    UNROLL for (int t = 0; t < n; t++) {
                        float weight = taps[t * w_output + kc];
                        UNROLL for (int s = 0; s < PAIR; s++) UNROLL for (int p = 0; p < PARTS; p++)
                            sum[t][s][p] += weight * v[s * PARTS + p];
                    }
                }
            }
        UNROLL for (int t = 0; t < n; t++) UNROLL for (int s = 0; s < PAIR; s++)
            UNROLL for (int p = 0; p < PARTS; p++) {
                vec each = sum[t][s][p];
                if (first + s == 0) {
                    best[t][p] = each;
                    where[t][p] = (ivec){0};
                } else {
                    ivec wins = (each > best[t][p]) | (each != each);
                    best[t][p] = choose(wins, each, best[t][p]);
                    where[t][p] = ((first + s) & wins) | (where[t][p] & ~wins);
                }
            }
    }
    UNROLL for (int t = 0; t < n; t++) UNROLL for (int p = 0; p < PARTS; p++) {
        vec out = best[t][p] + b[t];
        ivec positive = is_passed(out);
        ((vec *)(y + t * y_channel))[p] = (vec)((ivec)out & positive);
        if (place) /* -1 where ReLU is zero: no gradient */
            *(bvec *)(place + t * place_channel + p * WIDTH) =
                __builtin_convertvector(where[t][p] | ~positive, bvec);
    }
}

INLINE void conv_forward_size(const int k, const Layer *layer, const float *params, const float *x,
                              float *y, Strides to, int8_t *place) {
    int rows = conv_rows(layer) / 2, columns = conv_columns(layer) / 2;
    int64_t x_row = (int64_t)(layer->width + 2 * layer->padding) * LANES;
    int64_t x_channel = (int64_t)(layer->height + 2 * layer->padding) * x_row;
    int64_t place_channel = (int64_t)rows * columns * LANES;
    int tiles = count_tiles(layer->outputs, TILE);
    for (int tile = 0; tile < tiles; tile++) {
        int first = tile_start(layer->outputs, tile, tiles);
        int n = tile_start(layer->outputs, tile + 1, tiles) - first;
        const float *w = params + layer->weight + (int64_t)first * layer->inputs * k * k;
        const float *b = params + layer->bias + first;
        for (int r = 0; r < rows; r++)
            for (int c = 0; c < columns; c++) {
                const float *in = x + 2 * r * x_row + 2 * c * LANES;
                float *out = y + first * to.channel + r * to.row + c * LANES;
                int8_t *won = place ? place + first * place_channel + (r * columns + c) * LANES : 0;
#define CALL(N)                                                                                   \
    conv_forward_tile(N, k, layer->inputs, w, b, in, x_channel, x_row, out, to.channel, won,      \
                      place_channel);
                FOR_TILE_SIZES(CALL)
#undef CALL
            }
    }
}

static void conv_forward(const Layer *layer, const float *params, const float *x, float *y,
                         Strides to, int8_t *place) {
    if (layer->kernel == 3)
        conv_forward_size(3, layer, params, x, y, to, place);
    else
        conv_forward_size(5, layer, params, x, y, to, place);
}

/* Undo pooling and ReLU: the gradient of one channel of the convolution, [rows][columns][LANES]. */
static void unpool(int rows, int columns, const float *grad_y, const int8_t *place, float *grad) {
    for (int r = 0; r < rows; r += 2)
        for (int c = 0; c < columns; c += 2) {
            int64_t from = (int64_t)((r / 2) * (columns / 2) + c / 2) * LANES;
            UNROLL for (int p = 0; p < PARTS; p++) {
                vec g = *(const vec *)(grad_y + from + p * WIDTH);
                ivec won = __builtin_convertvector(*(const bvec *)(place + from + p * WIDTH), ivec);
                UNROLL for (int position = 0; position < 4; position++) {
                    int64_t to = (int64_t)((r + position / 2) * columns + c + position % 2) * LANES;
                    ((vec *)(grad + to))[p] = (vec)((ivec)g & (won == position));
                }
            }
        }
}

/* Add the weight gradient of n output channels, one input channel and one kernel row.

   g[o][kc] = sum over rows, columns and lanes of grad[o][r][c] x[r + kr][c + kc]

   Loop order: all positions of the image are the inner loop, n x k accumulators stay in registers;
   one step loads n vectors of the gradient and k of the input for n x k multiply-adds. */
INLINE void conv_weights_tile(const int n, const int k, int rows, int columns, const float *grad,
                              int64_t grad_channel, const float *x, int64_t x_row, float *sums,
                              int64_t sums_output) {
    vec sum[4][5];
    UNROLL for (int t = 0; t < n; t++) UNROLL for (int kc = 0; kc < k; kc++) sum[t][kc] = (vec){0};
    for (int r = 0; r < rows; r++) {
        const float *in = x + r * x_row;
        const float *errors = grad + (int64_t)r * columns * LANES;
        for (int at = 0; at < columns * LANES; at += WIDTH) {
            vec e[4];
            UNROLL for (int t = 0; t < n; t++) e[t] = *(const vec *)(errors + t * grad_channel + at);
            UNROLL for (int kc = 0; kc < k; kc++) {
                vec v = *(const vec *)(in + at + kc * LANES);
                UNROLL for (int t = 0; t < n; t++) sum[t][kc] += e[t] * v;
            }
        }
    }
    UNROLL for (int t = 0; t < n; t++) UNROLL for (int kc = 0; kc < k; kc++)
        sums[t * sums_output + kc] += sum_lanes(sum[t][kc]);
}

/* Gradients of weights and bias of one block are added to `sums`: the weights, then the bias. */
INLINE void conv_weights_size(const int n, const int k, const Layer *layer, const float *grad,
                              const float *x, float *sums) {
    int rows = conv_rows(layer), columns = conv_columns(layer);
    int64_t x_row = (int64_t)(layer->width + 2 * layer->padding) * LANES;
    int64_t x_channel = (int64_t)(layer->height + 2 * layer->padding) * x_row;
    int64_t grad_channel = (int64_t)rows * columns * LANES;
    int64_t sums_output = (int64_t)layer->inputs * k * k;
    for (int o = 0; o < layer->outputs; o += n) {
        int count = min_int(n, layer->outputs - o);
        const float *errors = grad + o * grad_channel;
        for (int i = 0; i < layer->inputs; i++)
            for (int kr = 0; kr < k; kr++) {
                const float *in = x + i * x_channel + kr * x_row;
                float *to = sums + o * sums_output + (int64_t)(i * k + kr) * k;
#define WEIGHTS(N) \
    conv_weights_tile(N, k, rows, columns, errors, grad_channel, in, x_row, to, sums_output);
                switch (count) {
                case 1: WEIGHTS(1) break;
                case 2: WEIGHTS(2) break;
                case 3: if (n >= 3) { WEIGHTS(3) } break;
                case 4: if (n >= 4) { WEIGHTS(4) } break;
                }
#undef WEIGHTS
            }
    }
    float *bias = sums + layer->outputs * sums_output;
    for (int o = 0; o < layer->outputs; o++) {
        vec sum = {0};
        const vec *errors = (const vec *)(grad + o * grad_channel);
        for (int64_t at = 0; at < grad_channel / WIDTH; at++) sum += errors[at];
        bias[o] += sum_lanes(sum);
    }
}

static void conv_weights(const Layer *layer, const float *grad, const float *x, float *sums) {
    if (layer->kernel == 3)
        conv_weights_size(4, 3, layer, grad, x, sums);
    else
        conv_weights_size(2, 5, layer, grad, x, sums);
}

typedef struct { /* the taps of a position that do not fall outside the convolution */
    int row, last_row, column, last_column;
} Taps;

/* Add the parts of `chains` output channels from o on to n x chains sums. */
INLINE void conv_backward_add(const int n, const int chains, const int k, const Layer *layer,
                              const float *w, const float *grad, int64_t channel, int64_t row,
                              int o, Taps taps, vec sum[TILE][PAIR][PARTS]) {
    int64_t weights = (int64_t)k * k * layer->inputs;
    for (int kr = taps.row; kr <= taps.last_row; kr++)
        for (int kc = taps.column; kc <= taps.last_column; kc++) {
            const float *from = grad + o * channel - kr * row - kc * LANES;
            const float *factors = w + o * weights + (int64_t)(kr * k + kc) * layer->inputs;
            UNROLL for (int h = 0; h < chains; h++) UNROLL for (int t = 0; t < n; t++) {
                float weight = factors[h * weights + t];
                const vec *v = (const vec *)(from + h * channel);
                UNROLL for (int p = 0; p < PARTS; p++) sum[t][h][p] += weight * v[p];
            }
        }
}

/* grad_x[i][y][x] = sum over o, kr, kc of w[o][i][kr][kc] grad[o][y - kr][x - kc], for n channels i.

   Loop order: output channels and kernel taps are the inner loops; taps that fall outside the
   convolution are skipped by the bounds of the loops. `w` is arranged [o][kr][kc][i]. */
INLINE void conv_backward_tile(const int n, const int k, const Layer *layer, const float *w,
                               const float *grad, int rows, int columns, int y, int x,
                               float *grad_x, int64_t grad_x_channel) {
    vec sum[TILE][PAIR][PARTS];
    UNROLL for (int t = 0; t < n; t++) UNROLL for (int h = 0; h < PAIR; h++)
        UNROLL for (int p = 0; p < PARTS; p++) sum[t][h][p] = (vec){0};
    Taps taps = {max_int(0, y - rows + 1), min_int(k - 1, y), max_int(0, x - columns + 1),
                 min_int(k - 1, x)};
    int64_t row = (int64_t)columns * LANES, channel = rows * row;
    const float *from = grad + y * row + x * LANES;
    int o = 0;
    for (; o + PAIR <= layer->outputs; o += PAIR)
        conv_backward_add(n, PAIR, k, layer, w, from, channel, row, o, taps, sum);
    for (; o < layer->outputs; o++)
        conv_backward_add(n, 1, k, layer, w, from, channel, row, o, taps, sum);
    UNROLL for (int t = 0; t < n; t++) UNROLL for (int p = 0; p < PARTS; p++) {
        vec total = sum[t][0][p];
        UNROLL for (int h = 1; h < PAIR; h++) total += sum[t][h][p];
        ((vec *)(grad_x + t * grad_x_channel))[p] = total;
    }
}

INLINE void conv_backward_size(const int k, const Layer *layer, const float *w, const float *grad,
                               float *grad_x) {
    int rows = conv_rows(layer), columns = conv_columns(layer);
    int64_t channel = (int64_t)layer->height * layer->width * LANES;
    int tiles = count_tiles(layer->inputs, TILE);
    for (int tile = 0; tile < tiles; tile++) {
        int first = tile_start(layer->inputs, tile, tiles);
        int n = tile_start(layer->inputs, tile + 1, tiles) - first;
        for (int y = 0; y < layer->height; y++)
            for (int x = 0; x < layer->width; x++) {
                float *out = grad_x + first * channel + (int64_t)(y * layer->width + x) * LANES;
#define CALL(N)                                                                                  \
    conv_backward_tile(N, k, layer, w + first, grad, rows, columns, y + layer->padding,          \
                       x + layer->padding, out, channel);
                FOR_TILE_SIZES(CALL)
#undef CALL
            }
    }
}

/* `turned` has room for the weights, which are copied to the order [o][kr][kc][i]. */
static void turn_weights(const Layer *layer, const float *params, float *turned) {
    int k2 = layer->kernel * layer->kernel;
    for (int o = 0; o < layer->outputs; o++)
        for (int tap = 0; tap < k2; tap++)
            for (int i = 0; i < layer->inputs; i++)
                turned[((int64_t)o * k2 + tap) * layer->inputs + i] =
                    params[layer->weight + ((int64_t)o * layer->inputs + i) * k2 + tap];
}

static void conv_backward(const Layer *layer, const float *turned, const float *grad,
                          float *grad_x) {
    if (layer->kernel == 3)
        conv_backward_size(3, layer, turned, grad, grad_x);
    else
        conv_backward_size(5, layer, turned, grad, grad_x);
}
