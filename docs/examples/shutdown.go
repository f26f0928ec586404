// Work that ends with the program's context, or when its lock is lost.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	snib "github.com/snib-lock/snib/go"
)

func main() {
	url := os.Getenv("SNIB_URL")
	if url == "" {
		url = "redis://127.0.0.1:6379"
	}
	// In a service: signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM).
	ctx, stop := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer stop()
	client, err := snib.Open(context.Background(), url)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	err = client.Mutex("orders").Do(ctx, func(ctx context.Context) error {
		<-ctx.Done() // cancelled by the caller or by the loss of the lock: context.Cause says which
		return context.Cause(ctx)
	})
	if errors.Is(err, snib.ErrLost) {
		log.Fatal("another may have the lock: ", err)
	}
	fmt.Println("ended, and gave the lock back:", err)
}
