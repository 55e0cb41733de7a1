/* Losses of a mini-batch and their gradients in the outputs of the net. */

#include "kernel.h"

/* exp(x) for x <= 0, to a unit in the last place; zero below -87.

   x = n log 2 + r with a whole n: exp(r) is a polynomial, and n is added to the exponent. Adding
   1.5 * 2^23 rounds to a whole number, which is then in the low bits. The logarithm of 2 has two
   parts, so that n times the first one is exact. A number that is not a number stays one. */
INLINE vec exp_negative(vec x) {
    const float shift = 12582912.0f;
    ivec is_zero = x < -87;
    x = choose(is_zero, (vec){0}, x);
    vec shifted = x * 1.44269504f + shift, n = shifted - shift;
    vec r = x - n * 0.693359375f + n * 2.12194440e-4f;
    vec p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1;
    ivec power = ((ivec)shifted - 0x4b400000 + 127) << 23;
    return choose(is_zero, (vec){0}, p * (vec)power);
}

/* Return the weighted cross-entropy of one block; write its gradient in the logits [C][LANES].

   Loop order: the classes are the inner loop, for a whole vector of samples. */
static float cross_entropy_block(const float *logits, float *grad, int classes, int count,
                                 const int64_t *labels, const float *weights) {
    float weight[LANES] __attribute__((aligned(64))) = {0}, most[LANES], sum[LANES];
    memcpy(weight, weights, sizeof(float) * count);
    for (int p = 0; p < PARTS; p++) {
        const vec *z = (const vec *)logits + p, *w = (const vec *)weight + p;
        vec *g = (vec *)grad + p, top = z[0], total = {0};
        for (int c = 1; c < classes; c++) top = choose(z[c * PARTS] > top, z[c * PARTS], top);
        for (int c = 0; c < classes; c++) total += g[c * PARTS] = exp_negative(z[c * PARTS] - top);
        vec factor = *w / total;
        for (int c = 0; c < classes; c++)
            g[c * PARTS] = choose(*w != 0, g[c * PARTS] * factor, (vec){0});
        *(uvec *)(most + p * WIDTH) = top;
        *(uvec *)(sum + p * WIDTH) = total;
    }
    float loss = 0;
    for (int b = 0; b < count; b++)
        if (weight[b] != 0) {
            loss += weight[b] * (most[b] + logf(sum[b]) - logits[labels[b] * LANES + b]);
            grad[labels[b] * LANES + b] -= weight[b];
        }
    return loss;
}

/* The same of the squared error, the mean over the outputs. */
static float squared_error_block(const float *outputs, float *grad, int num_outputs, int count,
                                 const float *targets, const float *weights) {
    float loss = 0;
    for (int b = 0; b < LANES; b++) {
        int is_used = b < count && weights[b] != 0;
        float sum = 0;
        for (int c = 0; c < num_outputs; c++) {
            float error = is_used ? outputs[c * LANES + b] - targets[b * num_outputs + c] : 0;
            sum += error * error;
            grad[c * LANES + b] = is_used ? weights[b] * 2 * error / num_outputs : 0;
        }
        if (is_used) loss += weights[b] * sum / num_outputs;
    }
    return loss;
}

/* Return the weighted loss of a batch; write its gradient in the outputs of the net. `targets` are
   labels (int64) of the cross-entropy, or numbers (float32, `outputs` per sample) of the squared
   error. Samples with weight zero, and those that fill up the last block, have gradient zero. */
static double weighted_loss(int kind, const float *logits, float *grad, int outputs, int batch,
                            const void *targets, const float *weights) {
    float total = 0;
    for (int first = 0; first < batch; first += LANES) {
        const float *z = logits + (int64_t)first * outputs;
        float *g = grad + (int64_t)first * outputs;
        int count = min_int(LANES, batch - first);
        if (kind == CROSS_ENTROPY)
            total += cross_entropy_block(z, g, outputs, count, (const int64_t *)targets + first,
                                         weights + first);
        else
            total += squared_error_block(z, g, outputs, count,
                                         (const float *)targets + (int64_t)first * outputs,
                                         weights + first);
    }
    return total;
}
