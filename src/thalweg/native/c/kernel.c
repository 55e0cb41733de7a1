/* The entry points: a client's local round, and predictions. See kernel.h for the layout. */

#include "kernel.h"

#include "dense.c"
#include "conv_pool.c"
#include "word_mean.c"
#include "gather.c"
#include "loss.c"
#include "supports.c"
#include "combine.c"
#include "share_weights.c"

/* --- workspace --- */

INLINE int64_t out_height(const Layer *l) { return l->kind == CONV_POOL ? conv_rows(l) / 2 : 1; }
INLINE int64_t out_width(const Layer *l) { return l->kind == CONV_POOL ? conv_columns(l) / 2 : 1; }

/* In tests with AddressSanitizer, unused memory between the buffers must not be touched. */
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define GAP 128
#define FORBID(start, end) __asan_poison_memory_region((start), (size_t)((end) - (start)))
#else
#define GAP 0
#define FORBID(start, end) (void)0
#endif

INLINE float *take(char *base, int64_t *at, int64_t bytes) {
    int64_t first = *at;
    *at += round_up(bytes, 64) + GAP;
    if (base) FORBID(base + first + bytes, base + *at);
    return base ? (float *)(base + first) : 0;
}

/* Place all buffers for mini-batches of up to `batch` samples; with base = null: count bytes. */
static Workspace lay_out(const Layer *layers, int count, int batch, int trains, char *base) {
    Workspace space = {0};
    int64_t blocks = count_tiles(batch, LANES), at = 0, scratch = 0;
    for (int i = 0; i < count; i++) {
        const Layer *layer = layers + i;
        Buffers *mine = space.layer + i;
        int64_t inner = (int64_t)layer->inputs * layer->height * layer->width * LANES;
        int padding = layer->kind == CONV_POOL ? layer->padding : 0;
        mine->block = (int64_t)layer->inputs * (layer->height + 2 * padding) *
                      (layer->width + 2 * padding) * LANES;
        mine->grad_block = inner;
        mine->x = take(base, &at, 4 * blocks * mine->block);
        if (layer->kind == WORD_MEAN) scratch = layer->outputs;
        if (!trains) continue;
        if (i > 0) mine->grad_x = take(base, &at, 4 * blocks * inner);
        if (layer->kind == DENSE) {
            mine->row_stride = round_up(layer->inputs, LANES);
            mine->rows = take(base, &at, 4 * blocks * LANES * mine->row_stride);
        } else if (layer->kind == WORD_MEAN) {
            mine->errors = take(base, &at, 4 * blocks * LANES * layer->outputs);
            mine->starts = (int32_t *)take(base, &at, 4 * ((int64_t)layer->codes + 2));
            mine->texts = (int32_t *)take(base, &at, 4 * blocks * LANES * layer->inputs);
            mine->moves = (uint8_t *)take(base, &at, layer->codes);
            mine->used = (uint8_t *)take(base, &at, layer->codes);
        } else {
            mine->place_block = (int64_t)layer->outputs * out_height(layer) * out_width(layer) * LANES;
            mine->place = (int8_t *)take(base, &at, blocks * mine->place_block);
            int64_t weights = (int64_t)layer->outputs * layer->inputs * layer->kernel * layer->kernel;
            int64_t map = (int64_t)layer->outputs * conv_rows(layer) * conv_columns(layer) * LANES;
            int64_t need = round_up(map, LANES) + 2 * round_up(weights + layer->outputs, LANES);
            scratch = need > scratch ? need : scratch;
        }
    }
    int outputs = layers[count - 1].outputs;
    space.logits = take(base, &at, 4 * blocks * outputs * LANES);
    if (trains) space.grad_logits = take(base, &at, 4 * blocks * outputs * LANES);
    space.scratch = take(base, &at, 4 * scratch);
    space.bytes = at;
    return space;
}

int64_t thalweg_workspace(const Layer *layers, int32_t count, int32_t batch, int32_t trains) {
    return lay_out(layers, count, batch, trains, 0).bytes;
}

/* --- forward and backward --- */

static void forward(const Layer *layers, int count, const float *params, const Workspace *space,
                    int batch, int trains) {
    int blocks = count_tiles(batch, LANES);
    for (int i = 0; i < count; i++) {
        const Layer *layer = layers + i;
        const Buffers *mine = space->layer + i;
        int is_last = i == count - 1;
        float *y = is_last ? space->logits : mine[1].x;
        int64_t y_block = is_last ? (int64_t)layer->outputs * LANES : mine[1].block;
        if (layer->kind == DENSE) {
            dense_forward(layer, params, mine->x, blocks, y, y_block);
            continue;
        }
        if (layer->kind == WORD_MEAN) {
            word_mean_forward(layer, params, (const int32_t *)mine->x, batch, space->scratch, y,
                              y_block);
            continue;
        }
        int padding = is_last || layer[1].kind == DENSE ? 0 : layer[1].padding;
        Strides to = {.row = (out_width(layer) + 2 * padding) * LANES};
        to.channel = (out_height(layer) + 2 * padding) * to.row;
        for (int block = 0; block < blocks; block++)
            conv_forward(layer, params, mine->x + block * mine->block,
                         y + block * y_block + padding * to.row + padding * LANES, to,
                         trains ? mine->place + block * mine->place_block : 0);
    }
}

/* Set the gradient to zero where the ReLU of the activations was zero. */
static void relu_backward(const float *y, float *grad, int64_t count) {
    for (int64_t i = 0; i < count; i += WIDTH) {
        vec *g = (vec *)(grad + i);
        *g = (vec)((ivec)*g & is_passed(*(const vec *)(y + i)));
    }
}

static void conv_layer_backward(const Layer *layer, const Buffers *mine, const float *grad_y,
                                int64_t grad_block, int blocks, const float *params,
                                float *scratch, const Update *up) {
    int64_t taps = (int64_t)layer->inputs * layer->kernel * layer->kernel;
    int64_t weights = layer->outputs * taps;
    int64_t channel = (int64_t)conv_rows(layer) * conv_columns(layer) * LANES;
    int64_t pooled = out_height(layer) * out_width(layer) * LANES;
    float *map = scratch, *sums = scratch + round_up(layer->outputs * channel, LANES);
    float *turned = sums + round_up(weights + layer->outputs, LANES);
    memset(sums, 0, sizeof(float) * (weights + layer->outputs));
    if (mine->grad_x) turn_weights(layer, params, turned);
    for (int block = 0; block < blocks; block++) {
        for (int o = 0; o < layer->outputs; o++)
            unpool(conv_rows(layer), conv_columns(layer), grad_y + block * grad_block + o * pooled,
                   mine->place + block * mine->place_block + o * pooled, map + o * channel);
        conv_weights(layer, map, mine->x + block * mine->block, sums);
        if (mine->grad_x)
            conv_backward(layer, turned, map, mine->grad_x + block * mine->grad_block);
    }
    for (int64_t i = 0; i < weights; i++) descend_one(up, layer->weight + i, sums[i]);
    for (int o = 0; o < layer->outputs; o++) descend_one(up, layer->bias + o, sums[weights + o]);
}

/* Add a gradient [sample][feature] to one in blocks. */
static void add_rows(const float *rows, int features, int batch, float *grad) {
    for (int b = 0; b < batch; b++) {
        float *to = grad + (int64_t)(b / LANES) * features * LANES + b % LANES;
        for (int f = 0; f < features; f++) to[(int64_t)f * LANES] += rows[(int64_t)b * features + f];
    }
}

/* Gradients from the last layer to the first. Each layer computes the gradient of its input
   before its own parameters change. `grad_features` is an additional gradient of the input of the
   last layer (B, F), or null. */
static void backward(const Layer *layers, int count, const float *params, const Workspace *space,
                     int batch, const float *grad_features, const Update *up) {
    int blocks = count_tiles(batch, LANES);
    const float *grad_y = space->grad_logits;
    int64_t grad_block = (int64_t)layers[count - 1].outputs * LANES;
    for (int i = count - 1; i >= 0; i--) {
        const Layer *layer = layers + i;
        const Buffers *mine = space->layer + i;
        if (layer->kind == DENSE) {
            if (mine->grad_x) {
                dense_backward(layer, params, grad_y, blocks, mine->grad_x);
                if (grad_features && i == count - 1)
                    add_rows(grad_features, layer->inputs, batch, mine->grad_x);
                if (layer[-1].kind == DENSE && layer[-1].relu)
                    relu_backward(mine->x, mine->grad_x, blocks * mine->grad_block);
                to_rows(mine->x, layer->inputs, batch, mine->rows, mine->row_stride);
            }
            dense_update(layer, grad_y, batch, mine->rows, mine->row_stride, up);
        } else if (layer->kind == WORD_MEAN) {
            word_mean_update(layer, grad_y, grad_block, (const int32_t *)mine->x, batch,
                             space->scratch, mine, up);
        } else {
            conv_layer_backward(layer, mine, grad_y, grad_block, blocks, params, space->scratch, up);
        }
        grad_y = mine->grad_x;
        grad_block = mine->grad_block;
    }
}

/* Copy samples into the input of the first layer. */
static void load(const Layer *layers, const Workspace *space, const Samples *data,
                 const int32_t *rows, int batch, int trains) {
    const Buffers *first = space->layer;
    if (layers[0].kind == WORD_MEAN) {
        read_codes(data, rows, batch, (int32_t *)first->x);
        return;
    }
    int padding = layers[0].kind == CONV_POOL ? layers[0].padding : 0;
    if (trains && layers[0].kind == DENSE) /* first, as it reads long pieces of memory */
        gather_rows(data, rows, batch, first->rows, first->row_stride);
    for (int block = 0; block * LANES < batch; block++)
        gather_block(data, rows + block * LANES, min_int(LANES, batch - block * LANES), padding,
                     first->x + block * first->block);
}

/* Copy numbers [feature][LANES] of all blocks to rows (B, F) without gaps. */
static void store(const float *blocks, int features, int batch, float *rows) {
    to_rows(blocks, features, batch, rows, features);
}

/* --- entry points ---

   `base` is a workspace of `thalweg_workspace` bytes, aligned to 64 and set to zero before its
   first use. A workspace belongs to one net, one number of samples and one thread. */

/* The mini-batches of K clients in S steps, as in engine.stacked.StackTask. */
typedef struct {
    const int32_t *rows;   /* (S, K, B) rows of the samples */
    const void *targets;   /* (S, K, B) labels, int64, or (S, K, B, outputs) numbers, float32 */
    const float *weights;  /* (S, K, B) */
    const int32_t *sizes;  /* (S, K) samples of a mini-batch; 0: no step */
    int32_t steps, clients, width, loss;
} Batches;

/* Return the penalty of row k of the arrays. */
static Penalty choose_row(const Penalty *penalty, int64_t k, int64_t num_params) {
    Penalty row = *penalty;
    if (row.curvature) row.curvature += k * num_params;
    if (row.centre) row.centre += k * num_params;
    if (row.slope) row.slope += k * num_params;
    return row;
}

/* Take the steps of client k. Changes up->params and up->velocity, and adds values of the penalty
   to up->penalty_value; returns the sum of the other losses. */
static double train_client(const Layer *layers, int count, const Samples *data,
                           const Batches *batches, int k, const Update *up,
                           const Workspace *space) {
    int outputs = layers[count - 1].outputs;
    int64_t target_bytes = batches->loss == CROSS_ENTROPY ? 8 : 4 * outputs;
    double total = 0;
    for (int s = 0; s < batches->steps; s++) {
        int64_t which = (int64_t)s * batches->clients + k, first = which * batches->width;
        int batch = batches->sizes[which];
        if (batch == 0) continue;
        load(layers, space, data, batches->rows + first, batch, 1);
        forward(layers, count, up->params, space, batch, 1);
        total += weighted_loss(batches->loss, space->logits, space->grad_logits, outputs, batch,
                               (const char *)batches->targets + first * target_bytes,
                               batches->weights + first);
        backward(layers, count, up->params, space, batch, 0, up);
    }
    return total;
}

/* Train client k in place: `params` and `velocity` (P,); velocity is null without momentum. The
   penalty is null, or has one row. Returns the sum of losses. */
double thalweg_steps(const Layer *layers, int32_t count, const Samples *data,
                     const Batches *batches, int32_t k, float *params, float *velocity, float lr,
                     float momentum, float decay, const Penalty *penalty, char *base) {
    Workspace space = lay_out(layers, count, batches->width, 1, base);
    double value = 0;
    Update up = {params, velocity, 0, lr, momentum, decay, penalty, &value};
    if (layers[0].kind == WORD_MEAN)
        word_mean_start(layers, velocity, penalty, params, space.layer[0].moves);
    double fit = train_client(layers, count, data, batches, k, &up, &space);
    return fit + value;
}

/* Numbers first .. last - 1 of the parameter vector, and whether a client changes them. */
typedef struct {
    int64_t first, last;
    int changes;
} Piece;

/* Return the piece that begins at `first`. `used`: of `word_mean_mark`; null: all changes. */
static Piece find_piece(const Layer *layers, const uint8_t *used, int64_t num_params,
                        int64_t first) {
    int64_t width = layers->outputs, code = first / width;
    if (!used || code >= layers->codes) return (Piece){first, num_params, 1};
    int changes = used[code];
    while (code < layers->codes && used[code] == changes) code++;
    return (Piece){first, code * width, changes};
}

/* Mark the rows of word vectors in the samples of client k. */
static void mark_used(const Layer *layers, const Samples *data, const Batches *batches, int k,
                      const Workspace *space) {
    const Buffers *mine = space->layer;
    memset(mine->used, 0, layers->codes);
    for (int s = 0; s < batches->steps; s++) {
        int64_t which = (int64_t)s * batches->clients + k;
        int batch = batches->sizes[which];
        load(layers, space, data, batches->rows + which * batches->width, batch, 1);
        word_mean_mark(layers, (const int32_t *)mine->x, batch, mine->used);
    }
}

/* Train clients first .. last - 1, each from row models[k] of the bank (M, P). Writes their
   changes to rows of `deltas` (K, P) and the sums of their losses to `losses` (K,). The penalty is
   null, or has a row for each of these clients. `velocity` has room for one client (P numbers).

   The parameters of a client are in its row of `deltas` while it is trained. Without decay and
   penalty, word vectors that are not in its samples have no velocity and are not copied. */
void thalweg_train(const Layer *layers, int32_t count, const Samples *data,
                   const Batches *batches, int32_t first, int32_t last, const float *bank,
                   int64_t num_params, const int64_t *models, const float *lrs, float momentum,
                   float decay, const Penalty *penalty, float *deltas, double *losses,
                   float *velocity, char *base) {
    Workspace space = lay_out(layers, count, batches->width, 1, base);
    int is_sparse = layers[0].kind == WORD_MEAN && decay == 0 && !penalty;
    const uint8_t *used = is_sparse ? space.layer[0].used : 0;
    if (momentum == 0) velocity = 0;
    for (int k = first; k < last; k++) {
        const float *start = bank + models[k] * num_params;
        float *own = deltas + k * num_params;
        if (used) mark_used(layers, data, batches, k, &space);
        for (Piece p = {0}; p.last < num_params;) {
            p = find_piece(layers, used, num_params, p.last);
            if (!p.changes) continue;
            memcpy(own + p.first, start + p.first, sizeof(float) * (p.last - p.first));
            if (velocity) memset(velocity + p.first, 0, sizeof(float) * (p.last - p.first));
        }
        Penalty mine;
        if (penalty) mine = choose_row(penalty, k - first, num_params);
        double value = 0;
        Update up = {own, velocity, 0, lrs[k], momentum, decay, penalty ? &mine : 0, &value};
        if (layers[0].kind == WORD_MEAN)
            word_mean_start(layers, 0, up.penalty, own, space.layer[0].moves);
        losses[k] = train_client(layers, count, data, batches, k, &up, &space) + value;
        for (Piece p = {0}; p.last < num_params;) {
            p = find_piece(layers, used, num_params, p.last);
            const float *end = p.changes ? own : start; /* not zero where start is not finite */
            for (int64_t i = p.first; i < p.last; i++) own[i] = end[i] - start[i];
        }
    }
}

/* Outputs of models on the same rows, in batches of `batch` samples. Each batch is loaded once and
   then computed with one model after the other. `bank` is (models, num_params). The outputs (n, C)
   of model m begin at outputs + m * stride. */
void thalweg_predict(const Layer *layers, int32_t count, const Samples *data, int64_t n,
                     const int32_t *rows, int32_t batch, const float *bank, int64_t models,
                     int64_t num_params, float *outputs, int64_t stride, char *base) {
    Workspace space = lay_out(layers, count, batch, 0, base);
    int C = layers[count - 1].outputs;
    for (int64_t first = 0; first < n; first += batch) {
        int size = (int)(n - first < batch ? n - first : batch);
        load(layers, &space, data, rows + first, size, 0);
        for (int64_t m = 0; m < models; m++) {
            forward(layers, count, bank + m * num_params, &space, size, 0);
            store(space.logits, C, size, outputs + m * stride + first * C);
        }
    }
}

/* Outputs (B, C) and inputs of the last layer (B, F) of one model on rows. If `trains`, the
   workspace keeps what `thalweg_backward` needs. */
void thalweg_forward(const Layer *layers, int32_t count, const Samples *data, int32_t batch,
                     const int32_t *rows, const float *params, int32_t trains, float *outputs,
                     float *features, char *base) {
    Workspace space = lay_out(layers, count, batch, 1, base);
    const Layer *last = layers + count - 1;
    load(layers, &space, data, rows, batch, trains);
    forward(layers, count, params, &space, batch, trains);
    store(space.logits, last->outputs, batch, outputs);
    if (features) store(space.layer[count - 1].x, last->inputs, batch, features);
}

/* The gradient (P,) for the gradients of the outputs (B, C) and features (B, F; or null). */
void thalweg_backward(const Layer *layers, int32_t count, int32_t batch, const float *params,
                      const float *grad_outputs, const float *grad_features, float *gradient,
                      char *base) {
    Workspace space = lay_out(layers, count, batch, 1, base);
    int C = layers[count - 1].outputs;
    memset(space.grad_logits, 0, sizeof(float) * round_up(batch, LANES) * C);
    add_rows(grad_outputs, C, batch, space.grad_logits);
    Update up = {.gradient = gradient};
    backward(layers, count, params, &space, batch, grad_features, &up);
}
