/*
 * A complex transform in double precision by FFTW, for comparison.
 *
 * usage: fft estimate|measure LENGTH REPEATS WISDOM
 * Measured plans are kept in the file WISDOM, as they take longer than all repeats.
 * output: for each repeat a line with the seconds; exit code 1 if a result is wrong.
 */
#include <complex.h>
#include <fftw3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

int main(int count, char **arguments)
{
    if (count != 5) {
        fprintf(stderr, "usage: fft estimate|measure LENGTH REPEATS WISDOM\n");
        return 2;
    }
    const unsigned effort = strcmp(arguments[1], "measure") ? FFTW_ESTIMATE : FFTW_MEASURE;
    const int length = atoi(arguments[2]), repeats = atoi(arguments[3]);
    fftw_complex *in = fftw_alloc_complex((size_t)length), *out = fftw_alloc_complex((size_t)length);
    if (!in || !out) {
        fprintf(stderr, "no memory for two times %d numbers\n", length);
        return 1;
    }
    if (effort == FFTW_MEASURE)
        fftw_import_wisdom_from_filename(arguments[4]);
    fftw_plan plan = fftw_plan_dft_1d(length, in, out, FFTW_FORWARD, effort);
    if (effort == FFTW_MEASURE)
        fftw_export_wisdom_to_filename(arguments[4]);
    /* Measuring a plan writes to the arrays. A lone 1 has 1 everywhere in its spectrum. */
    memset(in, 0, sizeof *in * (size_t)length);
    memset(out, 0, sizeof *out * (size_t)length);
    in[0] = 1;
    for (int repeat = -1; repeat < repeats; repeat++) {
        const double begin = now();
        fftw_execute(plan);
        if (repeat >= 0)
            printf("%.9f\n", now() - begin);
    }
    for (int i = 0; i < length; i++)
        if (!(cabs(out[i] - 1) < 1e-9)) {
            fprintf(stderr, "out[%d] is wrong\n", i);
            return 1;
        }
    return 0;
}
