// Jedis, with RESP2 and RESP3: connecting, a pipeline, a transaction with WATCH, a scan. `java -cp 'lib/*' conversation.java 127.0.0.1:6379`
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.JedisPooled;
import redis.clients.jedis.Pipeline;
import redis.clients.jedis.RedisProtocol;
import redis.clients.jedis.Response;
import redis.clients.jedis.Transaction;
import redis.clients.jedis.params.ScanParams;
import redis.clients.jedis.params.SetParams;
import redis.clients.jedis.resps.ScanResult;
import redis.clients.jedis.resps.Tuple;

class Conversation {
  static void same(Object found, Object expected) {
    if (!expected.equals(found)) {
      throw new AssertionError("FAILED: " + found + ", expected " + expected);
    }
  }

  public static void main(String[] args) {
    HostAndPort address = HostAndPort.from(args[0]);
    for (RedisProtocol protocol : RedisProtocol.values()) {
      DefaultJedisClientConfig config = DefaultJedisClientConfig.builder().protocol(protocol).clientName("it").build();
      try (Jedis client = new Jedis(address, config)) {
        talk(client);
      }
      try (JedisPooled pool = new JedisPooled(address, config)) {
        same(pool.get("a"), "102");
        same(pool.hgetAll("h"), Map.of("f", "v", "g", "2"));
      }
      System.out.println("jedis " + protocol);
    }
  }

  static void talk(Jedis client) {
    same(client.flushDB(), "OK");
    same(client.clientGetname(), "it");
    same(client.set("a", "1", SetParams.setParams().nx().ex(100)), "OK");
    same(client.persist("a"), 1L);
    Pipeline pipeline = client.pipelined();
    for (int i = 0; i < 100; i++) {
      pipeline.incr("a");
    }
    pipeline.hset("h", Map.of("f", "v", "g", "2"));
    pipeline.rpush("l", "1", "2", "3");
    pipeline.sadd("s", "x", "y");
    pipeline.zadd("z", Map.of("m", 1.5, "n", 2.0));
    Response<List<Tuple>> scores = pipeline.zrangeWithScores("z", 0, -1);
    Response<Map<String, String>> hash = pipeline.hgetAll("h");
    pipeline.sync();
    same(scores.get(), List.of(new Tuple("m", 1.5), new Tuple("n", 2.0)));
    same(new TreeMap<>(hash.get()), new TreeMap<>(Map.of("f", "v", "g", "2")));
    same(client.get("a"), "101");
    same(client.lrange("l", 0, -1), List.of("1", "2", "3"));
    same(client.smembers("s"), Set.of("x", "y"));
    same(client.zscore("z", "m"), 1.5);
    if (client.get("nothing") != null) {
      throw new AssertionError("FAILED: a key that does not exist");
    }

    client.watch("a");
    Transaction transaction = client.multi();
    Response<Long> count = transaction.incr("a");
    Response<String> value = transaction.get("a");
    same(transaction.exec().size(), 2);
    same(count.get() + value.get(), "102102");
    // A key that was written since it was watched.
    client.watch("a");
    client.set("a", "102");
    transaction = client.multi();
    transaction.set("a", "lost");
    if (transaction.exec() != null) {
      throw new AssertionError("FAILED: it was written");
    }

    Set<String> keys = new TreeSet<>();
    String cursor = ScanParams.SCAN_POINTER_START;
    do {
      ScanResult<String> found = client.scan(cursor, new ScanParams().count(2));
      keys.addAll(found.getResult());
      cursor = found.getCursor();
    } while (!cursor.equals(ScanParams.SCAN_POINTER_START));
    same(keys, Set.of("a", "h", "l", "s", "z"));
    try {
      client.incr("h");
      throw new AssertionError("FAILED: no error");
    } catch (redis.clients.jedis.exceptions.JedisDataException error) {
      same(error.getMessage().startsWith("WRONGTYPE"), true);
    }
  }
}
