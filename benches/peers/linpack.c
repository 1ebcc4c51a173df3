/*
 * DGEMM and LINPACK of a BLAS and LAPACK library, for comparison.
 *
 * usage: linpack dgemm|dgesv ORDER REPEATS
 * output: for each repeat a line with the seconds; exit code 1 if a result is wrong.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void dgemm_(const char *, const char *, const int *, const int *, const int *, const double *, const double *,
            const int *, const double *, const int *, const double *, double *, const int *);
void dgesv_(const int *, const int *, double *, const int *, int *, double *, const int *, int *);

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static double *random_numbers(size_t count, unsigned long long state)
{
    double *numbers = aligned_alloc(64, (count * sizeof *numbers + 63) / 64 * 64);
    if (!numbers) {
        fprintf(stderr, "no memory for %zu numbers\n", count);
        exit(1);
    }
    for (size_t i = 0; i < count; i++) {
        state = state * 6364136223846793005ULL + 1442695040888963407ULL;
        numbers[i] = (double)(state >> 11) * 0x1p-53 - 0.5;
    }
    return numbers;
}

/* The largest |scale * A x + rest|, where rest is given or zero. */
static double largest_of(const double *a, const double *x, const double *rest, int n)
{
    double *sum = calloc((size_t)n, sizeof *sum);
    double most = 0;
    for (int j = 0; j < n; j++)
        for (int i = 0; i < n; i++)
            sum[i] += a[(size_t)j * n + i] * x[j];
    for (int i = 0; i < n; i++)
        most = fmax(most, fabs(sum[i] - (rest ? rest[i] : 0)));
    free(sum);
    return most;
}

int main(int count, char **arguments)
{
    if (count != 4) {
        fprintf(stderr, "usage: linpack dgemm|dgesv ORDER REPEATS\n");
        return 2;
    }
    const int n = atoi(arguments[2]), repeats = atoi(arguments[3]), one = 1;
    const size_t size = (size_t)n * n;
    const double alpha = 0.734375, beta = -0.390625;
    double *a = random_numbers(size, 1), *b = random_numbers(size, 2), *c = random_numbers(size, 3);
    if (!strcmp(arguments[1], "dgemm")) {
        /* The library makes its threads and buffers at the first call. */
        for (int repeat = -1; repeat < repeats; repeat++) {
            const double begin = now();
            dgemm_("N", "N", &n, &n, &n, &alpha, a, &n, b, &n, &beta, c, &n);
            if (repeat >= 0)
                printf("%.9f\n", now() - begin);
        }
        return isfinite(c[size / 2]) ? 0 : 1;
    }
    int *pivots = malloc((size_t)n * sizeof *pivots), info = 0;
    double *right = random_numbers((size_t)n, 4), *x = malloc((size_t)n * sizeof *x);
    for (int repeat = -1; repeat < repeats; repeat++) {
        memcpy(c, a, size * sizeof *c);
        memcpy(x, right, (size_t)n * sizeof *x);
        const double begin = now();
        dgesv_(&n, &one, c, &n, pivots, x, &n, &info);
        if (repeat >= 0)
            printf("%.9f\n", now() - begin);
        const double error = largest_of(a, x, right, n);
        if (info || !(error < 1e-6)) {
            fprintf(stderr, "dgesv is wrong by %g (info %d)\n", error, info);
            return 1;
        }
    }
    return 0;
}
