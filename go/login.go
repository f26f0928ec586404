//go:build cgo

package snib

import (
	"context"
	"fmt"
)

// LoginBy calls a function at each connect for the credentials, instead of [Credentials] or a password in the URL: for
// tokens that expire. The function has its own goroutine and may be slow; an answer that takes longer than the
// [ConnectTimeout] serves the next attempt. Its context ends with the client. While it fails, operations wait as long
// as they tolerate an unreachable server, and then fail with [ErrCredentials].
func LoginBy(ask func(context.Context) (Login, error)) Option {
	return func(o *clientOptions) { o.login = ask }
}

// loginBy starts a goroutine that waits for the core's requests. C never calls Go: they arrive in a queue, like all
// other events.
func (c *Client) loginBy(ask func(context.Context) (Login, error)) error {
	if ask == nil {
		return nil
	}
	p, err := newPump(c.handle)
	if err != nil {
		return err
	}
	if err := startLogins(c.handle, p.queue); err != nil {
		p.stop()
		freeQueue(p.queue)
		return err
	}
	ctx, end := context.WithCancel(context.Background())
	c.questions, c.endLogins = p, end
	go p.run(func(events []event) {
		for i := range events {
			go answer(ctx, c.handle, events[i].token, ask)
		}
	})
	return nil
}

func answer(ctx context.Context, client, question uint64, ask func(context.Context) (Login, error)) {
	var login Login
	var err error
	answered := false
	defer func() {
		why := ""
		panicked := recover()
		switch {
		case panicked != nil:
			why = fmt.Sprintf("panic: %v", panicked)
		case !answered:
			why = "the function called runtime.Goexit"
		case err != nil:
			if why = fmt.Sprint(err); why == "" { // which survives an Error method that panics
				why = "no reason was given"
			}
		case login.Password == "":
			why = "there is no password"
		case login.Valid < 0:
			why = "they have already expired"
		}
		answerLogin(client, question, &login, why)
	}()
	login, err = ask(ctx)
	answered = true
}

func (c *Client) endQuestions() {
	if c.questions == nil {
		return
	}
	c.endLogins()
	c.questions.stop()
	<-c.questions.done
}
