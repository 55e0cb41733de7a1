/* The mean of word vectors: y = sum_t E[c_t] / n over the n words c_t of a text. Code 0 is padding.

   E is (codes, outputs) row by row. A mini-batch has few of the codes, so that most rows of E have
   neither a gradient nor a velocity nor a penalty, and are left alone. */

#include "kernel.h"

enum { TOUCHED = 1, MOVING = 2 }; /* a row with a gradient; one with a velocity or penalty */

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

/* Mark the rows of E that have a velocity or a penalty, before the first step. */
static void word_mean_start(const Layer *layer, const Update *up, uint8_t *state) {
    int width = layer->outputs;
    memset(state, 0, layer->codes);
    if (!up->velocity && !up->penalty) return;
    for (int64_t code = 0; code < layer->codes; code++)
        for (int64_t at = layer->weight + code * width, f = 0; f < width; at++, f++) {
            double value = 0;
            if ((up->velocity && up->velocity[at] != 0) ||
                (up->penalty &&
                 (penalise_one(up->penalty, at, up->params[at], &value) != 0 || value != 0))) {
                state[code] = MOVING;
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

/* Add up the gradients of the rows of E in `sums` (codes, outputs), which is zero before and
   after. Then pass once over the rows that change; a stored gradient has all rows. */
static void word_mean_update(const Layer *layer, const float *grad_y, int64_t grad_block,
                             const int32_t *codes, int batch, float *row, float *sums,
                             uint8_t *state, const Update *up) {
    int words = layer->inputs, width = layer->outputs;
    for (int b = 0; b < batch; b++) {
        const int32_t *text = codes + (int64_t)b * words;
        const float *error = grad_y + b / LANES * grad_block + b % LANES;
        float share = word_share(text, words);
        for (int f = 0; f < width; f++) row[f] = share * error[(int64_t)f * LANES];
        for (int t = 0; t < words; t++) {
            if (text[t] == 0) continue;
            state[text[t]] |= TOUCHED;
            float *sum = sums + (int64_t)text[t] * width;
            for (int f = 0; f < width; f++) sum[f] += row[f];
        }
    }
    int changes_all = up->gradient || up->decay != 0;
    for (int64_t code = 0; code < layer->codes; code++) {
        if (!state[code] && !changes_all) continue;
        float *sum = sums + code * width;
        descend_row(up, layer->weight + code * width, sum, width);
        if (state[code] & TOUCHED) memset(sum, 0, sizeof(float) * width);
        state[code] = state[code] && (up->velocity || up->penalty) ? MOVING : 0;
    }
}
