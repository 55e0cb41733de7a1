/* The weighted sum of updates: out[i] = sum_k weights[k] * deltas[k][i], for first <= i < last.

   Loop order: blocks of parameters whose sums stay in the cache; within a block TOGETHER updates at
   a time, so that a sum is loaded and stored once for all of them; they are added in order. The
   sums have double precision: a product of two floats is exact in it, so that a fused multiply-add
   gives the same bits as a product and a sum (core.vectors.combine). */

#include "kernel.h"

enum { SUM_BLOCK = 8192, TOGETHER = 4 };

/* Add n numbers of `count` updates, which are `stride` numbers apart, to their sums. */
INLINE void add_updates(const int count, const float *weights, const float *deltas, int64_t stride,
                        int n, double *sums) {
    for (int i = 0; i < n; i++) {
        double sum = sums[i];
        UNROLL for (int k = 0; k < count; k++) sum += (double)weights[k] * deltas[k * stride + i];
        sums[i] = sum;
    }
}

void thalweg_combine(const float *weights, const float *deltas, int64_t count, int64_t num_params,
                     int64_t first, int64_t last, float *out) {
    double sums[SUM_BLOCK];
    for (int64_t start = first; start < last; start += SUM_BLOCK) {
        int n = (int)(last - start < SUM_BLOCK ? last - start : SUM_BLOCK);
        const float *from = deltas + start;
        int64_t k = 0;
        for (int i = 0; i < n; i++) sums[i] = 0;
        for (; k + TOGETHER <= count; k += TOGETHER)
            add_updates(TOGETHER, weights + k, from + k * num_params, num_params, n, sums);
        for (; k < count; k++) add_updates(1, weights + k, from + k * num_params, num_params, n, sums);
        for (int i = 0; i < n; i++) out[start + i] = (float)sums[i];
    }
}
