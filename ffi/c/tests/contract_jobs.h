/* Part of contract.c: answers, namespaces, completions. */

static void each_key_has_its_answer(const char *tiers, size_t shift) {
    kvs_store *store = opened(tiers);
    kvs_client *client = client_of(store);
    struct batch batch = batch_of(0, 32, shift), again = batch_of(0, 33, shift);
    kvs_outcome in = strstr(tiers, "host") ? KVS_STORED_HOST : KVS_STORED_DISK;
    kvs_batch_options options = {0};
    kvs_place places[33];
    kvs_completion ended;
    uint8_t found[33];
    size_t i, leading;
    printf("each_key_has_its_answer, %zu bytes past a page, %.4s\n", shift, tiers + 1);
    fill(&batch);
    options.size = sizeof options;
    options.user_data = UINT64_MAX;
    ended = stored(client, &batch, &options);
    TRUE(ended.done == 32 && ended.leading == 32 && ended.user_data == UINT64_MAX && ended.reserved == 0);
    for (i = 0; i < 32; i++) {
        TRUE(batch.outcomes[i] == in);
    }
    ended = stored(client, &batch, NULL);
    TRUE(ended.done == 32 && batch.outcomes[31] == KVS_PRESENT && ended.user_data == 0);

    OK(kvs_contains(store, again.keys, 33, NULL, found));
    OK(kvs_leading(store, again.keys, 33, NULL, &leading));
    OK(kvs_find(store, again.keys, 33, NULL, places));
    TRUE(leading == 32 && found[0] == 1 && found[31] == 1 && found[32] == 0);
    TRUE(places[31].bytes == BYTES && places[31].tier != KVS_TIER_NONE && places[31].reserved == 0);
    TRUE(places[32].bytes == 0 && places[32].tier == KVS_TIER_NONE);

    /* One key is absent, one has another length, one is longer than any block: the others stay good. */
    again.entries[5].bytes = BYTES - 1;
    ended = loaded(client, &again, NULL);
    TRUE(ended.done == 31 && ended.leading == 5);
    for (i = 0; i < 33; i++) {
        if (i == 5) {
            TRUE(again.outcomes[i] == KVS_MISS_LENGTH);
        } else if (i == 32) {
            TRUE(again.outcomes[i] == KVS_ABSENT && again.memory[32 * (BYTES + PAGE) + shift] == 0);
        } else {
            TRUE(again.outcomes[i] == (in == KVS_STORED_HOST ? KVS_LOADED_HOST : KVS_LOADED_DISK));
            TRUE(is_filled(&again, i));
        }
    }
    again.entries[0].bytes = BYTES + 1;
    again.numbers[0] = 1000;
    TRUE(stored(client, &again, NULL).leading == 0 && again.outcomes[0] == KVS_MISS_TOO_LONG);

    /* Keys are copied at the call. */
    OK(kvs_submit_forget(client, batch.keys, 31, &options, batch.outcomes, NULL));
    memset(batch.numbers, 0xaa, 31 * sizeof *batch.numbers);
    ended = one(client);
    TRUE(ended.kind == KVS_FORGET && ended.done == 31 && ended.user_data == UINT64_MAX);
    TRUE(batch.outcomes[0] == KVS_FORGOTTEN);
    for (i = 0; i < 31; i++) {
        batch.numbers[i] = i;
    }
    OK(kvs_contains(store, batch.keys, 32, NULL, found));
    TRUE(found[0] == 0 && found[30] == 0 && found[31] == 1);
    release(&batch);
    release(&again);
    finish(store, client);
}

static void lora_and_salt_are_names_apart(void) {
    kvs_store *store = opened(IN_HOST);
    kvs_client *client = client_of(store);
    struct batch batch = batch_of(0, 1, 0);
    static const char *const names[] = {NULL, "", "a", "b", "ab"};
    kvs_batch_options options = {0};
    char text[32];
    size_t i, j, leading, count = sizeof names / sizeof *names;
    puts("lora_and_salt_are_names_apart");
    fill(&batch);
    options.size = sizeof options;
    for (i = 0; i < count * count; i++) {
        options.lora = names[i / count];
        options.salt = names[i % count];
        OK(kvs_leading(store, batch.keys, 1, &options, &leading));
        TRUE(leading == 0);
        TRUE(stored(client, &batch, &options).done == 1 && batch.outcomes[0] == KVS_STORED_HOST);
        OK(kvs_leading(store, batch.keys, 1, &options, &leading));
        TRUE(leading == 1);
    }
    /* More salts than the library remembers name the same entries. */
    for (i = 0; i < 5000; i++) {
        (void)snprintf(text, sizeof text, "tenant %zu", i);
        options.salt = text;
        OK(kvs_leading(store, batch.keys, 1, &options, &leading));
        TRUE(leading == 0);
    }
    for (i = 0, j = 0; i < count; i++) {
        options.lora = NULL;
        options.salt = names[i];
        OK(kvs_leading(store, batch.keys, 1, &options, &leading));
        j += leading;
    }
    TRUE(j == count);
    release(&batch);
    finish(store, client);
}

static void drain_of_many_reports_each_once(void) {
    enum { JOBS = 100 };
    kvs_store *store = opened(ON_DISK);
    kvs_client *client = client_of(store);
    kvs_completion completions[7];
    unsigned char seen[JOBS] = {0};
    struct batch batch = batch_of(0, JOBS, 0);
    kvs_batch_options options = {0};
    size_t i, got, all = 0;
    puts("drain_of_many_reports_each_once");
    fill(&batch);
    options.size = sizeof options;
    ANSWERS(kvs_wait(client, 0), KVS_TIMEOUT, "timeout_ms: 0");
    OK(kvs_drain(client, completions, 7, &got));
    TRUE(got == 0);
    for (i = 0; i < JOBS; i++) {
        options.user_data = i;
        OK(kvs_submit_store(client, &batch.entries[i], 1, &options, &batch.outcomes[i], NULL));
    }
    while (all < JOBS) {
        OK(kvs_wait(client, PATIENCE_MS));
        OK(kvs_drain(client, completions, 7, &got));
        for (i = 0; i < got; i++) {
            size_t job = (size_t)completions[i].user_data;
            TRUE(job < JOBS && seen[job] == 0 && completions[i].keys == 1 && completions[i].done == 1);
            TRUE(*completions[i].outcomes == KVS_STORED_DISK);
            seen[job] = 1;
        }
        all += got;
        /* Whoever leaves some is told of them again. */
        if (got == 7 && all < JOBS) {
            (void)is_readable(client);
        }
    }
    TRUE(!is_readable(client));

    /* All have ended before the first drain: the descriptor stays readable until the last is drained. */
    for (i = 0; i < 20; i++) {
        OK(kvs_submit_forget(client, &batch.keys[i], 1, NULL, NULL, NULL));
    }
    for (all = 0; all < 20; all += got) {
        OK(kvs_wait(client, PATIENCE_MS));
        OK(kvs_drain(client, completions, 3, &got));
    }
    TRUE(all == 20 && !is_readable(client));
    release(&batch);
    finish(store, client);
}

struct called {
    pthread_mutex_t lock;
    pthread_cond_t news;
    kvs_client *client;
    struct batch *batch;
    size_t calls, submitted;
};

static void call(void *context, const kvs_completion *completion) {
    struct called *called = context;
    char name[16] = {0};
    (void)pthread_mutex_lock(&called->lock);
    TRUE(pthread_getname_np(pthread_self(), name, sizeof name) == 0 && strcmp(name, "kvstrata-calls") == 0);
    TRUE(completion->done == 1 && kvs_outcome_is_done(*completion->outcomes));
    ANSWERS(kvs_client_free(called->client, 0), KVS_INVALID, "free it from another thread");
    called->calls++;
    if (called->submitted < called->batch->count) {
        size_t next = called->submitted++;
        OK(kvs_submit_store(called->client, &called->batch->entries[next], 1, NULL,
                            &called->batch->outcomes[next], NULL));
    }
    (void)pthread_cond_signal(&called->news);
    (void)pthread_mutex_unlock(&called->lock);
}

static void callback_gets_each_completion(void) {
    kvs_store *store = opened(ON_DISK);
    struct batch batch = batch_of(0, 50, 0);
    struct called called = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL, NULL, 0, 10};
    kvs_client_options options = {0};
    kvs_completion completion;
    size_t i, got;
    puts("callback_gets_each_completion");
    fill(&batch);
    called.batch = &batch;
    options.size = sizeof options;
    options.callback = call;
    options.context = &called;
    OK(kvs_client_open(store, &options, &called.client));
    TRUE(kvs_event_fd(called.client) == -1);
    ANSWERS(kvs_wait(called.client, 0), KVS_INVALID, "it has a callback");
    ANSWERS(kvs_drain(called.client, &completion, 1, &got), KVS_INVALID, "it has a callback");
    (void)pthread_mutex_lock(&called.lock);
    for (i = 0; i < 10; i++) {
        OK(kvs_submit_store(called.client, &batch.entries[i], 1, NULL, &batch.outcomes[i], NULL));
    }
    /* The callbacks submit the rest. */
    while (called.submitted < batch.count) {
        (void)pthread_cond_wait(&called.news, &called.lock);
    }
    (void)pthread_mutex_unlock(&called.lock);
    /* Some are under way still: the client's end comes after the last callback. */
    OK(kvs_client_free(called.client, PATIENCE_MS));
    TRUE(called.calls == batch.count);
    for (i = 0; i < batch.count; i++) {
        TRUE(batch.outcomes[i] == KVS_STORED_DISK);
    }
    release(&batch);
    OK(kvs_close(store, PATIENCE_MS));
    OK(kvs_store_free(store));
}

struct submitter {
    kvs_client *client;
    uint64_t first;
    struct batch batch;
    kvs_completion ended[200];
};

static void *submit_all(void *argument) {
    struct submitter *self = argument;
    kvs_batch_options options = {0};
    size_t i;
    options.size = sizeof options;
    for (i = 0; i < 200; i++) {
        kvs_status status;
        options.user_data = (uint64_t)(uintptr_t)&self->ended[i];
        while ((status = kvs_submit_store(self->client, &self->batch.entries[i], 1, &options,
                                          &self->batch.outcomes[i], NULL)) == KVS_BUSY) {
            (void)sched_yield();
        }
        OK(status);
    }
    return NULL;
}

static void two_threads_submit_and_one_drains(void) {
    kvs_store *store = opened(ON_DISK);
    kvs_client *client = client_of(store);
    struct submitter *both = calloc(2, sizeof *both);
    kvs_completion completions[16];
    pthread_t threads[2];
    size_t i, got, all = 0;
    puts("two_threads_submit_and_one_drains");
    for (i = 0; i < 2; i++) {
        both[i].client = client;
        both[i].batch = batch_of(1000 * i, 200, 0);
        fill(&both[i].batch);
        TRUE(pthread_create(&threads[i], NULL, submit_all, &both[i]) == 0);
    }
    while (all < 400) {
        OK(kvs_wait(client, PATIENCE_MS));
        OK(kvs_drain(client, completions, 16, &got));
        for (i = 0; i < got; i++) {
            kvs_completion *place = (kvs_completion *)(uintptr_t)completions[i].user_data;
            TRUE(place->keys == 0 && kvs_outcome_is_done(*completions[i].outcomes));
            *place = completions[i];
        }
        all += got;
    }
    for (i = 0; i < 2; i++) {
        TRUE(pthread_join(threads[i], NULL) == 0);
        release(&both[i].batch);
    }
    free(both);
    finish(store, client);
}

static void jobs(void) {
    each_key_has_its_answer(IN_HOST, 0);
    each_key_has_its_answer(ON_DISK, 0);
    each_key_has_its_answer(ON_DISK, 24);
    lora_and_salt_are_names_apart();
    drain_of_many_reports_each_once();
    callback_gets_each_completion();
    two_threads_submit_and_one_drains();
}
