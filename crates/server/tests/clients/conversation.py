"""redis-py: connecting, a pipeline, a transaction with WATCH, a scan. `python conversation.py 127.0.0.1:6379`"""

import sys

import redis

host, port = sys.argv[1].split(":")
client = redis.Redis(host=host, port=int(port), decode_responses=True, protocol=3)
client.flushdb()
pipeline = client.pipeline(transaction=False)
for _ in range(100):
    pipeline.incr("a")
pipeline.hset("h", mapping={"f": "v", "g": 2})
pipeline.rpush("l", 1, 2, 3)
pipeline.sadd("s", "x", "y")
pipeline.zadd("z", {"m": 1.5, "n": 2})
pipeline.execute()


def add_one(pipe):
    number = int(pipe.get("a"))
    pipe.multi()
    pipe.set("a", number + 1)


assert client.transaction(add_one, "a") == [True]
assert client.get("a") == "101"
assert client.hgetall("h") == {"f": "v", "g": "2"}
assert client.zrange("z", 0, -1, withscores=True) in ([["m", 1.5], ["n", 2.0]], [("m", 1.5), ("n", 2.0)])
assert sorted(client.scan_iter(count=2)) == ["a", "h", "l", "s", "z"]
assert client.smembers("s") == {"x", "y"}
assert client.lrange("l", 0, -1) == ["1", "2", "3"]
print("redis-py", redis.__version__)
