/* The store in a C program: open, store, look up, load, compare, forget, figures, close.
 *
 *     cargo build --release -p kvstrata-c
 *     cc -std=c11 -Iffi/c/include ffi/c/examples/embed.c -o embed \
 *         -Ltarget/release -lkvstrata -Wl,-rpath,"$PWD/target/release"
 *     ./embed /tmp        a folder for the volume; run it twice: the second run finds the blocks
 */
#include "kvstrata.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
enum { BLOCKS = 32, BLOCK_BYTES = 65536, PAGE = 4096 };

/* The message of the last error names the argument or the setting, its value, and what to do. */
static void check(kvs_status status, const char *call) {
    char message[1024];
    if (status == KVS_OK) {
        return;
    }
    (void)kvs_last_error(message, sizeof message);
    fprintf(stderr, "%s: %s: %s\n", call, kvs_status_name(status), message);
    exit(1);
}

/* Waits for one job. An engine would have kvs_event_fd(client) in its event loop instead, and would drain
 * many completions at once. */
static kvs_completion wait_for_one(kvs_client *client) {
    kvs_completion completion;
    size_t got = 0;
    while (got == 0) {
        check(kvs_wait(client, -1), "kvs_wait");
        check(kvs_drain(client, &completion, 1, &got), "kvs_drain");
    }
    return completion;
}

/* What the model would have computed for a block. */
static void compute(unsigned char *block, size_t number) {
    size_t i;
    for (i = 0; i < BLOCK_BYTES; i++) {
        block[i] = (unsigned char)(number * 31 + i % 251);
    }
}

int main(int argc, char **argv) {
    const char *folder = argc > 1 ? argv[1] : "/tmp";
    char settings[1024];
    kvs_store *store = NULL;
    kvs_client *client = NULL;
    kvs_open_options opening = {0};
    kvs_batch_options options = {0};
    kvs_store_stats stats = {0};
    kvs_completion ended;
    kvs_entry entries[BLOCKS];
    kvs_key keys[BLOCKS];
    kvs_outcome outcomes[BLOCKS];
    char names[BLOCKS][32];
    unsigned char *memory, *expected;
    size_t i, leading;

    if (kvs_abi_version() != KVS_ABI_VERSION) {
        fprintf(stderr, "kvstrata.h is not of libkvstrata.so %s\n", kvs_version_text());
        return 1;
    }

    /* 1. Open. The store section says what the bytes are. If any part of it changes, nothing that was stored
     *    before is found. Variables of the environment, such as KVSTRATA_DISK_BYTES, win over the text. */
    opening.size = sizeof opening;
    opening.flags = KVS_OPEN_ENVIRONMENT;
    (void)snprintf(settings, sizeof settings,
                   "[store]\n"
                   "model = 'meta-llama/Llama-3.1-8B'\nrevision = 'main'\ndtype = 'bfloat16'\n"
                   "layout = 'example, layer by layer'\nspan = 16\nranks = 'tp0of1'\nsizes = ['64K']\n"
                   "[disk]\nbytes = '16M'\npaths = ['%s']\n",
                   folder);
    check(kvs_open(settings, &opening, &store), "kvs_open");
    check(kvs_client_open(store, NULL, &client), "kvs_client_open");

    /* 2. Memory is the engine's own. At a page boundary, bytes go straight between it and the disk. */
    memory = aligned_alloc(PAGE, (size_t)BLOCKS * BLOCK_BYTES);
    expected = malloc(BLOCK_BYTES);
    if (memory == NULL || expected == NULL) {
        return 1;
    }
    for (i = 0; i < BLOCKS; i++) {
        /* Any bytes: engines use the hash of the tokens up to here. */
        (void)snprintf(names[i], sizeof names[i], "conversation 7, block %02zu", i);
        keys[i].key = names[i];
        keys[i].key_bytes = strlen(names[i]);
        entries[i].key = keys[i].key;
        entries[i].key_bytes = keys[i].key_bytes;
        entries[i].data = memory + i * BLOCK_BYTES;
        entries[i].bytes = BLOCK_BYTES;
    }

    /* 3. Look up: how many leading blocks need not be computed? It costs no I/O. The same options go with
     *    each call of a request: here, those of a tenant whose blocks nobody else finds. */
    options.size = sizeof options;
    options.salt = "tenant 1";
    check(kvs_leading(store, keys, BLOCKS, &options, &leading), "kvs_leading");
    printf("found %zu of %d blocks\n", leading, BLOCKS);

    /* 4. Store the others. From here until the completion, nobody writes the memory of this job. */
    if (leading < BLOCKS) {
        for (i = leading; i < BLOCKS; i++) {
            compute(entries[i].data, i);
        }
        check(kvs_submit_store(client, entries + leading, BLOCKS - leading, &options, outcomes, NULL),
              "kvs_submit_store");
        ended = wait_for_one(client);
        printf("stored %zu of %zu blocks\n", ended.done, ended.keys);
    }

    /* 5. Load all, and compare. Each key has its own outcome: one that is not done is a miss, which the
     *    engine computes; the others are good. */
    memset(memory, 0, (size_t)BLOCKS * BLOCK_BYTES);
    options.urgency = KVS_URGENT;
    check(kvs_submit_load(client, entries, BLOCKS, &options, outcomes, NULL), "kvs_submit_load");
    ended = wait_for_one(client);
    for (i = 0; i < BLOCKS; i++) {
        if (!kvs_outcome_is_done(outcomes[i])) {
            printf("block %zu: %s\n", i, kvs_outcome_name(outcomes[i]));
            continue;
        }
        compute(expected, i);
        if (memcmp(entries[i].data, expected, BLOCK_BYTES) != 0) {
            fprintf(stderr, "block %zu has wrong bytes\n", i);
            return 1;
        }
    }
    printf("loaded %zu blocks, bytes equal\n", ended.done);

    /* 6. Forget the last block, so that the next run has something to store. */
    check(kvs_submit_forget(client, keys + BLOCKS - 1, 1, &options, NULL, NULL), "kvs_submit_forget");
    (void)wait_for_one(client);

    /* 7. Figures; kvs_metrics_text has more of them. */
    stats.size = sizeof stats;
    check(kvs_stats(store, &stats), "kvs_stats");
    printf("%llu bytes came from the disk\n", (unsigned long long)stats.loaded_bytes);

    /* 8. Close: within five seconds here. Nothing depends on it, but the next start is faster. */
    check(kvs_close(store, 5000), "kvs_close");
    check(kvs_client_free(client, -1), "kvs_client_free");
    check(kvs_store_free(store), "kvs_store_free");
    free(expected);
    free(memory);
    return 0;
}
