/* The weighted sum of updates: out[i] = sum_k weights[k] * deltas[k][i], for first <= i < last.

   Loop order: blocks of parameters whose sums stay in the first-level cache; within a block the
   updates in order. The sums have double precision: a product of two floats is exact in it, so
   that a fused multiply-add gives the same bits as a product and a sum (core.vectors.combine). */

#include "kernel.h"

enum { SUM_BLOCK = 1024 };

void thalweg_combine(const float *weights, const float *deltas, int64_t count, int64_t num_params,
                     int64_t first, int64_t last, float *out) {
    double sum[SUM_BLOCK];
    for (int64_t start = first; start < last; start += SUM_BLOCK) {
        int n = (int)(last - start < SUM_BLOCK ? last - start : SUM_BLOCK);
        for (int i = 0; i < n; i++) sum[i] = 0;
        for (int64_t k = 0; k < count; k++) {
            const float *delta = deltas + k * num_params + start;
            double weight = weights[k];
            for (int i = 0; i < n; i++) sum[i] += weight * delta[i];
        }
        for (int i = 0; i < n; i++) out[start + i] = (float)sum[i];
    }
}
