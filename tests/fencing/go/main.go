// A Go program that protects a row of PostgreSQL by a fenced lock: see ../peer.c.
package main

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"

	_ "github.com/jackc/pgx/v5/stdlib"
	snib "github.com/snib-lock/snib/go"
	"github.com/snib-lock/snib/go/fencing"
)

func write(ctx context.Context, database *sql.DB, token int64, owner string) error {
	tx, err := database.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // nothing to do after Commit
	if err := fencing.AcceptSQL(ctx, tx, fencing.PostgreSQL, "stock", token, owner); err != nil {
		return err
	}
	var number int
	if err := tx.QueryRowContext(ctx, "SELECT number FROM stock WHERE item = 'book'").Scan(&number); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "UPDATE stock SET number = $1 WHERE item = 'book'", number+1); err != nil {
		return err
	}
	return tx.Commit()
}

// outcome formats the result of a call that may be refused as stale.
func outcome(err error, expected error, name string) string {
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, expected):
		return name
	}
	return err.Error()
}

func main() {
	ctx := context.Background()
	client, err := snib.Open(ctx, os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	database, err := sql.Open("pgx", os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	lock := client.Fenced("row")
	acquire := func() *snib.Hold {
		hold, err := lock.Lock(ctx)
		if err != nil {
			log.Fatal(err)
		}
		return hold
	}
	var hold *snib.Hold
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		words := strings.Fields(lines.Text())
		switch words[0] {
		case "lock":
			hold = acquire()
			fmt.Println(hold.Token(), hold.Owner())
		case "write":
			token, _ := strconv.ParseInt(words[1], 10, 64)
			fmt.Println(outcome(write(ctx, database, token, words[2]), fencing.ErrStale, "stale"))
		case "run":
			rounds, _ := strconv.Atoi(words[1])
			refused := 0
			for range rounds {
				hold := acquire()
				if err := write(ctx, database, hold.Token(), hold.Owner()); err != nil {
					refused++
				}
				_ = hold.Unlock(ctx)
			}
			fmt.Println("refused", refused)
		default:
			fmt.Println(outcome(hold.Unlock(ctx), snib.ErrLost, "lost"))
		}
	}
}
