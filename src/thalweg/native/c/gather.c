/* Read samples of a data set by row, normalise them and arrange them in blocks. */

#include "kernel.h"

enum { PIXELS = 64 }; /* of an image row that are turned at a time */

/* Write width pixels of `count` samples, `apart` bytes from one to the next in a sample, as
   [pixel][LANES]; the other lanes become zero.

   Loop order: samples outside, so that each is read in order. The bytes are turned in the cache;
   only then are they converted to numbers, a whole vector of samples at a time. */
INLINE void gather_pixels(const uint8_t *const *from, int apart, int count, int width, float scale,
                          float shift, float *to) {
    uint8_t turned[PIXELS][LANES];
    for (int start = 0; start < width; start += PIXELS) {
        int n = min_int(PIXELS, width - start);
        for (int lane = 0; lane < count; lane++) {
            __builtin_prefetch(from[lane] + (int64_t)(start + PIXELS) * apart);
            for (int x = 0; x < n; x++) turned[x][lane] = from[lane][(int64_t)(start + x) * apart];
        }
        for (int x = 0; x < n; x++) {
            float *out = to + (int64_t)(start + x) * LANES;
            for (int lane = 0; lane < count; lane++) out[lane] = turned[x][lane] * scale + shift;
        }
    }
}

/* Join dimensions that are contiguous and treated alike, so that inner loops are long: rows that
   need no frame, and channels that have the same scale. */
INLINE Samples join_dimensions(const Samples *data, int padding) {
    Samples joined = *data;
    if (padding > 0) return joined;
    joined.width *= joined.height;
    joined.height = 1;
    if (data->kind == FLOAT_ROWS && !data->scale) {
        joined.width *= joined.channels;
        joined.channels = 1;
    }
    return joined;
}

/* One block as [channel][row][column][LANES], in a frame of `padding` zeros that is left alone.
   `rows` has `count` entries; the other lanes become zero. */
static void gather_block(const Samples *samples, const int32_t *rows, int count, int padding,
                         float *out) {
    const Samples joined = join_dimensions(samples, padding), *data = &joined;
    int channels = data->channels, height = data->height, width = data->width;
    int64_t pixels = (int64_t)channels * height * width;
    int64_t out_row = (int64_t)(width + 2 * padding) * LANES;
    for (int c = 0; c < channels; c++) {
        float scale = data->scale ? data->scale[c] : 1, shift = data->shift ? data->shift[c] : 0;
        for (int r = 0; r < height; r++) {
            float *to = out + ((int64_t)c * (height + 2 * padding) + r + padding) * out_row +
                        (int64_t)padding * LANES;
            if (count < LANES) memset(to, 0, sizeof(float) * width * LANES);
            if (data->kind == UINT8_IMAGES) {
                const uint8_t *from[LANES];
                for (int lane = 0; lane < count; lane++)
                    from[lane] = (const uint8_t *)data->x + rows[lane] * pixels +
                                 (int64_t)r * width * channels + c;
                if (count == LANES && channels == 1)
                    gather_pixels(from, 1, LANES, width, scale, shift, to);
                else
                    gather_pixels(from, channels, count, width, scale, shift, to);
                continue;
            }
            for (int lane = 0; lane < count; lane++) {
                const float *from =
                    (const float *)data->x + rows[lane] * pixels + ((int64_t)c * height + r) * width;
                for (int x = 0; x < width; x++) to[x * LANES + lane] = from[x] * scale + shift;
            }
        }
    }
}

/* The same samples as rows [sample][channel, row, column], for the gradient of a dense layer. */
static void gather_rows(const Samples *samples, const int32_t *rows, int batch, float *out,
                        int64_t row_stride) {
    const Samples joined = join_dimensions(samples, 0), *data = &joined;
    int channels = data->channels;
    int64_t area = data->width;
    for (int b = 0; b < batch; b++)
        for (int c = 0; c < channels; c++) {
            float scale = data->scale ? data->scale[c] : 1;
            float shift = data->shift ? data->shift[c] : 0;
            float *to = out + b * row_stride + c * area;
            if (data->kind == UINT8_IMAGES) {
                const uint8_t *from = (const uint8_t *)data->x + rows[b] * area * channels + c;
                if (channels == 1)
                    for (int64_t i = 0; i < area; i++) to[i] = from[i] * scale + shift;
                else
                    for (int64_t i = 0; i < area; i++) to[i] = from[i * channels] * scale + shift;
            } else {
                const float *from = (const float *)data->x + ((int64_t)rows[b] * channels + c) * area;
                for (int64_t i = 0; i < area; i++) to[i] = from[i] * scale + shift;
            }
        }
}
