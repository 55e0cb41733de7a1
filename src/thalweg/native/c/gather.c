/* Read samples of a data set by row, normalise them and arrange them in blocks. */

#include "kernel.h"

/* One block as [channel][row][column][LANES], in a frame of `padding` zeros that is left alone.
   `rows` has `count` entries; the other lanes become zero. */
static void gather_block(const Samples *data, const int32_t *rows, int count, int padding,
                         float *out) {
    int channels = data->channels, height = data->height, width = data->width;
    int64_t pixels = (int64_t)channels * height * width;
    int64_t out_row = (int64_t)(width + 2 * padding) * LANES;
    for (int c = 0; c < channels; c++) {
        float scale = data->scale ? data->scale[c] : 1, shift = data->shift ? data->shift[c] : 0;
        for (int r = 0; r < height; r++) {
            float *to = out + ((int64_t)c * (height + 2 * padding) + r + padding) * out_row +
                        (int64_t)padding * LANES;
            if (count < LANES) memset(to, 0, sizeof(float) * width * LANES);
            for (int lane = 0; lane < count; lane++) {
                int64_t sample = (int64_t)rows[lane] * pixels;
                if (data->kind == UINT8_IMAGES) {
                    const uint8_t *from =
                        (const uint8_t *)data->x + sample + (int64_t)r * width * channels + c;
                    for (int x = 0; x < width; x++)
                        to[x * LANES + lane] = from[x * channels] * scale + shift;
                } else {
                    const float *from =
                        (const float *)data->x + sample + ((int64_t)c * height + r) * width;
                    for (int x = 0; x < width; x++)
                        to[x * LANES + lane] = from[x] * scale + shift;
                }
            }
        }
    }
}

/* The same samples as rows [sample][channel, row, column], for the gradient of a dense layer. */
static void gather_rows(const Samples *data, const int32_t *rows, int batch, float *out,
                        int64_t row_stride) {
    int channels = data->channels;
    int64_t area = (int64_t)data->height * data->width;
    for (int b = 0; b < batch; b++)
        for (int c = 0; c < channels; c++) {
            float scale = data->scale ? data->scale[c] : 1;
            float shift = data->shift ? data->shift[c] : 0;
            float *to = out + b * row_stride + c * area;
            if (data->kind == UINT8_IMAGES) {
                const uint8_t *from = (const uint8_t *)data->x + rows[b] * area * channels + c;
                for (int64_t i = 0; i < area; i++) to[i] = from[i * channels] * scale + shift;
            } else {
                const float *from = (const float *)data->x + ((int64_t)rows[b] * channels + c) * area;
                for (int64_t i = 0; i < area; i++) to[i] = from[i] * scale + shift;
            }
        }
}
