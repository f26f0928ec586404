//go:build cgo

package snib

import (
	"context"
	"log/slog"
	"time"
)

// logAs starts the log according to the options.
func (c *Client) logAs(o *clientOptions) error {
	switch {
	case !o.logs:
		return c.logTo(nil, logWarnings)
	case o.logger == nil:
		return nil
	}
	return c.logTo(o.logger, logAll)
}

// logTo sends the core's log records to a logger; nil means slog's default one. It uses a separate goroutine, so a slow
// handler delays only records, and a handler may use this package.
func (c *Client) logTo(logger *slog.Logger, level int32) error {
	p, err := newPump(c.handle)
	if err != nil {
		return err
	}
	if err := startLog(c.handle, p.queue, level); err != nil {
		p.stop()
		freeQueue(p.queue)
		return err
	}
	c.records = p
	id := slog.String("client", c.ID())
	go p.run(func(events []event) {
		for i := range events {
			record(logger, &events[i], id)
		}
	})
	return nil
}

func record(logger *slog.Logger, e *event, client slog.Attr) {
	if !e.log {
		return
	}
	if logger == nil {
		logger = slog.Default()
	}
	attrs := []slog.Attr{client}
	if e.count > 0 {
		attrs = append(attrs, slog.Int64("dropped", e.count))
	}
	logger.LogAttrs(context.Background(), levels[e.reason], e.text, attrs...)
}

// lastRecords is how long Close waits for a handler that does not return, perhaps because it called Close.
const lastRecords = time.Second

func (c *Client) endLog() {
	if c.records == nil {
		return
	}
	c.records.stop()
	select {
	case <-c.records.done:
	case <-time.After(lastRecords):
	}
}
