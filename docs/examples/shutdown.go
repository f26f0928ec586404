// Work that ends at SIGTERM, or when its lock is lost.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	snib "github.com/snib-lock/snib/go"
)

func main() {
	url := os.Getenv("SNIB_URL")
	if url == "" {
		url = "redis://127.0.0.1:6379"
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	client, err := snib.Open(context.Background(), url)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	worked := false
	err = client.Mutex("orders").Do(ctx, func(ctx context.Context) error {
		worked = true
		if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil { // so that there is a signal to see
			return err
		}
		<-ctx.Done() // cancelled by the signal or by the loss of the lock: context.Cause says which
		return context.Cause(ctx)
	})
	var told *snib.Error
	switch {
	case errors.Is(err, snib.ErrLost):
		log.Fatal("another may have the lock: ", err)
	case !worked:
		log.Fatal("ended without the lock: ", err) // a service may call this a success after a signal
	case errors.As(err, &told):
		log.Fatal("the lock was not given back: ", err)
	case !errors.Is(err, context.Canceled):
		log.Fatal("the work failed: ", err)
	}
	fmt.Println("ended, and gave the lock back:", err)
}
