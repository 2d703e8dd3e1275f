/* Part of contract.c: ends of stores, clients and processes; figures as text. */

static void close_ends_what_is_in_flight(void) {
    enum { JOBS = 200 };
    kvs_store *store = opened(ON_DISK);
    kvs_client *client = client_of(store), *made;
    struct batch batch = batch_of(0, JOBS, 8);
    kvs_completion completions[32];
    kvs_store_stats stats = {0};
    size_t i, got, all = 0, done = 0;
    uint8_t found;
    puts("close_ends_what_is_in_flight");
    fill(&batch);
    for (i = 0; i < JOBS; i++) {
        OK(kvs_submit_store(client, &batch.entries[i], 1, NULL, &batch.outcomes[i], NULL));
    }
    if (kvs_close(store, 0) != KVS_OK) {
        ANSWERS(KVS_TIMEOUT, KVS_TIMEOUT, "timeout_ms: 0");
    }
    ANSWERS(kvs_submit_store(client, batch.entries, 1, NULL, NULL, NULL), KVS_CLOSED, "store: closed");
    ANSWERS(kvs_client_open(store, NULL, &made), KVS_CLOSED, "store: closed");
    ANSWERS(kvs_contains(store, batch.keys, 1, NULL, &found), KVS_CLOSED, "store: closed");
    OK(kvs_close(store, PATIENCE_MS));
    OK(kvs_close(store, PATIENCE_MS));
    OK(kvs_close(store, -1));
    while (kvs_wait(client, PATIENCE_MS) == KVS_OK) {
        OK(kvs_drain(client, completions, 32, &got));
        all += got;
        for (i = 0; i < got; i++) {
            done += completions[i].done;
            TRUE(completions[i].done == 1 || *completions[i].outcomes == KVS_MISS_CLOSED);
        }
    }
    TRUE(all == JOBS);
    ANSWERS(kvs_wait(client, -1), KVS_CLOSED, "nothing is left to drain");
    stats.size = sizeof stats;
    OK(kvs_stats(store, &stats));
    TRUE(stats.stored_keys == done);
    /* The handles are freed in any order. */
    OK(kvs_store_free(store));
    OK(kvs_client_free(client, 0));
    release(&batch);
}

static void *close_it(void *store) {
    return (void *)(intptr_t)(kvs_close(store, PATIENCE_MS) != KVS_OK);
}

static void two_threads_close(void) {
    kvs_store *store = opened(ON_DISK);
    pthread_t threads[2];
    size_t i;
    puts("two_threads_close");
    for (i = 0; i < 2; i++) {
        TRUE(pthread_create(&threads[i], NULL, close_it, store) == 0);
    }
    for (i = 0; i < 2; i++) {
        void *failed = store;
        TRUE(pthread_join(threads[i], &failed) == 0 && failed == NULL);
    }
    OK(kvs_store_free(store));
}

static void freed_client_touches_no_memory(void) {
    size_t round;
    puts("freed_client_touches_no_memory");
    for (round = 0; round < 20; round++) {
        kvs_store *store = opened(ON_DISK);
        kvs_client *client = client_of(store);
        struct batch batch = batch_of(0, 64, round % 2);
        fill(&batch);
        OK(kvs_submit_store(client, batch.entries, 64, NULL, batch.outcomes, NULL));
        while (kvs_client_free(client, 1) == KVS_TIMEOUT) {
        }
        release(&batch); /* a sanitizer sees whoever touches it now */
        OK(kvs_store_free(store));
    }
}

static void reopened_store_finds_its_blocks(void) {
    char more[1024];
    size_t round, leading;
    struct batch batch = batch_of(0, 32, 0);
    puts("reopened_store_finds_its_blocks");
    fill(&batch);
    (void)snprintf(more, sizeof more, "[disk]\nbytes = '2M'\npaths = ['%s']\n", folder);
    for (round = 0; round < 5; round++) {
        kvs_store *store = opened(more);
        kvs_client *client = client_of(store);
        OK(kvs_leading(store, batch.keys, 32, NULL, &leading));
        TRUE(leading == (round == 0 ? 0 : 32));
        TRUE(stored(client, &batch, NULL).done == 32);
        OK(kvs_client_free(client, PATIENCE_MS));
        OK(kvs_close(store, PATIENCE_MS));
        OK(kvs_store_free(store));
    }
    release(&batch);
}

static void forked_child_is_refused(void) {
    kvs_store *store = opened(ON_DISK);
    kvs_client *client = client_of(store), *made;
    struct batch batch = batch_of(0, 8, 0);
    kvs_completion completion;
    kvs_store_stats stats = {0};
    kvs_place place;
    uint8_t found;
    size_t number;
    pid_t child;
    int status = 0;
    puts("forked_child_is_refused");
    (void)fflush(stdout);
    fill(&batch);
    OK(kvs_submit_store(client, batch.entries, 8, NULL, batch.outcomes, NULL));
    child = fork();
    TRUE(child >= 0);
    if (child == 0) {
        (void)alarm(60);
        stats.size = sizeof stats;
        ANSWERS(kvs_submit_store(client, batch.entries, 1, NULL, NULL, NULL), KVS_FORKED, "after the fork");
        ANSWERS(kvs_submit_load(client, batch.entries, 1, NULL, NULL, NULL), KVS_FORKED, "client: made in");
        ANSWERS(kvs_submit_forget(client, batch.keys, 1, NULL, NULL, NULL), KVS_FORKED, NULL);
        ANSWERS(kvs_contains(store, batch.keys, 1, NULL, &found), KVS_FORKED, "store: made in process");
        ANSWERS(kvs_leading(store, batch.keys, 1, NULL, &number), KVS_FORKED, NULL);
        ANSWERS(kvs_find(store, batch.keys, 1, NULL, &place), KVS_FORKED, NULL);
        ANSWERS(kvs_client_open(store, NULL, &made), KVS_FORKED, NULL);
        ANSWERS(kvs_wait(client, -1), KVS_FORKED, NULL);
        ANSWERS(kvs_drain(client, &completion, 1, &number), KVS_FORKED, NULL);
        TRUE(kvs_event_fd(client) == -1);
        ANSWERS(kvs_stats(store, &stats), KVS_FORKED, NULL);
        ANSWERS(kvs_metrics_text(store, NULL, 0, &number), KVS_FORKED, NULL);
        ANSWERS(kvs_close(store, -1), KVS_FORKED, NULL);
        ANSWERS(kvs_client_free(client, -1), KVS_FORKED, NULL);
        ANSWERS(kvs_store_free(store), KVS_FORKED, NULL);
        /* A program without the memory of the parent's threads, which valgrind would take for lost. */
        (void)execl("/bin/true", "true", (char *)NULL);
        _exit(2);
    }
    TRUE(waitpid(child, &status, 0) == child && status == 0);
    TRUE(one(client).done == 8);
    release(&batch);
    finish(store, client);
}

static void metrics_fill_a_buffer_that_is_large_enough(void) {
    kvs_store *store = opened(IN_HOST);
    size_t needed = 0;
    char *text;
    puts("metrics_fill_a_buffer_that_is_large_enough");
    ANSWERS(kvs_metrics_text(store, NULL, 0, &needed), KVS_TOO_SMALL, "bytes: 0; give");
    TRUE(needed > 1000);
    text = malloc(needed);
    text[0] = 'x';
    ANSWERS(kvs_metrics_text(store, text, needed - 1, NULL), KVS_TOO_SMALL, "bytes:");
    TRUE(text[0] == 'x');
    OK(kvs_metrics_text(store, text, needed, &needed));
    TRUE(strlen(text) + 1 == needed && strstr(text, "kvstrata_store_stored_keys_total 0") != NULL);
    OK(kvs_close(store, PATIENCE_MS));
    OK(kvs_metrics_text(store, NULL, 0, NULL) == KVS_TOO_SMALL ? KVS_OK : KVS_PANIC);
    free(text);
    OK(kvs_store_free(store));
}

static void ends(void) {
    close_ends_what_is_in_flight();
    two_threads_close();
    freed_client_touches_no_memory();
    reopened_store_finds_its_blocks();
    forked_child_is_refused();
    metrics_fill_a_buffer_that_is_large_enough();
}
