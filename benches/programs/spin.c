/* spin ROUNDS: two threads that compute for some microseconds and wait for each other at a barrier, so many times. */
#include <stdio.h>
#include <stdlib.h>

int main(int count, char **words) {
    static double values[4096];
    long rounds = count > 1 ? atol(words[1]) : 1000;
    for (long round = 0; round < rounds; round++) {
#pragma omp parallel for schedule(static) num_threads(2)
        for (int at = 0; at < 4096; at++)
            for (int step = 0; step < 8; step++)
                values[at] = values[at] * 0.999 + 1.0;
    }
    printf("%f\n", values[5]);
    return 0;
}
