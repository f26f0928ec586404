//go:build !linux

package snib

// Snib's core needs Linux's epoll, eventfd and futex, so a build for another system ends here.
var _ = snib_runs_on_Linux_only
