/* The contract of kvstrata.h, as a C program sees it. Each test says its name; the first broken promise ends
 * the program. Variables of the environment win over its settings, so that it runs over any backend. */
#define _GNU_SOURCE
#include "kvstrata.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 16384, PAGE = 4096, PATIENCE_MS = 120000 };

static const char *folder;
static char said[4096];

#define TRUE(what) \
    do { \
        if (!(what)) { \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #what); \
            exit(1); \
        } \
    } while (0)

static void answers_at(int line, kvs_status status, kvs_status wanted, const char *part) {
    (void)kvs_last_error(said, sizeof said);
    if (status != wanted || (part != NULL && strstr(said, part) == NULL)) {
        fprintf(stderr, "%s:%d: %s, wanted %s and \"%s\": %s\n", __FILE__, line, kvs_status_name(status),
                kvs_status_name(wanted), part == NULL ? "" : part, said);
        exit(1);
    }
}

#define OK(call) answers_at(__LINE__, (call), KVS_OK, NULL)
#define ANSWERS(call, status, part) answers_at(__LINE__, (call), (status), (part))

/* A store and its settings: `more` is TOML behind the store section. */
static kvs_store *opened(const char *more) {
    char settings[2048];
    kvs_open_options options = {0};
    kvs_store *store = NULL;
    options.size = sizeof options;
    options.flags = KVS_OPEN_ENVIRONMENT;
    (void)snprintf(settings, sizeof settings,
                   "[store]\nmodel = 'm'\nrevision = '1'\ndtype = 'd'\nlayout = 'l'\nspan = 16\nranks = '0of1'\n"
                   "sizes = ['16K']\n%s", more);
    OK(kvs_open(settings, &options, &store));
    TRUE(store != NULL);
    return store;
}

static const char *const ON_DISK = "[disk]\nbytes = '16M'\n";
static const char *const IN_HOST = "[host]\nbytes = '4M'\n";

static kvs_client *client_of(kvs_store *store) {
    kvs_client *client = NULL;
    OK(kvs_client_open(store, NULL, &client));
    TRUE(client != NULL);
    return client;
}

/* Keys, memory and outcomes of a batch. The memory of block i begins `shift` bytes past a page. */
struct batch {
    size_t count;
    uint64_t *numbers;
    kvs_key *keys;
    kvs_entry *entries;
    kvs_outcome *outcomes;
    unsigned char *memory;
};

static struct batch batch_of(uint64_t first, size_t count, size_t shift) {
    struct batch batch;
    size_t i, stride = BYTES + PAGE;
    batch.count = count;
    batch.numbers = calloc(count, sizeof *batch.numbers);
    batch.keys = calloc(count, sizeof *batch.keys);
    batch.entries = calloc(count, sizeof *batch.entries);
    batch.outcomes = calloc(count, sizeof *batch.outcomes);
    batch.memory = aligned_alloc(PAGE, count * stride);
    TRUE(batch.numbers && batch.keys && batch.entries && batch.outcomes && batch.memory);
    memset(batch.memory, 0, count * stride);
    for (i = 0; i < count; i++) {
        batch.numbers[i] = first + i;
        batch.keys[i].key = &batch.numbers[i];
        batch.keys[i].key_bytes = sizeof batch.numbers[i];
        batch.entries[i].key = batch.keys[i].key;
        batch.entries[i].key_bytes = batch.keys[i].key_bytes;
        batch.entries[i].data = batch.memory + i * stride + shift;
        batch.entries[i].bytes = BYTES;
    }
    return batch;
}

static void fill(struct batch *batch) {
    size_t i, at;
    for (i = 0; i < batch->count; i++) {
        unsigned char *block = batch->entries[i].data;
        for (at = 0; at < batch->entries[i].bytes; at++) {
            block[at] = (unsigned char)(batch->numbers[i] * 37 + at * 11 + (at >> 8));
        }
    }
}

static int is_filled(const struct batch *batch, size_t i) {
    const unsigned char *block = batch->entries[i].data;
    size_t at;
    for (at = 0; at < batch->entries[i].bytes; at++) {
        if (block[at] != (unsigned char)(batch->numbers[i] * 37 + at * 11 + (at >> 8))) {
            return 0;
        }
    }
    return 1;
}

static void release(struct batch *batch) {
    free(batch->numbers);
    free(batch->keys);
    free(batch->entries);
    free(batch->outcomes);
    free(batch->memory);
}

static kvs_completion one(kvs_client *client) {
    kvs_completion completion;
    size_t got = 0;
    while (got == 0) {
        OK(kvs_wait(client, PATIENCE_MS));
        OK(kvs_drain(client, &completion, 1, &got));
    }
    TRUE(got == 1);
    return completion;
}

static kvs_completion stored(kvs_client *client, struct batch *batch, const kvs_batch_options *options) {
    uint64_t job = 0;
    kvs_completion ended;
    OK(kvs_submit_store(client, batch->entries, batch->count, options, batch->outcomes, &job));
    ended = one(client);
    TRUE(ended.job == job && ended.kind == KVS_STORE && ended.keys == batch->count);
    TRUE(ended.outcomes == batch->outcomes);
    return ended;
}

static kvs_completion loaded(kvs_client *client, struct batch *batch, const kvs_batch_options *options) {
    uint64_t job = 0;
    kvs_completion ended;
    OK(kvs_submit_load(client, batch->entries, batch->count, options, batch->outcomes, &job));
    ended = one(client);
    TRUE(ended.job == job && ended.kind == KVS_LOAD && ended.keys == batch->count);
    return ended;
}

static void finish(kvs_store *store, kvs_client *client) {
    OK(kvs_client_free(client, PATIENCE_MS));
    OK(kvs_close(store, PATIENCE_MS));
    OK(kvs_store_free(store));
}

static int is_readable(kvs_client *client) {
    struct pollfd ready;
    ready.fd = kvs_event_fd(client);
    ready.events = POLLIN;
    TRUE(ready.fd >= 0);
    return poll(&ready, 1, 0) == 1;
}

#include "contract_arguments.h"
#include "contract_jobs.h"
#include "contract_ends.h"

int main(int argc, char **argv) {
    folder = argc > 1 ? argv[1] : "/tmp";
    (void)alarm(600);
    arguments();
    jobs();
    ends();
    puts("the contract holds");
    return 0;
}
