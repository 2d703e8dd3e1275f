// The store in a C++ program: handles that free themselves, errors as exceptions, an event loop over the
// client's descriptor. Build and run it like embed.c, with `c++ -std=c++17`.
#include "kvstrata.h"

#include <poll.h>

#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

void check(kvs_status status) {
    if (status != KVS_OK) {
        std::string message(kvs_last_error(nullptr, 0) + 1, '\0');
        kvs_last_error(message.data(), message.size());
        throw std::runtime_error(std::string(kvs_status_name(status)) + ": " + message.c_str());
    }
}

// A client's end waits for its jobs: their memory is free afterwards, also if an exception ended the block.
struct EndClient {
    void operator()(kvs_client *client) const { kvs_client_free(client, -1); }
};
struct EndStore {
    void operator()(kvs_store *store) const {
        kvs_close(store, 5000);
        kvs_store_free(store);
    }
};
using Store = std::unique_ptr<kvs_store, EndStore>;
using Client = std::unique_ptr<kvs_client, EndClient>;

Store open(const std::string &settings) {
    kvs_store *store = nullptr;
    check(kvs_open(settings.c_str(), nullptr, &store));
    return Store(store);
}

Client client_of(const Store &store) {
    kvs_client *client = nullptr;
    check(kvs_client_open(store.get(), nullptr, &client));
    return Client(client);
}

struct Block {
    std::string key;
    std::vector<unsigned char> bytes;

    kvs_entry entry() { return {key.data(), key.size(), bytes.data(), bytes.size()}; }
};

// An engine's loop: whatever has ended is reported to `user_data`, which is a counter here.
void run_until(const Client &client, const std::size_t &left) {
    kvs_completion ended[16];
    while (left > 0) {
        pollfd ready{kvs_event_fd(client.get()), POLLIN, 0};
        if (poll(&ready, 1, -1) <= 0) {
            continue;
        }
        std::size_t got = 0;
        check(kvs_drain(client.get(), ended, 16, &got));
        for (std::size_t i = 0; i < got; i++) {
            std::printf("%zu of %zu keys\n", ended[i].done, ended[i].keys);
            --*reinterpret_cast<std::size_t *>(static_cast<std::uintptr_t>(ended[i].user_data));
        }
    }
}

}  // namespace

int main(int argc, char **argv) try {
    const std::string folder = argc > 1 ? argv[1] : "/tmp";
    // Declared first, freed last: the memory outlives the client, which outlives no store.
    std::vector<Block> blocks;
    for (int i = 0; i < 8; i++) {
        blocks.push_back({"block " + std::to_string(i), std::vector<unsigned char>(4096 * (1 + i), 7)});
    }
    const Store store = open("[store]\nmodel = 'a model'\nrevision = '1'\ndtype = 'bfloat16'\n"
                             "layout = 'example'\nspan = 16\nranks = 'tp0of1'\nsizes = ['8K', '64K']\n"
                             "[host]\nbytes = '8M'\n[disk]\nbytes = '8M'\npaths = ['" + folder + "']\n");
    const Client client = client_of(store);

    // One batch for each block, all under way at once. Blocks are of several sizes.
    kvs_batch_options options{};
    std::size_t left = blocks.size();
    options.size = sizeof options;
    options.user_data = reinterpret_cast<std::uintptr_t>(&left);
    for (Block &block : blocks) {
        const kvs_entry entry = block.entry();
        check(kvs_submit_store(client.get(), &entry, 1, &options, nullptr, nullptr));
    }
    run_until(client, left);

    // The store knows the length of each block.
    std::vector<kvs_entry> entries;
    for (Block &block : blocks) {
        const kvs_key key{block.key.data(), block.key.size()};
        kvs_place place{};
        check(kvs_find(store.get(), &key, 1, nullptr, &place));
        block.bytes.assign(place.bytes, 0);
        entries.push_back(block.entry());
    }
    left = 1;
    check(kvs_submit_load(client.get(), entries.data(), entries.size(), &options, nullptr, nullptr));
    run_until(client, left);
    for (const Block &block : blocks) {
        if (block.bytes.empty() || std::memchr(block.bytes.data(), 0, block.bytes.size()) != nullptr) {
            throw std::runtime_error("wrong bytes: " + block.key);
        }
    }
    std::printf("%zu blocks, bytes equal\n", blocks.size());
    return 0;
} catch (const std::exception &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
