import com.sleepycat.je.Cursor;
import com.sleepycat.je.Database;
import com.sleepycat.je.DatabaseConfig;
import com.sleepycat.je.DatabaseEntry;
import com.sleepycat.je.Durability;
import com.sleepycat.je.Environment;
import com.sleepycat.je.EnvironmentConfig;
import com.sleepycat.je.JEVersion;
import com.sleepycat.je.LockConflictException;
import com.sleepycat.je.LockMode;
import com.sleepycat.je.OperationStatus;
import com.sleepycat.je.Transaction;
import com.sleepycat.je.TransactionConfig;
import java.io.File;
import java.nio.ByteBuffer;

/** An environment of Berkeley DB Java Edition with its tables, called through JNI. */
final class Peer {
    final Environment environment;
    final Database[] tables;
    final TransactionConfig reads;
    final TransactionConfig writes;

    private Peer(Environment environment, Database[] tables, Durability durability) {
        this.environment = environment;
        this.tables = tables;
        this.reads = new TransactionConfig().setReadCommitted(true).setReadOnly(true);
        // With less than this updates are lost: a lookup of a missing key locks nothing.
        this.writes = new TransactionConfig().setSerializableIsolation(true).setDurability(durability);
    }

    static String version() {
        return JEVersion.CURRENT_VERSION.getNumericVersionString();
    }

    /** Opens an environment, and its tables, whose names are separated by commas. Commits stay in memory (0), are written (1), or synced (2). */
    static Peer open(String directory, String names, long cacheBytes, int durability) {
        EnvironmentConfig config = new EnvironmentConfig();
        config.setAllowCreate(true).setTransactional(true).setCacheSize(cacheBytes);
        Environment environment = new Environment(new File(directory), config);
        DatabaseConfig each = new DatabaseConfig().setAllowCreate(true).setTransactional(true);
        String[] split = names.split(",");
        Database[] tables = new Database[split.length];
        for (int i = 0; i < split.length; i++) {
            tables[i] = environment.openDatabase(null, split[i], each);
        }
        Durability[] durabilities = {
            Durability.COMMIT_NO_SYNC, Durability.COMMIT_WRITE_NO_SYNC, Durability.COMMIT_SYNC
        };
        return new Peer(environment, tables, durabilities[durability]);
    }

    PeerSession session() {
        return new PeerSession(this);
    }

    void sync() {
        environment.flushLog(true);
    }

    void close() {
        for (Database table : tables) {
            table.close();
        }
        environment.close();
    }
}

/**
 * What one thread works with. Keys and values go through a buffer outside of the heap: a key lies at its beginning, the
 * value behind it. A method that finds the buffer too small returns how large it has to be, negated, and is called again.
 */
final class PeerSession {
    /** There is no such entry. */
    private static final int ABSENT = -1;
    /** The transaction is in the way of another, and is to be aborted. */
    private static final int CONFLICT = -2;
    /** Of the lengths of key and value before each entry of a scan. */
    private static final int HEAD_BYTES = 8;

    private final Peer peer;
    private final DatabaseEntry key = new DatabaseEntry();
    private final DatabaseEntry value = new DatabaseEntry();
    private ByteBuffer buffer;
    private Transaction transaction;
    private Cursor cursor;
    private boolean reverse;
    private LockMode mode;
    /** Whether the cursor is at an entry. */
    private boolean found;
    /** Whether that entry is in the buffer by now, or was. */
    private boolean shown;

    PeerSession(Peer peer) {
        this.peer = peer;
    }

    void buffer(ByteBuffer buffer) {
        this.buffer = buffer;
    }

    void begin(boolean write) {
        transaction = peer.environment.beginTransaction(null, write ? peer.writes : peer.reads);
    }

    int commit() {
        try {
            Transaction ending = transaction;
            ending.commit();
            transaction = null;
            return 0;
        } catch (LockConflictException conflict) {
            return CONFLICT;
        }
    }

    void abort() {
        Transaction ending = transaction;
        transaction = null;
        if (ending != null) {
            ending.abort();
        }
    }

    /** Puts the value into the buffer, and returns how long it is. Outside of a transaction it stands alone. */
    int get(int table, int keyBytes, boolean update) {
        take(key, 0, keyBytes);
        try {
            LockMode mode = update ? LockMode.RMW : LockMode.DEFAULT;
            if (peer.tables[table].get(transaction, key, value, mode) != OperationStatus.SUCCESS) {
                return ABSENT;
            }
        } catch (LockConflictException conflict) {
            return CONFLICT;
        }
        if (value.getSize() > buffer.capacity()) {
            return -value.getSize();
        }
        buffer.clear();
        buffer.put(value.getData(), value.getOffset(), value.getSize());
        return value.getSize();
    }

    int put(int table, int keyBytes, int valueBytes) {
        take(key, 0, keyBytes);
        take(value, keyBytes, valueBytes);
        try {
            peer.tables[table].put(transaction, key, value);
            return 0;
        } catch (LockConflictException conflict) {
            return CONFLICT;
        }
    }

    int delete(int table, int keyBytes) {
        take(key, 0, keyBytes);
        try {
            peer.tables[table].delete(transaction, key);
            return 0;
        } catch (LockConflictException conflict) {
            return CONFLICT;
        }
    }

    /** Begins a scan at a key, or at that end of the table if its length is negative. */
    int scan(int table, int keyBytes, boolean reverse, boolean update) {
        this.reverse = reverse;
        this.mode = update ? LockMode.RMW : LockMode.DEFAULT;
        this.shown = false;
        try {
            cursor = peer.tables[table].openCursor(transaction, null);
            found = (keyBytes < 0 ? end() : near(keyBytes)) == OperationStatus.SUCCESS;
            return 0;
        } catch (LockConflictException conflict) {
            return CONFLICT;
        }
    }

    private OperationStatus end() {
        return reverse ? cursor.getLast(key, value, mode) : cursor.getFirst(key, value, mode);
    }

    private OperationStatus near(int keyBytes) {
        take(key, 0, keyBytes);
        byte[] from = key.getData();
        OperationStatus status = cursor.getSearchKeyRange(key, value, mode);
        if (!reverse) {
            return status;
        }
        if (status != OperationStatus.SUCCESS) {
            return cursor.getLast(key, value, mode);
        }
        return java.util.Arrays.equals(from, key.getData()) ? status : cursor.getPrev(key, value, mode);
    }

    /** Puts up to so many entries into the buffer, and returns how long they are together: 0 at the end. */
    int next(int entriesMax) {
        buffer.clear();
        try {
            for (int entries = 0; entries < entriesMax; entries++) {
                step();
                if (!found) {
                    break;
                }
                int bytes = HEAD_BYTES + key.getSize() + value.getSize();
                if (bytes > buffer.remaining()) {
                    return entries == 0 ? -bytes : buffer.position();
                }
                buffer.putInt(key.getSize()).putInt(value.getSize());
                buffer.put(key.getData(), key.getOffset(), key.getSize());
                buffer.put(value.getData(), value.getOffset(), value.getSize());
                shown = true;
            }
            return buffer.position();
        } catch (LockConflictException conflict) {
            return CONFLICT;
        }
    }

    /** Goes on to the next entry, unless the cursor's one is still to be shown. */
    private void step() {
        if (!found || !shown) {
            return;
        }
        OperationStatus status = reverse ? cursor.getPrev(key, value, mode) : cursor.getNext(key, value, mode);
        found = status == OperationStatus.SUCCESS;
        shown = false;
    }

    void endScan() {
        Cursor ending = cursor;
        cursor = null;
        if (ending != null) {
            ending.close();
        }
    }

    private void take(DatabaseEntry entry, int offset, int bytes) {
        byte[] data = new byte[bytes];
        buffer.position(offset);
        buffer.get(data);
        entry.setData(data);
    }
}
