/* Call all entry points of the kernel on random nets, data and mini-batches of odd sizes.

   Compiled with AddressSanitizer and UndefinedBehaviorSanitizer by test_sanitise.py. Every array
   is a block of the heap of exactly its size. Prints the number of cases; the exit code is 1 if an
   output is not finite. */

#include <stdio.h>
#include <stdlib.h>

#include "kernel.c"

static uint64_t state = 1;

static int draw(int low, int high) { /* low .. high */
    state = state * 6364136223846793005u + 1442695040888963407u;
    return low + (int)((state >> 33) % (uint64_t)(high - low + 1));
}

static void *allocate(int64_t bytes) {
    void *memory = malloc((size_t)(bytes > 0 ? bytes : 1));
    if (!memory) exit(2);
    return memory;
}

static float *draw_floats(int64_t count) {
    float *values = allocate(4 * count);
    for (int64_t i = 0; i < count; i++) values[i] = (float)draw(-1000, 1000) / 5000;
    return values;
}

static char *make_space(const Layer *layers, int count, int batch, int trains) {
    int64_t bytes = thalweg_workspace(layers, count, batch, trains);
    void *memory = 0;
    if (posix_memalign(&memory, 64, (size_t)bytes)) exit(2);
    memset(memory, 0, (size_t)bytes);
    return memory;
}

static void release_space(char *space, const Layer *layers, int count, int batch, int trains) {
    size_t bytes = (size_t)thalweg_workspace(layers, count, batch, trains);
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(space, bytes);
#endif
    memset(space, 0, bytes);
    free(space);
}

static int all_finite(const float *values, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(values[i])) return 0;
    return 1;
}

typedef struct {
    Layer layers[8];
    int count;
    int64_t num_params;
} Net;

static void add_layer(Net *net, Layer layer, int64_t weights) {
    layer.weight = net->num_params;
    layer.bias = net->num_params + weights;
    net->num_params += weights + layer.outputs;
    net->layers[net->count++] = layer;
}

static Net draw_net(int channels, int height, int width, int is_table) {
    Net net = {.count = 0};
    int convolutions = is_table ? 0 : draw(0, 3);
    for (int i = 0; i < convolutions; i++) {
        int kernel = draw(0, 1) ? 3 : 5, padding = draw(0, kernel / 2);
        if (min_int(height, width) + 2 * padding - kernel + 1 < 2) break;
        Layer layer = {CONV_POOL, channels, draw(1, 14), height, width, kernel, padding, 1, 0, 0, 0};
        add_layer(&net, layer, (int64_t)layer.outputs * channels * kernel * kernel);
        channels = layer.outputs;
        height = (height + 2 * padding - kernel + 1) / 2;
        width = (width + 2 * padding - kernel + 1) / 2;
    }
    int features = channels * height * width, hidden = draw(0, 3);
    for (int i = 0; i <= hidden; i++) {
        int is_last = i == hidden;
        Layer layer = {DENSE, features, draw(1, is_last ? 13 : 40), 1, 1, 0, 0,
                       is_last ? 0 : draw(0, 1), 0, 0, 0};
        add_layer(&net, layer, (int64_t)features * layer.outputs);
        features = layer.outputs;
    }
    return net;
}

/* The mean of word vectors of texts of `words` words, before the layers of a table. */
static Net draw_text_net(int words, int codes) {
    Net net = {.count = 0}, rest = draw_net(draw(1, 40), 1, 1, 1);
    Layer layer = {.kind = WORD_MEAN, .inputs = words, .outputs = rest.layers[0].inputs,
                   .height = 1, .width = 1, .codes = codes};
    net.layers[net.count++] = layer;
    net.num_params = (int64_t)codes * layer.outputs;
    for (int i = 0; i < rest.count; i++)
        add_layer(&net, rest.layers[i],
                  (int64_t)rest.layers[i].inputs * rest.layers[i].outputs);
    return net;
}

static int run_case(void) {
    int is_text = draw(0, 3) == 0, codes = draw(1, 300);
    int is_table = is_text || draw(0, 2) == 0, num_rows = draw(1, 50), is_bytes = !is_table && draw(0, 1);
    int channels = is_table ? draw(1, 70) : draw(1, 3);
    int height = is_table ? 1 : draw(5, 17), width = is_table ? 1 : draw(5, 17);
    int64_t pixels = (int64_t)channels * height * width;
    Net net = is_text ? draw_text_net(channels, codes) : draw_net(channels, height, width, is_table);
    int C = net.layers[net.count - 1].outputs, F = net.layers[net.count - 1].inputs, ok = 1;

    Samples data = {.channels = channels, .height = height, .width = width};
    float *scale = draw_floats(channels), *shift = draw_floats(channels);
    void *x;
    if (is_bytes) {
        uint8_t *bytes = x = allocate(num_rows * pixels);
        for (int64_t i = 0; i < num_rows * pixels; i++) bytes[i] = (uint8_t)draw(0, 255);
        for (int c = 0; c < channels; c++) scale[c] /= 255;
        data.scale = scale, data.shift = shift;
    } else if (is_text) {
        uint16_t *words = x = allocate(2 * num_rows * pixels);
        for (int64_t i = 0; i < num_rows * pixels; i++) words[i] = (uint16_t)draw(0, codes - 1);
        data.channels = 1, data.width = channels;
    } else {
        x = draw_floats(num_rows * pixels);
    }
    data.x = x;
    data.kind = is_text ? CODES_UINT16 : is_bytes ? UINT8_IMAGES : FLOAT_ROWS;

    int S = draw(1, 3), K = draw(1, 3), B = draw(1, 40), loss = draw(0, 1);
    int64_t slots = (int64_t)S * K * B;
    int32_t *rows = allocate(4 * slots), *sizes = allocate(4 * S * K);
    float *weights = draw_floats(slots);
    void *targets = allocate(slots * (loss == CROSS_ENTROPY ? 8 : 4 * C));
    for (int64_t i = 0; i < slots; i++) {
        rows[i] = draw(0, num_rows - 1);
        weights[i] = draw(0, 9) ? 1.0f / B : 0;
        if (loss == CROSS_ENTROPY) ((int64_t *)targets)[i] = draw(0, C - 1);
    }
    if (loss == SQUARED_ERROR)
        for (int64_t i = 0; i < slots * C; i++) ((float *)targets)[i] = (float)draw(-9, 9) / 9;
    for (int i = 0; i < S * K; i++) sizes[i] = draw(0, B);
    Batches batches = {rows, targets, weights, sizes, S, K, B, loss};

    int M = draw(1, 2);
    int64_t P = net.num_params;
    float *bank = draw_floats(M * P), *deltas = allocate(4 * K * P), *own = allocate(8 * P);
    float *lrs = draw_floats(K), momentum = draw(0, 1) ? 0.9f : 0;
    int64_t *models = allocate(8 * K);
    double *losses = allocate(8 * K);
    for (int k = 0; k < K; k++) models[k] = draw(0, M - 1);
    char *space = make_space(net.layers, net.count, B, 1);
    float *curvature = draw_floats(K * P), *centre = draw_floats(K * P), *slope = draw_floats(K * P);
    Penalty penalty = {draw(0, 1) ? curvature : 0, draw(0, 1) ? centre : 0, draw(0, 1) ? slope : 0,
                       0.1f};
    thalweg_train(net.layers, net.count, &data, &batches, 0, K, bank, P, models, lrs, momentum,
                  0.01f, draw(0, 1) ? &penalty : 0, deltas, losses, own, space);
    ok &= all_finite(deltas, K * P);

    float *velocity = allocate(4 * P);
    memset(velocity, 0, (size_t)(4 * P));
    memcpy(own, bank, (size_t)(4 * P));
    ok &= isfinite(thalweg_steps(net.layers, net.count, &data, &batches, K - 1, own,
                                 draw(0, 1) ? velocity : 0, 0.01f, 0.5f, 0,
                                 draw(0, 1) ? &penalty : 0, space)) != 0;

    float *outputs = allocate(4 * B * C), *features = allocate(4 * B * F), *gradient = allocate(4 * P);
    int needs_features = draw(0, 1);
    thalweg_forward(net.layers, net.count, &data, B, rows, bank, 0, outputs, 0, space);
    thalweg_forward(net.layers, net.count, &data, B, rows, bank, 1, outputs,
                    needs_features ? features : 0, space);
    if (!needs_features) memset(features, 0, (size_t)(4 * B * F));
    thalweg_backward(net.layers, net.count, B, bank, outputs, draw(0, 1) ? features : 0, gradient,
                     space);
    ok &= all_finite(outputs, B * C) & all_finite(gradient, P);

    int n = draw(1, 40), batch = draw(1, 20);
    int32_t *chosen = allocate(4 * n);
    for (int i = 0; i < n; i++) chosen[i] = draw(0, num_rows - 1);
    float *predicted = allocate(4 * M * n * C);
    char *small = make_space(net.layers, net.count, batch, 0);
    thalweg_predict(net.layers, net.count, &data, n, chosen, batch, bank, M, P, predicted,
                    (int64_t)n * C, small);
    ok &= all_finite(predicted, M * n * C);

    float *sum = allocate(4 * P);
    thalweg_combine(lrs, deltas, K, P, 0, P, sum);
    ok &= all_finite(sum, P);

    int64_t counts[] = {draw(0, 5), draw(0, 5)}, J = draw(1, 6), T = counts[0] + counts[1];
    double *factors = allocate(8 * T * J), *shares = allocate(8 * 2 * J);
    double *before = allocate(8 * T * J), *ratios = allocate(8 * T);
    uint8_t *is_missing = allocate(T * J);
    for (int64_t i = 0; i < T * J; i++) factors[i] = draw(0, 4) / 4.0, is_missing[i] = !draw(0, 3);
    for (int64_t i = 0; i < 2 * J; i++) shares[i] = 1.0 / (double)J;
    thalweg_share_weights(2, J, counts, factors, is_missing, 0.1, shares, before, ratios);
    for (int64_t i = 0; i < 2 * J; i++) ok &= isfinite(shares[i]);

    release_space(space, net.layers, net.count, B, 1);
    release_space(small, net.layers, net.count, batch, 0);
    void *all[] = {scale, shift, x, rows, sizes, weights, targets, curvature, centre, slope, bank,
                   deltas, own, lrs, models, losses, velocity, outputs, features, gradient, chosen,
                   predicted, sum, factors, shares, before, ratios, is_missing};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
    return ok;
}

int main(int count, char **arguments) {
    int cases = count > 1 ? atoi(arguments[1]) : 300;
    (void)thalweg_supports("avx2"), (void)thalweg_supports("");
    for (int i = 0; i < cases; i++)
        if (!run_case()) {
            printf("case %d: an output is not finite\n", i);
            return 1;
        }
    printf("%d cases\n", cases);
    return 0;
}
