/* A grep by hand: what `brambling grep` is held against where a pattern is rare.
 *
 * grep_bare TEXT FILE [THREADS]: prints the lines in which TEXT occurs, in order. Threads (8) take
 * blocks of the file in turn, read each past the page cache where the file system allows it, look
 * for the byte of TEXT that is the rarest in the file's first block, and compare around it. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Around a block a page before it and the rest of its last line are read. Lines longer than that
 * rest are refused. */
enum { PAGE = 4096, BLOCK = 4 << 20, AFTER = 64 << 10, THREADS_MOST = 64 };

typedef struct { char *lines; size_t length; } Found;

static int file;
static size_t size, blocks, length, rare;
static const char *text;
static Found *found;
static atomic_size_t next;

static _Noreturn void die(const char *format, ...) {
    va_list rest;
    va_start(rest, format);
    fputs("grep_bare: ", stderr);
    vfprintf(stderr, format, rest);
    fputc('\n', stderr);
    _exit(2);
}

static size_t read_fully(char *into, size_t bytes, size_t at) {
    size_t done = 0;
    while (done < bytes) {
        ssize_t got = pread(file, into + done, bytes - done, at + done);
        if (got < 0) die("reading: %s", strerror(errno));
        if (got == 0) break;
        done += got;
        /* Only the last bytes of a file are no whole pages. */
        if (got % PAGE) break;
    }
    return done;
}

static void keep(Found *into, const char *line, size_t bytes) {
    into->lines = realloc(into->lines, into->length + bytes);
    if (!into->lines) die("no memory for the lines found");
    memcpy(into->lines + into->length, line, bytes);
    into->length += bytes;
}

/* The lines that begin in bytes `begin` up to `end` of what was read. */
static void search(const char *bytes, size_t begin, size_t end, size_t count, Found *into) {
    const char *at = bytes + begin, *last = bytes + count;
    if (count >= end + AFTER && !memchr(bytes + end - 1, '\n', AFTER)) die("a line is longer than %d bytes", AFTER - 1);
    while (at < last && (at = memchr(at, text[rare], last - at))) {
        const char *from = at - rare;
        if (from < bytes + begin || from + length > last || memcmp(from, text, length)) {
            at++;
            continue;
        }
        const char *before = memrchr(bytes, '\n', from - bytes), *line = before ? before + 1 : bytes, *after = memchr(from, '\n', last - from);
        if (line >= bytes + end) return;
        keep(into, line, (after ? after : last) - line);
        keep(into, "\n", 1);
        if (!after) return;
        at = after + 1;
    }
}

static void *work(void *nothing) {
    char *bytes = aligned_alloc(PAGE, PAGE + BLOCK + AFTER);
    for (size_t block; (block = next++) < blocks;) {
        size_t at = block * BLOCK, before = block ? PAGE : 0, count = read_fully(bytes, before + BLOCK + AFTER, at - before), begin = before;
        /* A line that began before this block is the block's before. */
        if (before && bytes[before - 1] != '\n') {
            const char *end = memchr(bytes + before, '\n', count - before);
            begin = end ? (size_t)(end - bytes) + 1 : count;
        }
        if (begin < before + BLOCK) search(bytes, begin, before + BLOCK, count, &found[block]);
    }
    free(bytes);
    return nothing;
}

static void find_rarest(void) {
    char *bytes = aligned_alloc(PAGE, BLOCK);
    size_t counts[256] = {0}, count = read_fully(bytes, BLOCK, 0);
    for (size_t at = 0; at < count; at++) counts[(uint8_t)bytes[at]]++;
    for (size_t at = 0; at < length; at++)
        if (counts[(uint8_t)text[at]] < counts[(uint8_t)text[rare]]) rare = at;
    free(bytes);
}

int main(int count, char **arguments) {
    struct stat is;
    int threads = count > 3 ? atoi(arguments[3]) : 8;
    if (count < 3 || !*arguments[1] || threads < 1 || threads > THREADS_MOST) die("TEXT FILE [THREADS]");
    text = arguments[1], length = strlen(text);
    file = open(arguments[2], O_RDONLY | O_DIRECT);
    if (file < 0 && errno == EINVAL) file = open(arguments[2], O_RDONLY);
    if (file < 0 || fstat(file, &is)) die("%s: %s", arguments[2], strerror(errno));
    size = is.st_size, blocks = (size + BLOCK - 1) / BLOCK;
    found = calloc(blocks + 1, sizeof *found);
    find_rarest();
    pthread_t ids[THREADS_MOST];
    for (int i = 0; i < threads; i++) pthread_create(&ids[i], 0, work, 0);
    for (int i = 0; i < threads; i++) pthread_join(ids[i], 0);
    size_t any = 0;
    for (size_t block = 0; block < blocks; block++) {
        any += found[block].length;
        if (fwrite(found[block].lines, 1, found[block].length, stdout) < found[block].length) die("writing: %s", strerror(errno));
    }
    if (fflush(stdout)) die("writing: %s", strerror(errno));
    return !any;
}
