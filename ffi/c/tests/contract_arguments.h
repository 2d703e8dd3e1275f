/* Part of contract.c: wrong arguments, and structs of other versions. */

static void versions_and_names_are_told(void) {
    puts("versions_and_names_are_told");
    TRUE(kvs_abi_version() == KVS_ABI_VERSION);
    TRUE(strchr(kvs_version_text(), '.') != NULL);
    TRUE(strcmp(kvs_status_name(KVS_OK), "KVS_OK") == 0);
    TRUE(strcmp(kvs_status_name(KVS_PANIC), "KVS_PANIC") == 0);
    TRUE(strcmp(kvs_status_name(-5), "unknown") == 0 && strcmp(kvs_status_name(999), "unknown") == 0);
    TRUE(strcmp(kvs_outcome_name(KVS_MISS_AWAY), "KVS_MISS_AWAY") == 0);
    TRUE(strcmp(kvs_outcome_name(255), "unknown") == 0);
    TRUE(!kvs_outcome_is_done(KVS_UNANSWERED) && !kvs_outcome_is_done(KVS_ABSENT));
    TRUE(!kvs_outcome_is_done(KVS_MISS_AWAY) && !kvs_outcome_is_done(255));
    TRUE(kvs_outcome_is_done(KVS_STORED_HOST) && kvs_outcome_is_done(KVS_FORGOTTEN));
}

static void wrong_settings_are_named(void) {
    kvs_store *store = (kvs_store *)&store;
    kvs_open_options options = {0};
    puts("wrong_settings_are_named");
    ANSWERS(kvs_open("", NULL, &store), KVS_SETTINGS, "store.model");
    TRUE(store == NULL);
    ANSWERS(kvs_open("[store]\nmodle = 'm'\n", NULL, &store), KVS_SETTINGS, "modle");
    ANSWERS(kvs_open("[store", NULL, &store), KVS_SETTINGS, "settings_toml");
    ANSWERS(kvs_open("[store]\nmodel = '\xff'\n", NULL, &store), KVS_INVALID, "settings_toml: not UTF-8");
    ANSWERS(kvs_open(NULL, NULL, &store), KVS_SETTINGS, "store.model");
    ANSWERS(kvs_open("", NULL, NULL), KVS_INVALID, "store: NULL");
    options.size = 3;
    ANSWERS(kvs_open("", &options, &store), KVS_INVALID, "options->size: 3; set it to sizeof(kvs_open_options)");
    options.size = sizeof options;
    options.flags = 6;
    ANSWERS(kvs_open("", &options, &store), KVS_INVALID, "options->flags: 0x6");
    ANSWERS(kvs_open("[store]\nmodel = 'm'\nrevision = '1'\ndtype = 'd'\nlayout = 'l'\nspan = 16\nranks = 'r'\n"
                     "sizes = ['16K']\n[host]\nbytes = '512T'\n", NULL, &store), KVS_MEMORY, "host.bytes");
    ANSWERS(kvs_open("[store]\nmodel = 'm'\nrevision = '1'\ndtype = 'd'\nlayout = 'l'\nspan = 16\nranks = 'r'\n"
                     "sizes = ['16K']\n[disk]\nbytes = '1M'\npaths = ['/nowhere/at/all']\n[hash]\n"
                     "function = 'xxh3'\n", NULL, &store), KVS_IO, "/nowhere/at/all");
    TRUE(store == NULL);
}

static void last_error_is_cut_to_its_buffer(void) {
    char small[8];
    kvs_store *store;
    size_t whole;
    puts("last_error_is_cut_to_its_buffer");
    ANSWERS(kvs_open("", NULL, NULL), KVS_INVALID, NULL);
    whole = kvs_last_error(NULL, 0);
    TRUE(whole == strlen(said));
    TRUE(kvs_last_error(small, sizeof small) == whole);
    TRUE(strlen(small) == 7 && strncmp(small, said, 7) == 0);
    ANSWERS(kvs_open("[store]\n\"\xc3\xa4\" = 1", NULL, &store), KVS_SETTINGS, "\xc3\xa4");
    small[0] = 'x';
    TRUE(kvs_last_error(small, 0) > 0 && small[0] == 'x' && kvs_last_error(small, 1) > 0 && small[0] == 0);
    OK(kvs_store_free(NULL)); /* leaves it as it is */
    TRUE(kvs_last_error(said, sizeof said) > 0 && strstr(said, "\xc3\xa4") != NULL);
}

static void null_is_named(kvs_store *store, kvs_client *client) {
    struct batch batch = batch_of(0, 1, 0);
    kvs_store_stats stats = {0};
    kvs_completion completion;
    kvs_client *made;
    kvs_place place;
    uint8_t found;
    size_t number;
    puts("null_is_named");
    ANSWERS(kvs_close(NULL, 0), KVS_INVALID, "store: NULL");
    ANSWERS(kvs_stats(NULL, &stats), KVS_INVALID, "store: NULL");
    ANSWERS(kvs_stats(store, NULL), KVS_INVALID, "stats: NULL");
    ANSWERS(kvs_metrics_text(NULL, NULL, 0, &number), KVS_INVALID, "store: NULL");
    ANSWERS(kvs_metrics_text(store, NULL, 10, &number), KVS_INVALID, "buffer: NULL");
    ANSWERS(kvs_contains(NULL, batch.keys, 1, NULL, &found), KVS_INVALID, "store: NULL");
    ANSWERS(kvs_contains(store, NULL, 1, NULL, &found), KVS_INVALID, "keys: NULL");
    ANSWERS(kvs_contains(store, batch.keys, 1, NULL, NULL), KVS_INVALID, "found: NULL");
    OK(kvs_contains(store, NULL, 0, NULL, NULL));
    ANSWERS(kvs_leading(store, batch.keys, 1, NULL, NULL), KVS_INVALID, "leading: NULL");
    ANSWERS(kvs_leading(NULL, batch.keys, 1, NULL, &number), KVS_INVALID, "store: NULL");
    ANSWERS(kvs_find(store, batch.keys, 1, NULL, NULL), KVS_INVALID, "places: NULL");
    ANSWERS(kvs_find(NULL, batch.keys, 1, NULL, &place), KVS_INVALID, "store: NULL");
    ANSWERS(kvs_client_open(NULL, NULL, &made), KVS_INVALID, "store: NULL");
    ANSWERS(kvs_client_open(store, NULL, NULL), KVS_INVALID, "client: NULL");
    ANSWERS(kvs_wait(NULL, 0), KVS_INVALID, "client: NULL");
    ANSWERS(kvs_drain(NULL, &completion, 1, &number), KVS_INVALID, "client: NULL");
    ANSWERS(kvs_drain(client, NULL, 1, &number), KVS_INVALID, "completions: NULL");
    ANSWERS(kvs_drain(client, &completion, 0, &number), KVS_INVALID, "count: 0");
    ANSWERS(kvs_drain(client, &completion, 1, NULL), KVS_INVALID, "got: NULL");
    TRUE(kvs_event_fd(NULL) == -1);
    ANSWERS(kvs_submit_store(NULL, batch.entries, 1, NULL, NULL, NULL), KVS_INVALID, "client: NULL");
    ANSWERS(kvs_submit_store(client, NULL, 1, NULL, NULL, NULL), KVS_INVALID, "entries: NULL");
    ANSWERS(kvs_submit_load(client, NULL, 1, NULL, NULL, NULL), KVS_INVALID, "entries: NULL");
    ANSWERS(kvs_submit_forget(client, NULL, 1, NULL, NULL, NULL), KVS_INVALID, "keys: NULL");
    OK(kvs_client_free(NULL, 0));
    OK(kvs_store_free(NULL));
    release(&batch);
}

static void wrong_lengths_are_named(kvs_store *store, kvs_client *client) {
    struct batch batch = batch_of(0, 3, 0);
    kvs_batch_options options = {0};
    size_t number;
    uint8_t found[3];
    puts("wrong_lengths_are_named");
    ANSWERS(kvs_submit_store(client, batch.entries, 0, NULL, NULL, NULL), KVS_INVALID, "count: 0");
    ANSWERS(kvs_submit_load(client, batch.entries, 0, NULL, NULL, NULL), KVS_INVALID, "count: 0");
    ANSWERS(kvs_submit_forget(client, batch.keys, 0, NULL, NULL, NULL), KVS_INVALID, "count: 0");
    ANSWERS(kvs_submit_store(client, batch.entries, SIZE_MAX / 8, NULL, NULL, NULL), KVS_INVALID, "entries");
    batch.entries[2].key_bytes = 0;
    ANSWERS(kvs_submit_load(client, batch.entries, 3, NULL, NULL, NULL), KVS_INVALID, "entries[2].key_bytes: 0");
    batch.entries[2].key_bytes = KVS_MAX_KEY_BYTES + 1;
    ANSWERS(kvs_submit_store(client, batch.entries, 3, NULL, NULL, NULL), KVS_INVALID, "entries[2].key_bytes: 65537");
    batch.entries[2].key_bytes = 8;
    batch.entries[1].data = NULL;
    ANSWERS(kvs_submit_store(client, batch.entries, 3, NULL, NULL, NULL), KVS_INVALID, "entries[1].data: NULL");
    batch.entries[1].data = batch.memory;
    batch.entries[1].bytes = 0;
    ANSWERS(kvs_submit_load(client, batch.entries, 3, NULL, NULL, NULL), KVS_INVALID, "entries[1].bytes: 0");
    batch.entries[1].bytes = SIZE_MAX;
    ANSWERS(kvs_submit_load(client, batch.entries, 3, NULL, NULL, NULL), KVS_INVALID, "entries");
    batch.entries[1].key = NULL;
    ANSWERS(kvs_submit_load(client, batch.entries, 3, NULL, NULL, NULL), KVS_INVALID, "entries[1].key: NULL");
    batch.keys[1].key = NULL;
    ANSWERS(kvs_contains(store, batch.keys, 3, NULL, found), KVS_INVALID, "keys[1].key: NULL");
    ANSWERS(kvs_submit_forget(client, batch.keys, 3, NULL, NULL, NULL), KVS_INVALID, "keys[1].key: NULL");
    batch.keys[0].key_bytes = 0;
    ANSWERS(kvs_leading(store, batch.keys, 3, NULL, &number), KVS_INVALID, "keys[0].key_bytes: 0");
    options.size = sizeof options;
    options.salt = "\xc3(";
    ANSWERS(kvs_leading(store, batch.keys, 1, &options, &number), KVS_INVALID, "options->salt: not UTF-8");
    options.salt = NULL;
    options.lora = "\xff";
    ANSWERS(kvs_leading(store, batch.keys, 1, &options, &number), KVS_INVALID, "options->lora: not UTF-8");
    options.lora = NULL;
    options.urgency = 7;
    batch = (release(&batch), batch_of(0, 1, 0));
    ANSWERS(kvs_submit_load(client, batch.entries, 1, &options, NULL, NULL), KVS_INVALID, "options->urgency: 7");
    options.urgency = 0;
    options.until = 2;
    ANSWERS(kvs_submit_load(client, batch.entries, 1, &options, NULL, NULL), KVS_INVALID, "options->until: 2");
    ANSWERS(kvs_find(store, batch.keys, 1, NULL, (kvs_place *)(void *)(batch.memory + 1)), KVS_INVALID, "align it");
    TRUE(!is_readable(client));
    release(&batch);
}

/* Programs of an older and of a newer header. */
static void structs_of_other_versions_work(kvs_store *store, kvs_client *client) {
    struct { kvs_batch_options known; uint64_t newer[4]; } newer;
    struct { kvs_store_stats known; uint64_t newer[4]; } stats;
    kvs_client_options with = {0};
    struct batch batch = batch_of(100, 1, 0);
    kvs_client *made = NULL;
    unsigned char older[16];
    uint32_t size;
    puts("structs_of_other_versions_work");

    /* An older one ends before user_data: what lies behind it is not read. */
    memset(&newer, 0xff, sizeof newer);
    memset(&newer, 0, 16);
    newer.known.size = 16;
    fill(&batch);
    TRUE(stored(client, &batch, &newer.known).user_data == 0);

    /* A newer one works as long as the fields that the library does not know are 0. */
    memset(&newer, 0, sizeof newer);
    newer.known.size = sizeof newer;
    newer.known.user_data = 7;
    TRUE(stored(client, &batch, &newer.known).user_data == 7);
    newer.newer[2] = 1;
    ANSWERS(kvs_submit_store(client, batch.entries, 1, &newer.known, NULL, NULL), KVS_INVALID,
            "options: byte 56 of kvs_batch_options is set");
    for (size = 0; size < 8; size++) {
        newer.known.size = size;
        ANSWERS(kvs_submit_store(client, batch.entries, 1, &newer.known, NULL, NULL), KVS_INVALID,
                "set it to sizeof(kvs_batch_options)");
    }
    newer.known.size = 0x20000;
    ANSWERS(kvs_submit_store(client, batch.entries, 1, &newer.known, NULL, NULL), KVS_INVALID, "options->size");

    /* Figures: no byte past the caller's struct is written, and fields that are not known are 0. */
    memset(older, 0xee, sizeof older);
    size = 8;
    memcpy(older, &size, sizeof size);
    OK(kvs_stats(store, (kvs_store_stats *)(void *)older));
    TRUE(older[0] == 8 && older[4] == 0 && older[8] == 0xee && older[15] == 0xee);
    memset(&stats, 0xee, sizeof stats);
    stats.known.size = sizeof stats;
    OK(kvs_stats(store, &stats.known));
    TRUE(stats.known.size == sizeof stats && stats.known.stored_keys == 1 && stats.known.present_keys == 1);
    TRUE(stats.newer[0] == 0 && stats.newer[3] == 0);
    stats.known.size = 12;
    ANSWERS(kvs_stats(store, &stats.known), KVS_INVALID, "stats->size: 12");

    with.size = sizeof with;
    with.reserved = 1;
    ANSWERS(kvs_client_open(store, &with, &made), KVS_INVALID, "options->reserved: 1");
    TRUE(made == NULL);
    release(&batch);
}

static void arguments(void) {
    kvs_store *store;
    kvs_client *client;
    versions_and_names_are_told();
    wrong_settings_are_named();
    last_error_is_cut_to_its_buffer();
    store = opened(IN_HOST);
    client = client_of(store);
    null_is_named(store, client);
    wrong_lengths_are_named(store, client);
    structs_of_other_versions_work(store, client);
    finish(store, client);
}
