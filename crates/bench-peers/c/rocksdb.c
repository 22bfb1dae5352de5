/*
 * RocksDB: an LSM tree for each table (a column family), and one log.
 *
 * Variants: 0 has batches of writes, and snapshots for reads; 1 is the pessimistic `TransactionDB`, whose transactions
 * read the snapshot of their beginning and lock what they write; 2 is 0 with the long values in files of their own.
 */
#include "peer.h"

#include <rocksdb/c.h>
#include <stdlib.h>
#include <string.h>

#define BLOOM_BITS 10
/* The library's own default for one table; there are two at a time. */
#define MEMTABLE_BYTES (UINT64_C(64) << 20)
/* Memtables take at most this share of the memory, however many tables there are. */
#define MEMTABLES_SHARE 4
/* Values that long go to blob files. */
#define BLOB_BYTES_MIN 512

enum { PLAIN = 0, TRANSACTIONS = 1, BLOBS = 2 };

struct peer_store {
    /* One of the two. */
    rocksdb_t *db;
    rocksdb_transactiondb_t *txn_db;
    rocksdb_options_t *options;
    rocksdb_cache_t *cache;
    rocksdb_writeoptions_t *write_options;
    rocksdb_transaction_options_t *txn_options;
    /* The first is `default`, which stays empty. */
    size_t family_count;
    rocksdb_column_family_handle_t **families;
};

struct peer_session {
    struct peer_store *store;
    /* Read at the snapshot, if there is one. */
    rocksdb_readoptions_t *read_options;
    const rocksdb_snapshot_t *snapshot;
    /* The writes of variants 0 and 2. */
    rocksdb_writebatch_t *batch;
    /* The transaction of variant 1, used again and again; open if `is_open`. */
    rocksdb_transaction_t *txn;
    int is_open;
    /* The value that was read last. */
    rocksdb_pinnableslice_t *value;
};

/* Statuses come as sentences; those of a conflict begin like this. */
static int is_conflict(const char *error)
{
    static const char *const beginnings[] = {"Resource busy", "Operation timed out", "Operation failed. Try again."};
    for (size_t which = 0; which < sizeof beginnings / sizeof *beginnings; which++)
        if (strncmp(error, beginnings[which], strlen(beginnings[which])) == 0)
            return 1;
    return 0;
}

/* Takes ownership of the message. */
static enum peer_code code_of(char *error, const char *what)
{
    if (error == NULL)
        return PEER_OK;
    enum peer_code code = is_conflict(error) ? PEER_CONFLICT : peer_fail("%s: %s", what, error);
    rocksdb_free(error);
    return code;
}

static const char *version(void)
{
    return "RocksDB " PEER_ROCKSDB_VERSION;
}

/* Two memtables a table as by default, unless that is more than the share. */
static uint64_t memtables_bytes(const struct peer_opening *opening)
{
    uint64_t by_default = 2 * MEMTABLE_BYTES * opening->table_count;
    uint64_t share = opening->cache_bytes / MEMTABLES_SHARE;
    return by_default < share ? by_default : share;
}

static rocksdb_options_t *options_of(const struct peer_opening *opening, rocksdb_cache_t *cache)
{
    rocksdb_options_t *options = rocksdb_options_create();
    rocksdb_options_set_create_if_missing(options, 1);
    rocksdb_options_set_create_missing_column_families(options, 1);
    rocksdb_options_set_db_write_buffer_size(options, memtables_bytes(opening));
    rocksdb_options_set_level_compaction_dynamic_level_bytes(options, 1);
    rocksdb_options_set_compression(options, rocksdb_no_compression);
    rocksdb_options_set_manual_wal_flush(options, opening->durability == PEER_MEMORY);
    rocksdb_block_based_table_options_t *tables = rocksdb_block_based_options_create();
    rocksdb_block_based_options_set_block_cache(tables, cache);
    rocksdb_block_based_options_set_filter_policy(tables, rocksdb_filterpolicy_create_bloom_full(BLOOM_BITS));
    /* Outside of the cache they would take unbounded memory. */
    rocksdb_block_based_options_set_cache_index_and_filter_blocks(tables, 1);
    rocksdb_block_based_options_set_pin_l0_filter_and_index_blocks_in_cache(tables, 1);
    rocksdb_options_set_block_based_table_factory(options, tables);
    rocksdb_block_based_options_destroy(tables);
    if (opening->variant == BLOBS) {
        rocksdb_options_set_enable_blob_files(options, 1);
        rocksdb_options_set_min_blob_size(options, BLOB_BYTES_MIN);
        rocksdb_options_set_enable_blob_gc(options, 1);
        rocksdb_options_set_blob_cache(options, cache);
    }
    return options;
}

static char *open_db(struct peer_store *store, const struct peer_opening *opening)
{
    char *error = NULL;
    int count = (int)store->family_count;
    const char **names = calloc(store->family_count, sizeof *names);
    const rocksdb_options_t **options = calloc(store->family_count, sizeof *options);
    for (size_t family = 0; family < store->family_count; family++) {
        names[family] = family == 0 ? "default" : opening->tables[family - 1];
        options[family] = store->options;
    }
    if (opening->variant == TRANSACTIONS) {
        rocksdb_transactiondb_options_t *txn_db_options = rocksdb_transactiondb_options_create();
        store->txn_db = rocksdb_transactiondb_open_column_families(store->options, txn_db_options, opening->dir, count,
                                                                   names, options, store->families, &error);
        rocksdb_transactiondb_options_destroy(txn_db_options);
    } else {
        store->db = rocksdb_open_column_families(store->options, opening->dir, count, names, options, store->families,
                                                 &error);
    }
    free(options);
    free(names);
    return error;
}

static void free_store(struct peer_store *store)
{
    rocksdb_transaction_options_destroy(store->txn_options);
    rocksdb_writeoptions_destroy(store->write_options);
    rocksdb_options_destroy(store->options);
    rocksdb_cache_destroy(store->cache);
    free(store->families);
    free(store);
}

static enum peer_code open_store(const struct peer_opening *opening, struct peer_store **opened)
{
    struct peer_store *store = calloc(1, sizeof *store);
    store->family_count = opening->table_count + 1;
    store->families = calloc(store->family_count, sizeof *store->families);
    store->cache = rocksdb_cache_create_lru(opening->cache_bytes - memtables_bytes(opening));
    store->options = options_of(opening, store->cache);
    store->write_options = rocksdb_writeoptions_create();
    rocksdb_writeoptions_set_sync(store->write_options, opening->durability == PEER_SYNCED);
    store->txn_options = rocksdb_transaction_options_create();
    rocksdb_transaction_options_set_set_snapshot(store->txn_options, 1);
    /* Otherwise a deadlock ends by a timeout of a second. */
    rocksdb_transaction_options_set_deadlock_detect(store->txn_options, 1);
    char *error = open_db(store, opening);
    if (error != NULL)
        free_store(store);
    else
        *opened = store;
    return code_of(error, "opening the database");
}

static enum peer_code settle(struct peer_store *store)
{
    char *error = NULL;
    if (store->txn_db != NULL)
        rocksdb_transactiondb_flush_wal(store->txn_db, 1, &error);
    else
        rocksdb_flush_wal(store->db, 1, &error);
    return code_of(error, "syncing the log");
}

static enum peer_code close_store(struct peer_store *store)
{
    for (size_t family = 0; family < store->family_count; family++)
        rocksdb_column_family_handle_destroy(store->families[family]);
    if (store->txn_db != NULL)
        rocksdb_transactiondb_close(store->txn_db);
    else
        rocksdb_close(store->db);
    free_store(store);
    return PEER_OK;
}

static enum peer_code open_session(struct peer_store *store, struct peer_session **opened)
{
    struct peer_session *session = calloc(1, sizeof *session);
    session->store = store;
    session->read_options = rocksdb_readoptions_create();
    session->batch = rocksdb_writebatch_create();
    *opened = session;
    return PEER_OK;
}

static void set_snapshot(struct peer_session *session, const rocksdb_snapshot_t *snapshot)
{
    session->snapshot = snapshot;
    rocksdb_readoptions_set_snapshot(session->read_options, snapshot);
}

static void begin_write(struct peer_session *session)
{
    struct peer_store *store = session->store;
    if (store->txn_db == NULL) {
        rocksdb_writebatch_clear(session->batch);
        return;
    }
    session->txn =
        rocksdb_transaction_begin(store->txn_db, store->write_options, store->txn_options, session->txn);
    session->is_open = 1;
    set_snapshot(session, rocksdb_transaction_get_snapshot(session->txn));
}

static void begin_read(struct peer_session *session)
{
    struct peer_store *store = session->store;
    if (store->txn_db != NULL)
        set_snapshot(session, rocksdb_transactiondb_create_snapshot(store->txn_db));
    else
        set_snapshot(session, rocksdb_create_snapshot(store->db));
}

static enum peer_code begin(struct peer_session *session, int write)
{
    if (write)
        begin_write(session);
    else
        begin_read(session);
    return PEER_OK;
}

/* Releases the read value and the snapshot. A transaction owns its snapshot, except for the handle. */
static void release(struct peer_session *session)
{
    const rocksdb_snapshot_t *snapshot = session->snapshot;
    struct peer_store *store = session->store;
    rocksdb_pinnableslice_destroy(session->value);
    session->value = NULL;
    if (snapshot == NULL)
        return;
    set_snapshot(session, NULL);
    if (session->is_open)
        rocksdb_free((void *)snapshot);
    else if (store->txn_db != NULL)
        rocksdb_transactiondb_release_snapshot(store->txn_db, snapshot);
    else
        rocksdb_release_snapshot(store->db, snapshot);
}

static void rollback(struct peer_session *session)
{
    char *error = NULL;
    release(session);
    rocksdb_writebatch_clear(session->batch);
    if (session->is_open)
        rocksdb_transaction_rollback(session->txn, &error);
    session->is_open = 0;
    rocksdb_free(error);
}

static enum peer_code commit(struct peer_session *session)
{
    struct peer_store *store = session->store;
    char *error = NULL;
    if (session->is_open) {
        rocksdb_transaction_commit(session->txn, &error);
    } else {
        rocksdb_write(store->db, store->write_options, session->batch, &error);
    }
    enum peer_code code = code_of(error, "committing");
    if (code != PEER_OK)
        rollback(session);
    release(session);
    session->is_open = 0;
    return code;
}

static void end_session(struct peer_session *session)
{
    rollback(session);
    if (session->txn != NULL)
        rocksdb_transaction_destroy(session->txn);
    rocksdb_writebatch_destroy(session->batch);
    rocksdb_readoptions_destroy(session->read_options);
    free(session);
}

static rocksdb_pinnableslice_t *read_key(struct peer_session *session, rocksdb_column_family_handle_t *family,
                                         struct peer_bytes key, int for_update, char **error)
{
    struct peer_store *store = session->store;
    const rocksdb_readoptions_t *options = session->read_options;
    if (session->is_open && for_update)
        return rocksdb_transaction_get_pinned_for_update_cf(session->txn, options, family, key.data, key.size, 1, error);
    if (session->is_open)
        return rocksdb_transaction_get_pinned_cf(session->txn, options, family, key.data, key.size, error);
    if (store->txn_db != NULL)
        return rocksdb_transactiondb_get_pinned_cf(store->txn_db, options, family, key.data, key.size, error);
    return rocksdb_get_pinned_cf(store->db, options, family, key.data, key.size, error);
}

static enum peer_code get(struct peer_session *session, size_t table, struct peer_bytes key, int for_update,
                          struct peer_bytes *value)
{
    char *error = NULL;
    rocksdb_pinnableslice_destroy(session->value);
    session->value = read_key(session, session->store->families[table + 1], key, for_update, &error);
    if (error != NULL)
        return code_of(error, "reading");
    if (session->value == NULL)
        return PEER_NOT_FOUND;
    value->data = rocksdb_pinnableslice_value(session->value, &value->size);
    return PEER_OK;
}

static enum peer_code put(struct peer_session *session, size_t table, struct peer_bytes key, struct peer_bytes value)
{
    rocksdb_column_family_handle_t *family = session->store->families[table + 1];
    char *error = NULL;
    if (session->is_open)
        rocksdb_transaction_put_cf(session->txn, family, key.data, key.size, value.data, value.size, &error);
    else
        rocksdb_writebatch_put_cf(session->batch, family, key.data, key.size, value.data, value.size);
    return code_of(error, "writing");
}

static enum peer_code remove_key(struct peer_session *session, size_t table, struct peer_bytes key)
{
    rocksdb_column_family_handle_t *family = session->store->families[table + 1];
    char *error = NULL;
    if (session->is_open)
        rocksdb_transaction_delete_cf(session->txn, family, key.data, key.size, &error);
    else
        rocksdb_writebatch_delete_cf(session->batch, family, key.data, key.size);
    return code_of(error, "deleting");
}

static rocksdb_iterator_t *iterator_of(struct peer_session *session, rocksdb_column_family_handle_t *family)
{
    struct peer_store *store = session->store;
    if (session->is_open)
        return rocksdb_transaction_create_iterator_cf(session->txn, session->read_options, family);
    if (store->txn_db != NULL)
        return rocksdb_transactiondb_create_iterator_cf(store->txn_db, session->read_options, family);
    return rocksdb_create_iterator_cf(store->db, session->read_options, family);
}

static void position(rocksdb_iterator_t *entries, const struct peer_bytes *from, int reverse)
{
    if (from == NULL && reverse)
        rocksdb_iter_seek_to_last(entries);
    else if (from == NULL)
        rocksdb_iter_seek_to_first(entries);
    else if (reverse)
        rocksdb_iter_seek_for_prev(entries, from->data, from->size);
    else
        rocksdb_iter_seek(entries, from->data, from->size);
}

static enum peer_code scan(struct peer_session *session, size_t table, const struct peer_bytes *from, int reverse,
                           int for_update, peer_visit visit, void *state)
{
    (void)for_update;
    char *error = NULL;
    rocksdb_iterator_t *entries = iterator_of(session, session->store->families[table + 1]);
    position(entries, from, reverse);
    while (rocksdb_iter_valid(entries)) {
        struct peer_bytes key, value;
        key.data = rocksdb_iter_key(entries, &key.size);
        value.data = rocksdb_iter_value(entries, &value.size);
        if (!visit(state, key, value))
            break;
        if (reverse)
            rocksdb_iter_prev(entries);
        else
            rocksdb_iter_next(entries);
    }
    rocksdb_iter_get_error(entries, &error);
    rocksdb_iter_destroy(entries);
    return code_of(error, "scanning");
}

const struct peer_library peer_rocksdb = {
    .version = version,
    .open = open_store,
    .settle = settle,
    .close = close_store,
    .session = open_session,
    .end_session = end_session,
    .begin = begin,
    .commit = commit,
    .rollback = rollback,
    .get = get,
    .put = put,
    .remove = remove_key,
    .scan = scan,
};
