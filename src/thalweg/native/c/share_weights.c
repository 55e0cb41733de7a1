/* The weights of fixed share, sample by sample (theory.tracking.share_weights).

   `factors` and `is_missing` have a row of `num_predictors` for each sample; the first sizes[0]
   samples are those of the first client, and so on. `weights` has a row for each client: the
   weights before its first sample, and afterwards those after its last one. */

#include "kernel.h"

/* Round the product, so that the compiler cannot fuse it with a sum: NumPy and Python do not. */
INLINE double times(double a, double b) {
    volatile double product = a * b;
    return product;
}

void thalweg_share_weights(int64_t num_clients, int64_t num_predictors, const int64_t *sizes,
                           const double *factors, const uint8_t *is_missing, double alpha,
                           double *weights, double *before, double *ratios) {
    const int64_t J = num_predictors;
    const double kept = 1 - alpha, added = alpha / (double)J;
    for (int64_t k = 0; k < num_clients; k++, weights += J) {
        for (int64_t t = 0; t < sizes[k]; t++, ratios++) {
            double total = 0, known = 0;
            int has_missing = 0;
            for (int64_t j = 0; j < J; j++) {
                before[j] = weights[j];
                weights[j] = times(before[j], factors[j]);
                total += weights[j];
                if (is_missing[j])
                    has_missing = 1;
                else
                    known += before[j];
            }
            *ratios = total > 0 ? (has_missing ? total / known : total) : 1;
            for (int64_t j = 0; j < J; j++) {
                double moved = before[j];
                if (total > 0 && !is_missing[j]) {
                    moved = weights[j] / total;
                    if (has_missing) moved = times(moved, known);
                }
                weights[j] = times(kept, moved) + added;
            }
            before += J, factors += J, is_missing += J;
        }
    }
}
