/* A sort by hand: what `brambling sort` is held against on one machine.
 *
 * sort_bare IN OUT [MEMORY [TMP [THREADS]]]: records of 100 bytes by their first 10, ascending.
 * MEMORY is in bytes, 0 for no bound. What fits it is read once and written once, and equal keys
 * keep their order. What does not is first cut into parts that fit, in one unnamed file in TMP, and
 * then sorted part by part, and equal keys may change their order. Threads that wait for files
 * (READERS, WRITERS) come besides THREADS (2), which compute. Reads and writes bypass the page cache
 * where the file system allows it. The last line is JSON, after fsync. OUT is there before it is
 * whole. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* A block is whole records and whole pages. A bucket is what one thread sorts at a time; its
 * entries are meant to stay in its cache. */
enum { WIDTH = 100, PAGE = 4096, RECORDS = 40960, BLOCK = RECORDS * WIDTH, BUCKETS = 512, TOPS = 1 << 16, SAMPLES = 512 };
enum { READERS = 4, WRITERS = 4, RING = 16, STORES = 2, PARTS_MOST = 100, THREADS_MOST = 64, SMALL = 24 };

/* The whole key, and which record of its store it is of. */
typedef struct { uint64_t prefix; uint32_t record; uint16_t rest; } Entry;
typedef struct { uint8_t *bytes; Entry *entries; uint32_t *order, (*starts)[BUCKETS + 1]; } Store;
/* Where a block lies, and which part it is of. Blocks of a part follow each other in its store. */
typedef struct { off_t at; uint32_t records, part, place; int has_come, is_used; } Slot;
typedef struct { uint8_t *bytes; size_t length; off_t at; int file; } Write;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t all;
static int in, out, run = -1, threads = 2, parts = 1;
static size_t records, budget, store_blocks;
static uint16_t bucket_of[TOPS]; /* Of all parts in a row, by a key's first two bytes. */
static Store stores[STORES];
static uint8_t *ring;

/* What is read now: the input's blocks, or those of the parts. `spilled` is what the parts' file holds. */
static Slot *slots, *spilled;
static size_t reads, next_read, next_block, spilled_count, parts_done;
static int is_cutting, reads_from;
static size_t part_records[PARTS_MOST], part_first[PARTS_MOST], part_blocks[PARTS_MOST];

static uint8_t **free_buffers, *carry; /* Buffers of a block each; and one that the next part fills up. */
static size_t free_count, write_first, write_end, writes_left, buffer_count;
static Write *writes;

/* The part that is sorted now: its buckets' first places, which buckets are sorted, and up to where all are. */
static size_t bucket_first[BUCKETS + 1], next_bucket, sorted_buckets, next_output;
static char is_sorted[BUCKETS];

static _Noreturn void die(const char *format, ...) {
    va_list rest;
    va_start(rest, format);
    fputs("sort_bare: ", stderr);
    vfprintf(stderr, format, rest);
    fputc('\n', stderr);
    _exit(1);
}

static void *pages(size_t bytes) {
    size_t huge = 2 << 20;
    void *found = mmap(0, (bytes + huge) / huge * huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (found == MAP_FAILED) die("no memory for %zu bytes", bytes);
    madvise(found, bytes, MADV_HUGEPAGE);
    return found;
}

static int opened(const char *name, int flags) {
    int file = open(name, flags | O_DIRECT, 0666);
    if (file < 0 && errno == EINVAL) file = open(name, flags, 0666);
    if (file < 0) die("%s: %s", name, strerror(errno));
    return file;
}

static void read_fully(int file, uint8_t *into, size_t bytes, off_t at) {
    size_t asked = (bytes + PAGE - 1) / PAGE * PAGE;
    for (size_t done = 0; done < bytes;) {
        ssize_t got = pread(file, into + done, asked - done, at + done);
        if (got <= 0) die("reading: %s", got ? strerror(errno) : "the file has become shorter");
        done += got;
    }
}

/* The block of the i-th read has a place when what lay there before is used up. */
static int has_place(size_t i) {
    if (is_cutting) return i < RING || slots[i - RING].is_used;
    return slots[i].part < parts_done + STORES;
}

static uint8_t *place_of(size_t i) {
    return is_cutting ? ring + i % RING * BLOCK : stores[slots[i].part % STORES].bytes + (size_t)slots[i].place * BLOCK;
}

static void *reader(void *nothing) {
    pthread_mutex_lock(&lock);
    while (next_read < reads) {
        if (!has_place(next_read)) {
            pthread_cond_wait(&changed, &lock);
            continue;
        }
        size_t i = next_read++;
        pthread_mutex_unlock(&lock);
        read_fully(reads_from, place_of(i), (size_t)slots[i].records * WIDTH, slots[i].at);
        pthread_mutex_lock(&lock);
        slots[i].has_come = 1;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    return nothing;
}

/* Writes until the process ends. */
static void *writer(void *nothing) {
    pthread_mutex_lock(&lock);
    for (;;) {
        while (write_first == write_end) pthread_cond_wait(&changed, &lock);
        Write it = writes[write_first++ % buffer_count];
        pthread_mutex_unlock(&lock);
        size_t padded = (it.length + PAGE - 1) / PAGE * PAGE;
        for (size_t done = 0; done < padded;) {
            ssize_t put = pwrite(it.file, it.bytes + done, padded - done, it.at + done);
            if (put <= 0) die("writing: %s", strerror(errno));
            done += put;
        }
        pthread_mutex_lock(&lock);
        free_buffers[free_count++] = it.bytes;
        writes_left--;
        pthread_cond_broadcast(&changed);
    }
    return nothing;
}

static uint8_t *take_buffer(void) {
    pthread_mutex_lock(&lock);
    while (!free_count) pthread_cond_wait(&changed, &lock);
    uint8_t *taken = free_buffers[--free_count];
    pthread_mutex_unlock(&lock);
    return taken;
}

static void send(int file, uint8_t *bytes, size_t length, off_t at) {
    pthread_mutex_lock(&lock);
    writes[write_end++ % buffer_count] = (Write){bytes, length, at, file};
    writes_left++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void wait_for_writes(void) {
    pthread_mutex_lock(&lock);
    while (writes_left) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

/* The next block below `end` in the order of the file, when it has come; or SIZE_MAX. */
static size_t take_block(size_t end) {
    pthread_mutex_lock(&lock);
    size_t i = next_block < end ? next_block++ : SIZE_MAX;
    while (i != SIZE_MAX && !slots[i].has_come) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    return i;
}

static uint64_t prefix_of(const uint8_t *record) {
    uint64_t prefix;
    memcpy(&prefix, record, 8);
    return __builtin_bswap64(prefix);
}

/* Fills `bucket_of` so that a sample of the input spreads evenly. */
static void sample(size_t bytes) {
    uint8_t *page = pages(PAGE);
    uint32_t *seen = calloc(TOPS, sizeof *seen), total = 0, before = 0;
    for (size_t i = 0; i < SAMPLES; i++) {
        size_t at = bytes / PAGE * i / SAMPLES * PAGE, here = bytes - at < PAGE ? bytes - at : PAGE;
        read_fully(in, page, here, at);
        for (size_t from = (WIDTH - at % WIDTH) % WIDTH; from + WIDTH <= here; from += WIDTH, total++) seen[prefix_of(page + from) >> 48]++;
    }
    for (size_t top = 0; top < TOPS; before += seen[top++])
        bucket_of[top] = (uint64_t)before * (BUCKETS * parts) / (total + 1);
    free(seen);
}

/* Cuts the input into parts: buffers of each thread and part, which go to one file when they are full. */
static void spill(uint8_t *bytes, uint32_t count, int part) {
    pthread_mutex_lock(&lock);
    off_t at = (off_t)spilled_count * BLOCK;
    spilled[spilled_count++] = (Slot){.at = at, .records = count, .part = part, .place = part_blocks[part]++};
    part_records[part] += count;
    if (part_blocks[part] > store_blocks) die("part %d of %d has no room in memory: too many keys begin alike", part, parts);
    pthread_mutex_unlock(&lock);
    send(run, bytes, (size_t)count * WIDTH, at);
}

static void *cut(void *nothing) {
    uint8_t *buffers[PARTS_MOST] = {0};
    uint32_t counts[PARTS_MOST] = {0};
    for (size_t i; (i = take_block(reads)) != SIZE_MAX;) {
        const uint8_t *from = place_of(i), *end = from + (size_t)slots[i].records * WIDTH;
        for (; from < end; from += WIDTH) {
            int part = bucket_of[prefix_of(from) >> 48] / BUCKETS;
            if (!buffers[part]) buffers[part] = take_buffer();
            memcpy(buffers[part] + (size_t)counts[part]++ * WIDTH, from, WIDTH);
            if (counts[part] < RECORDS) continue;
            spill(buffers[part], RECORDS, part);
            buffers[part] = 0, counts[part] = 0;
        }
        pthread_mutex_lock(&lock);
        slots[i].is_used = 1;
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&lock);
    }
    for (int part = 0; part < parts; part++)
        if (counts[part]) spill(buffers[part], counts[part], part);
    return nothing;
}

/* The entries of a block, those of each bucket together and in the order of the records. */
static void enter(Store *store, const Slot *slot) {
    uint32_t ends[BUCKETS] = {0}, *starts = store->starts[slot->place], first = slot->place * RECORDS;
    static _Thread_local uint16_t to[RECORDS];
    const uint8_t *bytes = store->bytes + (size_t)first * WIDTH;
    Entry *entries = store->entries + first;
    for (uint32_t i = 0; i < slot->records; i++) ends[to[i] = bucket_of[prefix_of(bytes + (size_t)i * WIDTH) >> 48] % BUCKETS]++;
    for (uint32_t bucket = 0, sum = 0; bucket < BUCKETS; bucket++) {
        starts[bucket] = sum, sum += ends[bucket];
        ends[bucket] = starts[bucket];
    }
    starts[BUCKETS] = slot->records;
    for (uint32_t i = 0; i < slot->records; i++) {
        const uint8_t *record = bytes + (size_t)i * WIDTH;
        entries[ends[to[i]]++] = (Entry){prefix_of(record), first + i, record[8] << 8 | record[9]};
    }
}

static int is_after(const Entry *a, const Entry *b) {
    if (a->prefix != b->prefix) return a->prefix > b->prefix;
    if (a->rest != b->rest) return a->rest > b->rest;
    return a->record > b->record;
}

static int compared(const void *a, const void *b) { return is_after(a, b) - is_after(b, a); }

static void sort_few(Entry *entries, size_t count) {
    if (count > SMALL) qsort(entries, count, sizeof *entries, compared);
    for (size_t i = 1; i < count && count <= SMALL; i++) {
        Entry it = entries[i];
        size_t to = i;
        for (; to && is_after(&entries[to - 1], &it); to--) entries[to] = entries[to - 1];
        entries[to] = it;
    }
}

/* Sorts a bucket: spread by the value of its keys into as many bins as there are keys, then each bin. */
static void sort_bucket(Store *store, size_t bucket, size_t blocks) {
    static _Thread_local Entry *found, *spread;
    static _Thread_local uint32_t *bins;
    static _Thread_local size_t room;
    size_t count = bucket_first[bucket + 1] - bucket_first[bucket], at = 0;
    if (!count) return;
    if (count > room) {
        room = count + count / 4;
        found = realloc(found, room * sizeof *found), spread = realloc(spread, room * sizeof *spread);
        bins = realloc(bins, (2 * room + 2) * sizeof *bins);
        if (!found || !spread || !bins) die("no memory to sort %zu entries", count);
    }
    uint64_t least = UINT64_MAX, most = 0;
    for (size_t block = 0; block < blocks; block++)
        for (uint32_t i = store->starts[block][bucket]; i < store->starts[block][bucket + 1]; i++) {
            Entry it = found[at++] = store->entries[block * RECORDS + i];
            if (it.prefix < least) least = it.prefix;
            if (it.prefix > most) most = it.prefix;
        }
    int shift = 0;
    while ((most - least) >> shift >= 2 * count) shift++;
    size_t used = ((most - least) >> shift) + 1, sum = 0;
    memset(bins, 0, (used + 1) * sizeof *bins);
    for (size_t i = 0; i < count; i++) bins[((found[i].prefix - least) >> shift) + 1]++;
    for (size_t bin = 0; bin < used; bin++) sum = bins[bin + 1] += sum;
    for (size_t i = 0; i < count; i++) spread[bins[(found[i].prefix - least) >> shift]++] = found[i];
    /* A bin's first place is now its end, and so the next one's first. */
    for (size_t bin = 0, first = 0; bin < used; first = bins[bin++]) sort_few(spread + first, bins[bin] - first);
    for (size_t i = 0; i < count; i++) store->order[bucket_first[bucket] + i] = spread[i].record;
}

/* Writes the records of a part that belong into one block of the output. */
static void gather(Store *store, int part, size_t block) {
    size_t begin = block * RECORDS, end = begin + RECORDS, first = part_first[part], last = first + part_records[part];
    size_t from = begin > first ? begin : first, to = end < last ? end : last;
    uint8_t *buffer = begin < first ? carry : take_buffer();
    const uint32_t *order = store->order - first;
    for (size_t i = from; i < to; i++) {
        if (i + 24 < to)
            for (int line = 0; line < WIDTH; line += 64) __builtin_prefetch(store->bytes + (size_t)order[i + 24] * WIDTH + line);
        memcpy(buffer + (i - begin) * WIDTH, store->bytes + (size_t)order[i] * WIDTH, WIDTH);
    }
    if (to == end || to == records) send(out, buffer, (to - begin) * WIDTH, (off_t)begin * WIDTH);
    else carry = buffer;
}

static void begin_part(Store *store, int part) {
    size_t sum = 0;
    for (size_t bucket = 0; bucket < BUCKETS; bucket++) {
        bucket_first[bucket] = sum;
        for (size_t block = 0; block < part_blocks[part]; block++) sum += store->starts[block][bucket + 1] - store->starts[block][bucket];
    }
    bucket_first[BUCKETS] = sum;
    memset(is_sorted, 0, sizeof is_sorted);
    next_bucket = sorted_buckets = 0;
    next_output = part_first[part] / RECORDS;
}

/* Sorts buckets and gathers blocks, those first that can be gathered, until the part is gathered. */
static void sort_part(Store *store, int part) {
    size_t last = part_first[part] + part_records[part], outputs = (last + RECORDS - 1) / RECORDS;
    pthread_mutex_lock(&lock);
    while (part_records[part] && next_output < outputs) {
        size_t end = (next_output + 1) * RECORDS < last ? (next_output + 1) * RECORDS : last;
        if (bucket_first[sorted_buckets] + part_first[part] >= end) {
            size_t block = next_output++;
            pthread_mutex_unlock(&lock);
            gather(store, part, block);
            pthread_mutex_lock(&lock);
        } else if (next_bucket < BUCKETS) {
            size_t bucket = next_bucket++;
            pthread_mutex_unlock(&lock);
            sort_bucket(store, bucket, part_blocks[part]);
            pthread_mutex_lock(&lock);
            is_sorted[bucket] = 1;
            while (sorted_buckets < BUCKETS && is_sorted[sorted_buckets]) sorted_buckets++;
            pthread_cond_broadcast(&changed);
        } else
            pthread_cond_wait(&changed, &lock);
    }
    pthread_mutex_unlock(&lock);
}

static void *sort(void *nothing) {
    size_t end = 0;
    for (int part = 0; part < parts; part++) {
        Store *store = &stores[part % STORES];
        end += part_blocks[part];
        for (size_t i; (i = take_block(end)) != SIZE_MAX;) enter(store, &slots[i]);
        if (pthread_barrier_wait(&all) == PTHREAD_BARRIER_SERIAL_THREAD) begin_part(store, part);
        pthread_barrier_wait(&all);
        sort_part(store, part);
        if (pthread_barrier_wait(&all) == PTHREAD_BARRIER_SERIAL_THREAD) {
            pthread_mutex_lock(&lock);
            parts_done++;
            pthread_cond_broadcast(&changed);
            pthread_mutex_unlock(&lock);
        }
        pthread_barrier_wait(&all);
    }
    return nothing;
}

/* Reads all slots, with so many threads at work on them. */
static void pass(Slot *of, size_t count, int file, void *(*work)(void *)) {
    pthread_t ids[READERS + THREADS_MOST];
    slots = of, reads = count, reads_from = file, next_read = next_block = 0;
    for (int i = 0; i < READERS + threads; i++) pthread_create(&ids[i], 0, i < READERS ? reader : work, 0);
    for (int i = 0; i < READERS + threads; i++) pthread_join(ids[i], 0);
}

static uint64_t rank(const Slot *slot) { return (uint64_t)slot->part << 32 | slot->place; }

static int by_part(const void *a, const void *b) { return (rank(a) > rank(b)) - (rank(a) < rank(b)); }

/* Whether one store holds all, or into how many parts the input has to be cut, and how large a store is. */
static void plan(size_t blocks) {
    size_t starts = (BUCKETS + 1) * sizeof(uint32_t), spare = (32 + 2 * WRITERS) * (size_t)BLOCK;
    size_t per_block = BLOCK + RECORDS * (sizeof(Entry) + sizeof(uint32_t)) + starts;
    store_blocks = blocks;
    if (budget && blocks * per_block + spare > budget) {
        if (budget < 2 * spare) die("a budget of %zu bytes is too small; it takes %zu", budget, 2 * spare);
        store_blocks = (budget - spare) / STORES / per_block;
        /* Samples do not tell exactly how large parts become, and each thread leaves a block that is not full. */
        size_t meant = store_blocks * 85 / 100 - 2 * threads;
        parts = (blocks + meant - 1) / meant;
        if (parts > PARTS_MOST) die("%zu bytes would need %d parts in this budget, and %d is the most", records * WIDTH, parts, PARTS_MOST);
    }
    for (int i = 0; i < (parts > 1 ? STORES : 1); i++)
        stores[i] = (Store){.bytes = pages(store_blocks * BLOCK), .entries = pages(store_blocks * RECORDS * sizeof(Entry)),
                            .order = pages(store_blocks * RECORDS * sizeof(uint32_t)), .starts = pages(store_blocks * starts)};
    buffer_count = (parts > 1 ? threads * parts : 0) + threads + 2 * WRITERS;
    free_buffers = calloc(buffer_count, sizeof *free_buffers), writes = calloc(buffer_count, sizeof *writes);
    for (uint8_t *buffers = pages(buffer_count * BLOCK); free_count < buffer_count; buffers += BLOCK) free_buffers[free_count++] = buffers;
}

static Slot *blocks_of_input(size_t blocks) {
    Slot *made = calloc(blocks + 1, sizeof *made);
    for (size_t i = 0; i < blocks; i++)
        made[i] = (Slot){.at = (off_t)i * BLOCK, .records = i + 1 < blocks ? RECORDS : records - i * RECORDS, .place = i};
    return made;
}

int main(int count, char **arguments) {
    struct timespec begin, end;
    struct stat is;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    if (count < 3) die("IN OUT [MEMORY [TMP [THREADS]]]");
    if (count > 3) budget = strtoull(arguments[3], 0, 10);
    if (count > 5) threads = atoi(arguments[5]);
    if (threads < 1 || threads > THREADS_MOST) die("threads are 1 to %d", THREADS_MOST);
    in = opened(arguments[1], O_RDONLY);
    if (fstat(in, &is) || is.st_size % WIDTH) die("%s: %lld bytes are not whole records of %d", arguments[1], (long long)is.st_size, WIDTH);
    out = opened(arguments[2], O_WRONLY | O_CREAT | O_TRUNC);
    records = is.st_size / WIDTH;
    if (records && (errno = posix_fallocate(out, 0, is.st_size))) die("%s: %s", arguments[2], strerror(errno));
    size_t blocks = (records + RECORDS - 1) / RECORDS;
    plan(blocks);
    sample(is.st_size);
    pthread_barrier_init(&all, 0, threads);
    pthread_t writing[WRITERS];
    for (int i = 0; i < WRITERS; i++) pthread_create(&writing[i], 0, writer, 0);
    Slot *given = blocks_of_input(blocks);
    if (parts == 1) {
        part_records[0] = records, part_blocks[0] = blocks;
        pass(given, blocks, in, sort);
    } else {
        run = opened(count > 4 ? arguments[4] : "/var/tmp", O_TMPFILE | O_RDWR);
        ring = pages((size_t)RING * BLOCK);
        spilled = calloc(blocks + (size_t)threads * parts + 1, sizeof *spilled);
        is_cutting = 1;
        pass(given, blocks, in, cut);
        wait_for_writes();
        munmap(ring, (size_t)RING * BLOCK);
        is_cutting = 0;
        for (int part = 1; part < parts; part++) part_first[part] = part_first[part - 1] + part_records[part - 1];
        qsort(spilled, spilled_count, sizeof *spilled, by_part);
        pass(spilled, spilled_count, run, sort);
    }
    wait_for_writes();
    if (ftruncate(out, is.st_size) || fsync(out)) die("%s: %s", arguments[2], strerror(errno));
    clock_gettime(CLOCK_MONOTONIC, &end);
    double seconds = end.tv_sec - begin.tv_sec + 1e-9 * (end.tv_nsec - begin.tv_nsec);
    printf("{\"seconds\": %.6f, \"records\": %zu, \"parts\": %d}\n", seconds, records, parts);
    return 0;
}
