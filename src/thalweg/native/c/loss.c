/* Losses of a mini-batch and their gradients in the outputs of the net. */

#include "kernel.h"

/* Cross-entropy of one sample; `z` are its logits, LANES numbers apart. */
INLINE float log_sum_exp(const float *z, int classes) {
    float most = z[0];
    for (int c = 1; c < classes; c++) most = z[c * LANES] > most ? z[c * LANES] : most;
    float sum = 0;
    for (int c = 0; c < classes; c++) sum += expf(z[c * LANES] - most);
    return most + logf(sum);
}

/* Return the weighted loss of a batch; write its gradient in the logits. `targets` are labels
   (int64) of the cross-entropy, or numbers (float32, `outputs` per sample) of the squared error,
   which is the mean over the outputs. Samples that fill up the last block have gradient zero. */
static double weighted_loss(int kind, const float *logits, float *grad, int outputs, int batch,
                            const void *targets, const float *weights) {
    float total = 0;
    for (int b = 0; b < (int)round_up(batch, LANES); b++) {
        int64_t at = (int64_t)(b / LANES) * outputs * LANES + b % LANES;
        const float *z = logits + at;
        float *g = grad + at;
        if (b >= batch || weights[b] == 0) {
            for (int c = 0; c < outputs; c++) g[c * LANES] = 0;
        } else if (kind == CROSS_ENTROPY) {
            int64_t label = ((const int64_t *)targets)[b];
            float normaliser = log_sum_exp(z, outputs);
            total += weights[b] * (normaliser - z[label * LANES]);
            for (int c = 0; c < outputs; c++)
                g[c * LANES] = weights[b] * (expf(z[c * LANES] - normaliser) - (c == label));
        } else {
            const float *y = (const float *)targets + (int64_t)b * outputs;
            float sum = 0;
            for (int c = 0; c < outputs; c++) {
                float error = z[c * LANES] - y[c];
                sum += error * error;
                g[c * LANES] = weights[b] * 2 * error / outputs;
            }
            total += weights[b] * sum / outputs;
        }
    }
    return total;
}
