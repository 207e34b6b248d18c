/* Task Bench's stencil_1d with MPI: what `brambling bench task-graph` sets beside its own, where MPI is installed.
 *
 * stencil_mpi WIDTH TIMESTEPS ITERATIONS: each rank owns a range of columns, sends the outputs at its ends to its neighbours without
 * blocking, and runs the points between them meanwhile. A point checks its inputs and does the work of the bench's kernel.
 * Rank 0 prints "stencil_1d TASKS INPUTS MISMATCHES SECONDS". There are at most as many ranks as columns. */

#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct {
    uint64_t timestep, point;
} Payload;

enum { TASKS, INPUTS, MISMATCHES, COUNTS };

static uint64_t counts[COUNTS];
static long width, iterations;
static volatile double sink; /* Or the compiler would leave the work out. */

static void work(void) {
    double values[64], product = 1.0;
    for (int at = 0; at < 64; at++) values[at] = 1.2345;
    for (long round = 0; round < iterations; round++)
        for (int at = 0; at < 64; at++) values[at] = values[at] * values[at] + values[at];
    for (int at = 0; at < 64; at++) product *= values[at];
    sink = product;
}

/* One task. The output of column c of the timestep before lies at before[c], and so do its neighbours'. */
static void run_point(const Payload *before, Payload *now, long timestep, long point) {
    if (timestep > 0)
        for (long from = point - (point > 0); from <= point + (point + 1 < width); from++) {
            const Payload *input = &before[from];
            counts[MISMATCHES] += input->timestep != (uint64_t)timestep - 1 || input->point != (uint64_t)from;
            counts[INPUTS]++;
        }
    if (iterations > 0) work();
    counts[TASKS]++;
    now[point] = (Payload){timestep, point};
}

/* One timestep of the columns from `first` up to `end`. A rank without a neighbour sends to MPI_PROC_NULL, which does nothing. */
static void run_timestep(Payload *before, Payload *now, long timestep, long first, long end, int left, int right) {
    MPI_Request requests[4];
    MPI_Irecv(&before[first - 1], sizeof(Payload), MPI_BYTE, left, 0, MPI_COMM_WORLD, &requests[0]);
    MPI_Irecv(&before[end], sizeof(Payload), MPI_BYTE, right, 0, MPI_COMM_WORLD, &requests[1]);
    MPI_Isend(&before[first], sizeof(Payload), MPI_BYTE, left, 0, MPI_COMM_WORLD, &requests[2]);
    MPI_Isend(&before[end - 1], sizeof(Payload), MPI_BYTE, right, 0, MPI_COMM_WORLD, &requests[3]);
    for (long point = first + 1; point < end - 1; point++) run_point(before, now, timestep, point);
    MPI_Waitall(4, requests, MPI_STATUSES_IGNORE);
    run_point(before, now, timestep, first);
    if (end - 1 > first) run_point(before, now, timestep, end - 1);
}

int main(int argc, char **argv) {
    alarm(60); /* A launch that hangs must not hang the bench. */
    MPI_Init(&argc, &argv);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc != 4) MPI_Abort(MPI_COMM_WORLD, 2);
    width = atol(argv[1]), iterations = atol(argv[3]);
    const long timesteps = atol(argv[2]), first = width * rank / ranks, end = width * (rank + 1) / ranks;
    const int left = rank > 0 ? rank - 1 : MPI_PROC_NULL, right = rank + 1 < ranks ? rank + 1 : MPI_PROC_NULL;
    /* One more at each end, for what would lie beside the outermost columns. */
    Payload *before = (Payload *)calloc(width + 2, sizeof(Payload)) + 1;
    Payload *now = (Payload *)calloc(width + 2, sizeof(Payload)) + 1;

    MPI_Barrier(MPI_COMM_WORLD);
    const double start = MPI_Wtime();
    for (long point = first; point < end; point++) run_point(before, now, 0, point);
    for (long timestep = 1; timestep < timesteps; timestep++) {
        Payload *other = before;
        before = now, now = other;
        run_timestep(before, now, timestep, first, end, left, right);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    const double seconds = MPI_Wtime() - start;

    /* Nobody has read the last outputs. */
    for (long point = first; point < end; point++)
        counts[MISMATCHES] += now[point].timestep != (uint64_t)timesteps - 1 || now[point].point != (uint64_t)point;
    uint64_t all[COUNTS] = {0};
    MPI_Reduce(counts, all, COUNTS, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("stencil_1d %llu %llu %llu %.9f\n", (unsigned long long)all[TASKS], (unsigned long long)all[INPUTS],
               (unsigned long long)all[MISMATCHES], seconds);
    MPI_Finalize();
    return 0;
}
