/*
 * The four STREAM kernels in plain C, for comparison: three arrays, OpenMP threads, every pass timed.
 *
 * usage: stream ELEMENTS ITERATIONS
 * output: for each iteration a line with the seconds of copy, scale, add and triad; then nothing if every
 * element is right, else an error and exit code 1.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static int verify(const char *name, const double *array, long elements, double expected)
{
    for (long i = 0; i < elements; i++) {
        if (!(fabs(array[i] - expected) <= 1e-13 * fabs(expected))) {
            fprintf(stderr, "%s[%ld] is %g instead of %g\n", name, i, array[i], expected);
            return 0;
        }
    }
    return 1;
}

int main(int count, char **arguments)
{
    const double scalar = 3.0;
    if (count != 3) {
        fprintf(stderr, "usage: stream ELEMENTS ITERATIONS\n");
        return 2;
    }
    const long elements = atol(arguments[1]);
    const int iterations = atoi(arguments[2]);
    double *restrict a = malloc((size_t)elements * sizeof *a);
    double *restrict b = malloc((size_t)elements * sizeof *b);
    double *restrict c = malloc((size_t)elements * sizeof *c);
    if (!a || !b || !c) {
        fprintf(stderr, "no memory for three arrays of %ld elements\n", elements);
        return 1;
    }
#pragma omp parallel for
    for (long i = 0; i < elements; i++) {
        a[i] = 1.0;
        b[i] = 2.0;
        c[i] = 0.0;
    }
    for (int iteration = 0; iteration < iterations; iteration++) {
        double times[5];
        times[0] = now();
#pragma omp parallel for
        for (long i = 0; i < elements; i++)
            c[i] = a[i];
        times[1] = now();
#pragma omp parallel for
        for (long i = 0; i < elements; i++)
            b[i] = scalar * c[i];
        times[2] = now();
#pragma omp parallel for
        for (long i = 0; i < elements; i++)
            c[i] = a[i] + b[i];
        times[3] = now();
#pragma omp parallel for
        for (long i = 0; i < elements; i++)
            a[i] = b[i] + scalar * c[i];
        times[4] = now();
        printf("%.9f %.9f %.9f %.9f\n", times[1] - times[0], times[2] - times[1], times[3] - times[2],
               times[4] - times[3]);
    }
    double ea = 1.0, eb = 2.0, ec = 0.0;
    for (int iteration = 0; iteration < iterations; iteration++) {
        ec = ea;
        eb = scalar * ec;
        ec = ea + eb;
        ea = eb + scalar * ec;
    }
    return verify("a", a, elements, ea) && verify("b", b, elements, eb) && verify("c", c, elements, ec) ? 0 : 1;
}
