/* The mean of word vectors: y = sum_t E[c_t] / n over the n words c_t of a text. Code 0 is padding.

   E is (codes, outputs) row by row. A mini-batch has few of the codes, so that most rows of E have
   neither a gradient nor a velocity nor a penalty, and are left alone. */

#include "kernel.h"

/* Copy the codes of texts to [text][word]. */
static void read_codes(const Samples *data, const int32_t *rows, int batch, int32_t *codes) {
    int words = data->width;
    for (int b = 0; b < batch; b++) {
        int32_t *to = codes + (int64_t)b * words;
        int64_t from = (int64_t)rows[b] * words;
        if (data->kind == CODES_UINT8)
            for (int t = 0; t < words; t++) to[t] = ((const uint8_t *)data->x)[from + t];
        else
            for (int t = 0; t < words; t++) to[t] = ((const uint16_t *)data->x)[from + t];
    }
}

/* One divided by the number of words; 1 for a text without words. */
INLINE float word_share(const int32_t *text, int words) {
    int count = 0;
    for (int t = 0; t < words; t++) count += text[t] != 0;
    return 1.0f / max_int(count, 1);
}

/* Loop order: words outside, so that each row of E is read in order. The sum of a text stays in
   `row` (outputs,); it is written to its lane of the block at the end. */
static void word_mean_forward(const Layer *layer, const float *params, const int32_t *codes,
                              int batch, float *row, float *y, int64_t y_block) {
    int words = layer->inputs, width = layer->outputs;
    for (int b = 0; b < round_up(batch, LANES); b++) {
        const int32_t *text = codes + (int64_t)b * words;
        float share = b < batch ? word_share(text, words) : 0;
        memset(row, 0, sizeof(float) * width);
        for (int t = 0; t < words && b < batch; t++) {
            if (text[t] == 0) continue;
            const float *vector = params + layer->weight + (int64_t)text[t] * width;
            for (int f = 0; f < width; f++) row[f] += share * vector[f];
        }
        float *to = y + b / LANES * y_block + b % LANES;
        for (int f = 0; f < width; f++) to[(int64_t)f * LANES] = row[f];
    }
}

/* Mark the rows of E with codes in these texts. */
static void word_mean_mark(const Layer *layer, const int32_t *codes, int batch, uint8_t *used) {
    for (int64_t i = 0; i < (int64_t)batch * layer->inputs; i++) used[codes[i]] = 1;
}

/* Find the rows of E that have a velocity or a penalty before the first step. Both may be null. */
static void word_mean_start(const Layer *layer, const float *velocity, const Penalty *penalty,
                            const float *params, uint8_t *moves) {
    int width = layer->outputs;
    memset(moves, 0, layer->codes);
    if (!velocity && !penalty) return;
    for (int64_t code = 0; code < layer->codes; code++)
        for (int64_t at = layer->weight + code * width, f = 0; f < width; at++, f++) {
            double value = 0;
            if ((velocity && velocity[at] != 0) ||
                (penalty &&
                 (penalise_one(penalty, at, params[at], &value) != 0 || value != 0))) {
                moves[code] = 1;
                break;
            }
        }
}

/* One row of E receives its gradient. */
static void descend_row(const Update *up, int64_t at, const float *gradient, int width) {
    int f = 0;
    vec value = {0}; /* of the penalty */
    for (; f + WIDTH <= width; f += WIDTH)
        descend_vec(up, at + f, *(const uvec *)(gradient + f), &value);
    for (; f < width; f++) descend_one(up, at + f, gradient[f]);
    if (up->penalty) *up->penalty_value += sum_lanes(value);
}

/* Sort the words of a mini-batch by code: texts[starts[c]] .. texts[starts[c + 1] - 1] are the texts
   with word c in order, as often as it occurs. `starts` has codes + 2 numbers. */
static void sort_words(const Layer *layer, const int32_t *codes, int batch, int32_t *starts,
                       int32_t *texts) {
    int words = layer->inputs;
    memset(starts, 0, sizeof(int32_t) * (layer->codes + 2));
    for (int64_t i = 0; i < (int64_t)batch * words; i++) starts[codes[i] + 2] += codes[i] != 0;
    for (int c = 2; c < layer->codes + 2; c++) starts[c] += starts[c - 1];
    for (int b = 0; b < batch; b++)
        for (int t = 0; t < words; t++) {
            int32_t code = codes[(int64_t)b * words + t];
            if (code != 0) texts[starts[code + 1]++] = b;
        }
}

/* Return the first row of E from `code` on that changes; `codes` if there is none. */
INLINE int64_t find_row(const Layer *layer, const Buffers *mine, int changes_all, int64_t code) {
    while (code < layer->codes && !changes_all && !mine->moves[code] &&
           mine->starts[code] == mine->starts[code + 1])
        code++;
    return code;
}

/* Request numbers that are not in the cache: rows of E are far apart. */
INLINE void prefetch(const float *row, int width) {
    for (int f = 0; f < width; f += 16) __builtin_prefetch(row + f); /* 64 bytes */
}

/* Pass once over the rows of E that change, and add up the gradient of each in `row` (outputs,); a
   stored gradient has all rows. */
static void word_mean_update(const Layer *layer, const float *grad_y, int64_t grad_block,
                             const int32_t *codes, int batch, float *row, const Buffers *mine,
                             const Update *up) {
    int words = layer->inputs, width = layer->outputs;
    for (int b = 0; b < batch; b++) {
        const float *error = grad_y + b / LANES * grad_block + b % LANES;
        float share = word_share(codes + (int64_t)b * words, words);
        float *to = mine->errors + (int64_t)b * width;
        for (int f = 0; f < width; f++) to[f] = share * error[(int64_t)f * LANES];
    }
    sort_words(layer, codes, batch, mine->starts, mine->texts);
    int changes_all = up->gradient || up->decay != 0;
    int64_t next = 0;
    for (int64_t code = find_row(layer, mine, changes_all, 0); code < layer->codes; code = next) {
        next = find_row(layer, mine, changes_all, code + 1);
        int64_t soon = layer->weight + (next < layer->codes ? next : code) * width;
        if (up->params) prefetch(up->params + soon, width);
        if (up->velocity) prefetch(up->velocity + soon, width);
        int32_t first = mine->starts[code], last = mine->starts[code + 1];
        memset(row, 0, sizeof(float) * width);
        for (int32_t i = first; i < last; i++) {
            const float *error = mine->errors + (int64_t)mine->texts[i] * width;
            for (int f = 0; f < width; f++) row[f] += error[f];
        }
        descend_row(up, layer->weight + code * width, row, width);
        mine->moves[code] |= first < last && (up->velocity || up->penalty);
    }
}
