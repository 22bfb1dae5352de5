// go-redis: connecting, a pipeline, a transaction with WATCH, a scan. `go run conversation.go 127.0.0.1:6379`
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/redis/go-redis/v9"
)

func check(err error) {
	if err != nil && err != redis.Nil {
		fmt.Println("FAILED:", err)
		os.Exit(1)
	}
}

func main() {
	ctx := context.Background()
	c := redis.NewClient(&redis.Options{Addr: os.Args[1]})
	check(c.FlushDB(ctx).Err())
	check(c.Set(ctx, "a", "1", 0).Err())
	p := c.Pipeline()
	for i := 0; i < 100; i++ {
		p.Incr(ctx, "a")
	}
	p.HSet(ctx, "h", map[string]any{"f": "v", "g": 2})
	p.RPush(ctx, "l", 1, 2, 3)
	p.SAdd(ctx, "s", "x", "y")
	p.ZAdd(ctx, "z", redis.Z{Score: 1.5, Member: "m"}, redis.Z{Score: 2, Member: "n"})
	_, err := p.Exec(ctx)
	check(err)
	v, err := c.Get(ctx, "a").Int()
	check(err)
	h, err := c.HGetAll(ctx, "h").Result()
	check(err)
	z, err := c.ZRangeWithScores(ctx, "z", 0, -1).Result()
	check(err)
	err = c.Watch(ctx, func(tx *redis.Tx) error {
		n, err := tx.Get(ctx, "a").Int()
		if err != nil {
			return err
		}
		_, err = tx.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.Set(ctx, "a", n+1, 0)
			return nil
		})
		return err
	}, "a")
	check(err)
	keys := 0
	it := c.Scan(ctx, 0, "*", 2).Iterator()
	for it.Next(ctx) {
		keys++
	}
	check(it.Err())
	got := fmt.Sprint(v, h, z, keys, c.LRange(ctx, "l", 0, -1).Val(), c.SCard(ctx, "s").Val(), c.Get(ctx, "a").Val())
	if got != "101 map[f:v g:2] [{1.5 m} {2 n}] 5 [1 2 3] 2102" {
		check(fmt.Errorf("%s", got))
	}
	fmt.Println("go-redis", redis.Version())
}
