/* SPDX-License-Identifier: Apache-2.0
 *
 * kvstrata's store for C and C++: blocks of an LLM's KV cache by key, in host memory and on disk.
 *
 *     kvs_open --> kvs_store     lookups, figures, close
 *                      | kvs_client_open
 *                      v
 *                   kvs_client    kvs_submit_store, _load, _forget --> jobs --> kvs_drain, or a callback
 *
 * Answers    Each call answers a kvs_status, and kvs_last_error has the remedy in words. Each key of a job
 *            has an answer of its own: one that fails is a miss, and the others stay good.
 * Memory     Keys, options and arrays of entries are copied at the call. The memory of entries and the array
 *            of outcomes are the library's from the call until kvs_drain, or the callback, has reported the
 *            job; then they are the caller's again. Nothing else is kept, and the caller frees nothing of
 *            the library's except its two handles.
 * Threads    Any thread may make any call on a handle at any time, beside others. The two exceptions end a
 *            handle: kvs_store_free and kvs_client_free.
 * Waiting    Only kvs_open, kvs_wait, kvs_close and kvs_client_free wait. kvs_store_free may wait for threads
 *            that copy.
 * Fork       A forked process cannot use its parent's handles: calls answer KVS_FORKED there, and never hang.
 *            Leave the handles alone there: they need not be freed.
 * Structs    Those that begin with `size` may grow. Zero them and set size to sizeof: older programs go on
 *            working with newer libraries; newer programs work with older libraries as long as the fields
 *            that those do not know are 0.
 * Panics     No Rust panic and no C++ exception crosses this interface.
 * Exit       Nothing depends on an orderly end. A killed process loses only blocks on their way to the disk.
 *
 * docs/c-api.md explains more, with an example. Made by cbindgen from ffi/c/src: do not edit it.
 */


#ifndef KVSTRATA_H
#define KVSTRATA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/// The version of this header's binary interface. It changes if a program that was compiled with an older
/// header would not work with a newer library, and at no other time.
#define KVS_ABI_VERSION 1

/// A flag of kvs_open_options: variables of the environment (KVSTRATA_DISK_BYTES and so on) and the file that
/// KVSTRATA_CONFIG names are settings, too. They win over the text.
#define KVS_OPEN_ENVIRONMENT 1

/// The longest key, in bytes. A longer one is taken for a length that was never set.
#define KVS_MAX_KEY_BYTES 65536

/// The answer of a call. Numbers never change; new ones may be added.
enum kvs_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /// Done.
    KVS_OK = 0,
    /// The time limit passed first. The work goes on; call again.
    KVS_TIMEOUT = 1,
    /// As many batches are under way as may be (transfer.queue). Nothing has begun; drain, then try again.
    KVS_BUSY = 2,
    /// The store is closed. Nothing has begun.
    KVS_CLOSED = 3,
    /// The buffer is too small. The size that is needed was written.
    KVS_TOO_SMALL = 4,
    /// An argument is wrong: the message names it. Nothing has begun.
    KVS_INVALID = 5,
    /// The settings are wrong: the message names each of them.
    KVS_SETTINGS = 6,
    /// There is not enough memory.
    KVS_MEMORY = 7,
    /// A disk or a file cannot be used.
    KVS_IO = 8,
    /// The system refused a thread, a descriptor or an address.
    KVS_SYSTEM = 9,
    /// This process was forked from the one that made the handle. The handle is of no use here, not even to
    /// be freed. Open a store in this process, after the fork.
    KVS_FORKED = 10,
    /// A bug of the library, stopped at its edge. The message is worth a report. Memory that was given to
    /// the call may be in use until kvs_client_free has answered KVS_OK.
    KVS_PANIC = 11,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum kvs_status kvs_status;
#else
typedef int32_t kvs_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/// A tier of a store.
enum kvs_tier
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /// The key is in none.
    KVS_TIER_NONE = 0,
    /// Host memory of the store.
    KVS_TIER_HOST = 1,
    /// The disk.
    KVS_TIER_DISK = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum kvs_tier kvs_tier;
#else
typedef uint32_t kvs_tier;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/// The answer for one key. Numbers never change, and new ones may be added: 1 to 63 mean that the key was
/// stored, loaded or forgotten as asked; from 64 on, it was not. A load that was not done is a miss: compute
/// the block. The memory of a miss may have been overwritten, except by KVS_ABSENT.
enum kvs_outcome
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint8_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /// Not answered yet. The library never writes it.
    KVS_UNANSWERED = 0,
    /// The bytes are in host memory.
    KVS_STORED_HOST = 1,
    /// The bytes are on the disk.
    KVS_STORED_DISK = 2,
    /// The key was there already, with as many bytes. Nothing was written.
    KVS_PRESENT = 3,
    /// The memory has the bytes. They came from host memory.
    KVS_LOADED_HOST = 4,
    /// The memory has the bytes. They came from the disk.
    KVS_LOADED_DISK = 5,
    /// No lookup finds the key any more.
    KVS_FORGOTTEN = 6,
    /// The key is not there. A load has left the memory as it was.
    KVS_ABSENT = 64,
    /// The key has another number of bytes.
    KVS_MISS_LENGTH = 65,
    /// The entry is longer than the largest of store.sizes.
    KVS_MISS_TOO_LONG = 66,
    /// No block is free, and none can be evicted just now.
    KVS_MISS_FULL = 67,
    /// The disk takes no more just now, or its filter or write budget refused the block.
    KVS_MISS_REFUSED = 68,
    /// Too many transfers wait already (transfer.queue).
    KVS_MISS_BUSY = 69,
    /// The disk takes too long, so it is spared for a while (transfer.slow_above).
    KVS_MISS_SLOW = 70,
    /// The deadline passed first.
    KVS_MISS_LATE = 71,
    /// The store is closed.
    KVS_MISS_CLOSED = 72,
    /// The transfer failed, for another reason than those below.
    KVS_MISS_FAILED = 96,
    /// The bytes are not those that were stored: their checksum differs.
    KVS_MISS_MISMATCH = 97,
    /// The disk failed, or the part of it that has the block.
    KVS_MISS_DISK = 98,
    /// The volume is out of service for good.
    KVS_MISS_LOST = 99,
    /// The volume does not answer just now, or takes no writes. Its blocks stay.
    KVS_MISS_AWAY = 100,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum kvs_outcome kvs_outcome;
#else
typedef uint8_t kvs_outcome;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/// The kind of a job: the call that began it.
enum kvs_kind
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /// kvs_submit_store.
    KVS_STORE = 1,
    /// kvs_submit_load.
    KVS_LOAD = 2,
    /// kvs_submit_forget.
    KVS_FORGET = 3,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum kvs_kind kvs_kind;
#else
typedef uint32_t kvs_kind;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/// Which loads go first.
enum kvs_urgency
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /// Before writes: a prefetch, for example. The default.
    KVS_ORDINARY = 0,
    /// A request waits for the bytes: before everything else.
    KVS_URGENT = 1,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum kvs_urgency kvs_urgency;
#else
typedef uint32_t kvs_urgency;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/// When a store of bytes is answered.
enum kvs_until
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
    /// When the disk has them, or host memory if there is no disk. The default.
    KVS_UNTIL_BELOW = 0,
    /// When host memory has them; the write to the disk goes on. Without a host tier as KVS_UNTIL_BELOW.
    KVS_UNTIL_HOST = 1,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum kvs_until kvs_until;
#else
typedef uint32_t kvs_until;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/// A client: submits batches, and gets their completions, which no other client gets. Any number of threads
/// may use one client at once. kvs_client_open makes it, kvs_client_free ends it.
typedef struct kvs_client kvs_client;

/// A store: blocks by key, in host memory and on disk. kvs_open makes it, kvs_store_free ends it.
typedef struct kvs_store kvs_store;

/// Options of kvs_open. Zero the struct, then set the size.
typedef struct kvs_open_options {
    /// sizeof(kvs_open_options).
    uint32_t size;
    /// 0, or KVS_OPEN_ENVIRONMENT.
    uint32_t flags;
} kvs_open_options;

/// A key: any bytes, which name bytes that never change.
typedef struct kvs_key {
    /// The first byte.
    const void *key;
    /// The number of bytes: 1 to KVS_MAX_KEY_BYTES.
    size_t key_bytes;
} kvs_key;

/// Options of a batch. Zero the struct, then set the size and the other fields. The library copies it, and
/// the strings, at the call.
typedef struct kvs_batch_options {
    /// sizeof(kvs_batch_options).
    uint32_t size;
    /// A kvs_urgency, for loads.
    uint32_t urgency;
    /// A kvs_until, for stores.
    uint32_t until;
    /// The deadline, in milliseconds from now: transfers that have not begun are answered with
    /// KVS_MISS_LATE then. 0: that of the settings (deadline.onboard for loads, deadline.offload otherwise).
    uint32_t within_ms;
    /// Any value. The job's completion has it.
    uint64_t user_data;
    /// The LoRA adapter of the keys: the same key of another adapter is another entry. NULL: store.lora.
    const char *lora;
    /// The salt of the keys: the same key under another salt is another entry. NULL: store.salt.
    const char *salt;
} kvs_batch_options;

/// Where a key is.
typedef struct kvs_place {
    /// The number of its bytes; 0 if it is in no tier.
    uint64_t bytes;
    /// The tier from which a load would bring them.
    kvs_tier tier;
    /// 0.
    uint32_t reserved;
} kvs_place;

/// A job that has ended. Its memory and its outcomes are the caller's again.
typedef struct kvs_completion {
    /// The number that the call gave.
    uint64_t job;
    /// The user_data of the job's options; 0 without.
    uint64_t user_data;
    /// The number of keys.
    size_t keys;
    /// The number of keys that were done.
    size_t done;
    /// The number of leading keys that were done: the usable prefix of a load.
    size_t leading;
    /// The array that the call got, filled now; NULL if it got none.
    kvs_outcome *outcomes;
    /// The call that began the job.
    kvs_kind kind;
    /// 0.
    uint32_t reserved;
} kvs_completion;

/// Is called for each job that has ended, one after another, on the client's thread "kvstrata-calls". It may
/// call everything except kvs_client_free of its own client. It must return, and must not throw.
///
/// context: that of kvs_client_options. completion: valid during the call.
typedef void (*kvs_callback)(void *context, const struct kvs_completion *completion);

/// Options of kvs_client_open. Zero the struct, then set the size and the other fields.
typedef struct kvs_client_options {
    /// sizeof(kvs_client_options).
    uint32_t size;
    /// 0.
    uint32_t reserved;
    /// Is called for each completion, on a thread of the client's own. NULL: the caller drains.
    kvs_callback callback;
    /// The callback's first argument.
    void *context;
} kvs_client_options;

/// A key, and the memory of its bytes.
typedef struct kvs_entry {
    /// The key's first byte. The key is copied at the call.
    const void *key;
    /// The number of the key's bytes: 1 to KVS_MAX_KEY_BYTES.
    size_t key_bytes;
    /// The memory: a store reads it, a load writes it. At a page boundary, and without a host tier, bytes
    /// go straight between this memory and the disk; otherwise they are copied once.
    void *data;
    /// The number of bytes: at least 1, at most the largest of store.sizes. A load names as many as were
    /// stored.
    size_t bytes;
} kvs_entry;

/// Figures of a store since it was opened. Set the size, then call kvs_stats. kvs_metrics_text has more: by
/// size of blocks, and misses by cause.
typedef struct kvs_store_stats {
    /// sizeof(kvs_store_stats). The call leaves it as it is.
    uint32_t size;
    /// 1 while the disk takes so long that lookups pass it by, otherwise 0.
    uint32_t disk_is_slow;
    /// Keys that were stored.
    uint64_t stored_keys;
    /// Bytes that were stored.
    uint64_t stored_bytes;
    /// Keys of stores that were there already.
    uint64_t present_keys;
    /// Keys of stores that were not stored.
    uint64_t store_misses;
    /// Keys that were loaded from host memory.
    uint64_t loaded_from_host_keys;
    /// Keys that were loaded from the disk.
    uint64_t loaded_from_disk_keys;
    /// Bytes that were loaded.
    uint64_t loaded_bytes;
    /// Keys of loads that were not there.
    uint64_t absent_keys;
    /// Keys of loads that were there and were not loaded.
    uint64_t load_misses;
    /// Keys that were forgotten on request.
    uint64_t forgotten_keys;
    /// Keys that joined a transfer of the same key under way.
    uint64_t joined_keys;
    /// Blocks evicted from host memory that the disk did not have.
    uint64_t dropped_blocks;
    /// Transfers straight between lent memory and the disk.
    uint64_t straight_transfers;
    /// Transfers by way of host memory of the store.
    uint64_t staged_transfers;
    /// Batches under way now.
    uint64_t batches;
    /// Blocks of the host tier.
    uint64_t host_blocks;
    /// Blocks of the host tier that hold a key now.
    uint64_t host_blocks_used;
    /// Blocks of the disk.
    uint64_t disk_blocks;
    /// Blocks of the disk that hold a key now.
    uint64_t disk_blocks_used;
    /// Transfers that wait now.
    uint64_t waiting_transfers;
    /// Transfers to and from the disk under way now.
    uint64_t moving_transfers;
} kvs_store_stats;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/// Returns the name of a status, for example "KVS_TIMEOUT"; "unknown" for other numbers. It is never freed.
const char *kvs_status_name(int32_t status);

/// Returns the library's KVS_ABI_VERSION. Compare it with the header's, before any other call.
uint32_t kvs_abi_version(void);

/// Returns the library's version, for example "0.1.0". It is never freed.
const char *kvs_version_text(void);

/// Copies the message of the last call of this thread that did not answer KVS_OK. It names the argument or
/// the setting, its value, and a remedy. Calls that answer KVS_OK leave it as it is.
///
/// buffer, bytes: where to write at most bytes - 1 bytes and a NUL. NULL with 0 asks for the length alone.
/// Returns the length of the whole message, without the NUL; 0 if no call has failed. It is UTF-8.
size_t kvs_last_error(char *buffer,
                      size_t bytes);

/// Opens a store. It may take seconds: memory is mapped, and volumes are read.
///
/// settings_toml: the settings as the text of a TOML file, UTF-8; NULL: none. The sections are those of
/// docs/settings.md: store, host, disk, hash, deadline, transfer, metrics, runtime. The store section must
/// describe the bytes: model, revision, dtype, layout, span and ranks.
/// options: NULL: the defaults.
/// store: receives the handle, or NULL.
/// Returns KVS_OK, KVS_INVALID, KVS_SETTINGS, KVS_MEMORY, KVS_IO or KVS_SYSTEM.
kvs_status kvs_open(const char *settings_toml,
                    const struct kvs_open_options *options,
                    struct kvs_store **store);

/// Returns whether an outcome means that the key was stored, loaded or forgotten as asked.
bool kvs_outcome_is_done(uint8_t outcome);

/// Returns the name of an outcome, for example "KVS_MISS_LATE"; "unknown" for other numbers. It is never
/// freed.
const char *kvs_outcome_name(uint8_t outcome);

/// Answers for each key whether it can be loaded now. A key on its way to a tier is not there yet; while
/// the disk takes too long, its keys count as not there. A microsecond or so for each key, and no I/O.
///
/// keys, count: the keys.
/// options: lora and salt are read, nothing else; NULL: those of the settings.
/// found: receives count bytes: 1 if the key is there, otherwise 0.
kvs_status kvs_contains(const struct kvs_store *store,
                        const struct kvs_key *keys,
                        size_t count,
                        const struct kvs_batch_options *options,
                        uint8_t *found);

/// Counts the leading keys that can be loaded now: the usable prefix of a sequence. It looks no further than
/// the first key that is not there. Otherwise like kvs_contains.
///
/// leading: receives the number of keys.
kvs_status kvs_leading(const struct kvs_store *store,
                       const struct kvs_key *keys,
                       size_t count,
                       const struct kvs_batch_options *options,
                       size_t *leading);

/// Answers where each key is, and how many bytes it has. Otherwise like kvs_contains.
///
/// places: receives count answers.
kvs_status kvs_find(const struct kvs_store *store,
                    const struct kvs_key *keys,
                    size_t count,
                    const struct kvs_batch_options *options,
                    struct kvs_place *places);

/// Makes a client of a store.
///
/// options: NULL: the caller drains.
/// client: receives the handle, or NULL.
/// Returns KVS_OK, KVS_INVALID, KVS_CLOSED, KVS_SYSTEM or KVS_FORKED.
kvs_status kvs_client_open(const struct kvs_store *store,
                           const struct kvs_client_options *options,
                           struct kvs_client **client);

/// Begins to store entries: the bytes of each under its key. A key stands for bytes that never change: a key
/// that is there is answered with KVS_PRESENT, and nothing is written.
///
/// entries, count: the entries, at least one. The array and the keys are copied; the memory of the entries is
/// lent: no thread may write it until the job's completion has been reported.
/// options: NULL: the defaults.
/// outcomes: an array of count, or NULL. It is the library's until the job's completion has been reported,
/// and filled by then.
/// job: receives the number of the job, before any thread can drain it; may be NULL.
/// Returns KVS_OK; KVS_BUSY, KVS_CLOSED, KVS_INVALID or KVS_FORKED: nothing has begun, and everything is the
/// caller's; KVS_PANIC. It waits for no I/O.
kvs_status kvs_submit_store(struct kvs_client *client,
                            const struct kvs_entry *entries,
                            size_t count,
                            const struct kvs_batch_options *options,
                            kvs_outcome *outcomes,
                            uint64_t *job);

/// Begins to load entries: the bytes of each key into its memory, which is as long as they are. Keys with
/// another length are answered with KVS_MISS_LENGTH: kvs_find knows the length.
///
/// entries, count: the entries, at least one. The array and the keys are copied; the memory of the entries is
/// lent: no thread may touch it until the job's completion has been reported, and no two entries share any.
/// The rest is as in kvs_submit_store.
kvs_status kvs_submit_load(struct kvs_client *client,
                           const struct kvs_entry *entries,
                           size_t count,
                           const struct kvs_batch_options *options,
                           kvs_outcome *outcomes,
                           uint64_t *job);

/// Begins to forget keys: from the completion on, no lookup finds them until they are stored again. A crash
/// soon afterwards may bring keys back; an orderly end does not.
///
/// keys, count: the keys, at least one. They are copied.
/// options: lora, salt and user_data are read; NULL: the defaults.
/// outcomes, job: as in kvs_submit_store.
kvs_status kvs_submit_forget(struct kvs_client *client,
                             const struct kvs_key *keys,
                             size_t count,
                             const struct kvs_batch_options *options,
                             kvs_outcome *outcomes,
                             uint64_t *job);

/// Returns the client's descriptor: readable while there are completions to drain. Use it with poll, epoll
/// or an event loop, and do nothing else with it: kvs_client_free closes it. -1: see kvs_last_error.
int kvs_event_fd(const struct kvs_client *client);

/// Waits until there are completions to drain: for callers without an event loop.
///
/// timeout_ms: how long to wait. 0 does not wait, a negative number waits without limit.
/// Returns KVS_OK: drain now; another thread may be faster. KVS_TIMEOUT. KVS_CLOSED: the store is closed, and
/// nothing is left to drain.
kvs_status kvs_wait(struct kvs_client *client,
                    int32_t timeout_ms);

/// Reports jobs that have ended, in the order of their ends. It does not wait. If more have ended than
/// there is room for, the descriptor stays readable.
///
/// completions, count: where to write them; at least one.
/// got: receives the number that was written, which may be 0.
kvs_status kvs_drain(struct kvs_client *client,
                     struct kvs_completion *completions,
                     size_t count,
                     size_t *got);

/// Ends a client, and frees its handle. NULL is ignored. It waits for the client's jobs: after KVS_OK, the
/// library touches no memory and no outcomes of theirs, and calls no callback. Completions that were not
/// drained are dropped; a callback has had all of them.
///
/// timeout_ms: how long to wait. 0 does not wait, a negative number waits without limit. A disk that hangs
/// keeps the memory of its transfers; the deadline of a batch ends only transfers that have not begun.
/// Returns KVS_OK; KVS_TIMEOUT: the handle is still good, for a later call of kvs_client_free, and of
/// kvs_drain. No other call may use it at the same time, or after KVS_OK.
kvs_status kvs_client_free(struct kvs_client *client,
                           int32_t timeout_ms);

/// Writes the figures of a store. A struct of an older header gets the fields that it has.
kvs_status kvs_stats(const struct kvs_store *store, struct kvs_store_stats *stats);

/// Writes the figures of a store as Prometheus text.
///
/// buffer, bytes: where to write the text and a NUL.
/// needed: receives the bytes that are needed, with the NUL; may be NULL.
/// Returns KVS_OK; KVS_TOO_SMALL: nothing was written. The text may have grown by the next call.
kvs_status kvs_metrics_text(const struct kvs_store *store,
                            char *buffer,
                            size_t bytes,
                            size_t *needed);

/// Closes a store: later calls answer KVS_CLOSED, batches that have not begun to move bytes are answered as
/// misses, those that move bytes end, and the volumes get the mark of a clean end. Drain the clients as
/// before: each job still has its completion.
///
/// timeout_ms: how long to wait. 0 does not wait, a negative number waits without limit.
/// Returns KVS_OK if the store is closed; KVS_TIMEOUT if that takes longer: it goes on, and a later call
/// waits for it again. It may be called any number of times, by any threads. Nothing depends on it: after a
/// process that was killed, the next start finds the blocks that the disk has.
kvs_status kvs_close(struct kvs_store *store,
                     int32_t timeout_ms);

/// Frees a store's handle. NULL is ignored. The store itself ends when its clients have been freed as well.
/// For an orderly end call kvs_close first; without it, the volumes are recovered at the next start.
///
/// No other call may use the handle at the same time, or afterwards.
kvs_status kvs_store_free(struct kvs_store *store);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* KVSTRATA_H */
